/* Writes answers for a terminal: the sentences first, then the tables, in lines of 80 columns. Owns
   no state. Locks: none. */
#ifndef MLR_FORMATS_TEXT_REPORT_H
#define MLR_FORMATS_TEXT_REPORT_H
#include "answers/answers.h"
#include "profile/text.h"

typedef struct mlr_text_options {
    int first;  /* 1: only the first screen, of at most 24 lines in most cases */
    int colour; /* 1: with the escapes of a terminal */
} mlr_text_options;
/* `options` may be NULL. */
MLR_PRIVATE void mlr_write_text(const mlr_answers *answers, const mlr_text_options *options,
                                mlr_out *o);

#endif

/* Writes answers as GitHub's Markdown: the sentences, then the tables. Owns no state. Locks:
   none. */
#ifndef MLR_FORMATS_MARKDOWN_H
#define MLR_FORMATS_MARKDOWN_H
#include "answers/answers.h"
#include "profile/text.h"

MLR_PRIVATE void mlr_write_markdown(const mlr_answers *answers, mlr_out *o);

#endif

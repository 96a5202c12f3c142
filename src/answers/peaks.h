/* Who held what at the peak of a device. A peak above 1.25 times what is live has a sentence. Owns
   no state. Locks: none. */
#ifndef MLR_ANSWERS_PEAKS_H
#define MLR_ANSWERS_PEAKS_H
#include "answers/build.h"

MLR_PRIVATE void mlr_peaks_answer(mlr_build *b);

/* Who held most of a device at its peak: a tag and a place by number, 0 if none had 1 % of it. */
typedef struct mlr_peak_holders {
    uint64_t noted; /* the bytes of which they are: those when they were noted; 0: never */
    uint32_t tag, place;
    uint64_t tag_bytes, place_bytes;
} mlr_peak_holders;
MLR_PRIVATE mlr_peak_holders mlr_peak_holders_of(const mlr_build *b, uint32_t device);
/* Adds ": tag kv 71 %; load loader.c:10 60 %", or nothing. */
MLR_PRIVATE void mlr_peak_holders_say(mlr_words *w, const mlr_peak_holders *h);

#endif

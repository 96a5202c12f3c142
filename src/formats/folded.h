/* Writes FOLDED: collapsed stacks (https://github.com/brendangregg/FlameGraph, stackcollapse).
   Owns no state. Locks: none. */
#ifndef MLR_FORMATS_FOLDED_H
#define MLR_FORMATS_FOLDED_H
#include "profile/read.h"
#include "profile/text.h"

/* A line is "device;tag;scope;inner scope;caller;function bytes", the outermost first. The bytes
   are live; those of a part have one more frame, its name. A tag or a scope that is not known has
   no frame. A semicolon in a frame is written as a colon. Lines are in the order of their device,
   tag and frames, and no two have the same text. FOLDED_PEAK has the bytes at the peak of each
   device, in lines that begin as in "cpu (peak)"; FOLDED_ALLOCATED has the bytes allocated since
   the last reset, as in "cpu (allocated)". Neither has tags, scopes or parts. There are no
   anomalies and drops, because readers know no comments. */
MLR_PRIVATE mlr_result mlr_folded_live(const mlr_profile *p, mlr_out *o);
MLR_PRIVATE mlr_result mlr_folded_peak(const mlr_profile *p, mlr_out *o);
MLR_PRIVATE mlr_result mlr_folded_allocated(const mlr_profile *p, mlr_out *o);

#endif

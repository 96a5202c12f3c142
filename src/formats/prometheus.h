/* Writes PROMETHEUS, the text exposition format 0.0.4
   (https://prometheus.io/docs/instrumenting/exposition_formats/). Owns no state. Locks: none. */
#ifndef MLR_FORMATS_PROMETHEUS_H
#define MLR_FORMATS_PROMETHEUS_H
#include "profile/read.h"
#include "profile/text.h"

/* The families are those that memlord_write gives. Units are bytes and seconds. Every sample is of
   one device or physical device, or of the whole ledger if its number belongs to no device, and has
   the labels of the ledger. No sample is a sum of others, so that sum() in a query is right. tag=""
   has the bytes without a tag. The first 100 tags of each device, and as many scopes, have series
   of their own; all others are one series with an empty name and the label rest="1". Sites,
   streams, blocks and parts of blocks are left out, because each would be a series of its own. */
MLR_PRIVATE mlr_result mlr_prometheus(const mlr_profile *p, mlr_out *o);

#endif

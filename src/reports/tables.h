/* Writes PROMETHEUS, CSV and TIMELINE. Owns no state. Locks: none. */
#ifndef MLI_REPORTS_TABLES_H
#define MLI_REPORTS_TABLES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

/* PROMETHEUS is the text exposition format 0.0.4
   (https://prometheus.io/docs/instrumenting/exposition_formats/). Units are bytes and seconds.
   Every sample is of one device or physical device, or of the whole ledger if its number belongs to
   no device, and has the labels of the ledger. No sample is a sum of others, so that sum() in a
   query is right. tag="" has the bytes without a tag. The first MEMLORD_MAX_SERIES tags of each
   device, and as many scopes, have series of their own; all others are one series with an empty
   name and the label rest="1". A tag or scope never changes its series. Counters start over at
   memlord_reset, as the format allows. Sites, streams, blocks and parts of blocks are left out,
   because each would be a series of its own. */

#if !defined(MEMLORD_NO_REPORTS)

MLI_PRIVATE MLI_COLD void mli_prometheus(mli_report *r);

MLI_PRIVATE MLI_COLD void mli_csv(mli_report *r);
MLI_PRIVATE MLI_COLD void mli_timeline(mli_report *r);
#endif

#endif

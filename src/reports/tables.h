/* Writes PROMETHEUS, CSV and TIMELINE. A line is a tag, a scope or a physical device in a list of
   the capture. Owns no state. May use reports/export. Locks: none. */
#ifndef MLI_REPORTS_TABLES_H
#define MLI_REPORTS_TABLES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

/* PROMETHEUS is the text exposition format 0.0.4
   (https://prometheus.io/docs/instrumenting/exposition_formats/). Units are bytes and seconds.
   Every sample is of one device or physical device. If a number belongs to no device, its sample
   is of the whole ledger. No sample is a sum of other samples, so that sum() in a query is right.
   The series with tag="" has the bytes without a tag. The first MEMLORD_MAX_SERIES tags of each
   device, and as many scopes, have series of their own. All others are added up in a series with an
   empty name and the label rest="1". Tags and scopes keep their order as long as the ledger lives,
   so a tag or scope never changes its series. Counters start over at memlord_reset, as the format
   allows. Sites, streams, blocks and parts of blocks are left out, because each would be a series
   of its own. Every sample has the labels of the ledger, too, so that processes with other labels
   have other series. */

#if !defined(MEMLORD_NO_REPORTS)

MLI_PRIVATE MLI_COLD void mli_prometheus(mli_report *r);

MLI_PRIVATE MLI_COLD void mli_csv(mli_report *r);
MLI_PRIVATE MLI_COLD void mli_timeline(mli_report *r);
#endif

#endif

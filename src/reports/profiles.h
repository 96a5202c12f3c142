/* Writes FOLDED, PPROF and HEAPTRACK. Owns no state. May use reports/export and reports/shares.
   Locks: none. */
#ifndef MLI_REPORTS_PROFILES_H
#define MLI_REPORTS_PROFILES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

/* FOLDED, Brendan Gregg's collapsed stacks (https://github.com/brendangregg/FlameGraph,
      stackcollapse): "device;tag;scope;inner scope;site bytes", a line each. With stacks the
   site's place has the return addresses, the outermost first. Counts live bytes; where stacks are
   samples, their shares. The bytes of a part have the part's name as one more frame. An unknown tag
   or scope has no frame; in the other frames a semicolon becomes a colon. Lines are in the order of
   their device, tag and frames, and equal stacks are one line. That holds for MLI_FOLDED_LINES / 2
   different lines, or those there is memory for: with more the order begins again, and readers add
   equal lines up. Anomalies and drops are not in it: readers know no comments. */

#if !defined(MEMLORD_NO_PROFILES)

MLI_PRIVATE MLI_COLD void mli_folded(mli_report *r);

MLI_PRIVATE MLI_COLD void mli_pprof(mli_report *r);

MLI_PRIVATE MLI_COLD void mli_heaptrack(mli_report *r);
#endif

#endif

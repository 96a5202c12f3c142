/* Writes FOLDED, PPROF and HEAPTRACK. If stacks are samples, a stack has a share of the blocks of
   its site: see reports/shares. Owns no state. Locks: none. */
#ifndef MLI_REPORTS_PROFILES_H
#define MLI_REPORTS_PROFILES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

/* FOLDED is Brendan Gregg's collapsed stacks (https://github.com/brendangregg/FlameGraph,
   stackcollapse). A line is "device;tag;scope;inner scope;site bytes", with the return addresses in
   place of the site, the outermost first, if there are stacks. The bytes are live; those of a part
   have one more frame, its name. A tag or a scope that is not known has no frame. A semicolon in a
   frame is written as a colon. Lines are in the order of their device, tag and frames, and equal
   stacks are one line, up to MLI_FOLDED_LINES / 2 different lines, and memory for them; then the
   order begins again, and readers add equal lines up. There are no anomalies and drops, because
   readers know no comments. FOLDED_PEAK has the bytes at the peak of each device, in lines that
   begin as in "cpu (peak)"; FOLDED_ALLOCATED has the bytes allocated since the last reset, as in
   "cpu (allocated)". Neither has tags, scopes or parts. */

#if !defined(MEMLORD_NO_PROFILES)

MLI_PRIVATE MLI_COLD void mli_folded(mli_report *r);
MLI_PRIVATE MLI_COLD void mli_folded_peak(mli_report *r);
MLI_PRIVATE MLI_COLD void mli_folded_allocated(mli_report *r);

MLI_PRIVATE MLI_COLD void mli_pprof(mli_report *r);

MLI_PRIVATE MLI_COLD void mli_heaptrack(mli_report *r);
#endif

#endif

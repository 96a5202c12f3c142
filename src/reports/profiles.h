/* Writes FOLDED, PPROF and HEAPTRACK. Stacks are samples if only some blocks are picked to have
   one; a stack then has a share of the blocks of its site (see reports/shares.h). A node is a frame
   of a stack in the ledger's tree of stacks. Owns no state. May use reports/export and
   reports/shares. Locks: none. */
#ifndef MLI_REPORTS_PROFILES_H
#define MLI_REPORTS_PROFILES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

/* FOLDED is Brendan Gregg's collapsed stacks (https://github.com/brendangregg/FlameGraph,
   stackcollapse). A line is "device;tag;scope;inner scope;site bytes". With stacks it has the
   return addresses in place of the site, the outermost first. The bytes are live bytes. If stacks
   are samples, the bytes of a stack are its share (see reports/shares.h). The bytes of a part have
   one more frame, the name of the part. A tag or a scope that is not known has no frame. A
   semicolon in a frame is written as a colon. Lines are in the order of their device, tag and
   frames, and equal stacks are one line. This holds as long as there are at most
   MLI_FOLDED_LINES / 2 different lines, and memory for them. If there are more, the order
   begins again, and a line may come again. Readers add equal lines up. FOLDED has no anomalies and
   drops, because its readers know no comments.

   FOLDED_PEAK has the bytes that were live at the peak of each device. A line begins with the
   device and " (peak)", as in "cpu (peak)". FOLDED_ALLOCATED has the bytes allocated since the last
   reset. A line begins with the device and " (allocated)". Neither has tags, scopes or parts. */

#if !defined(MEMLORD_NO_PROFILES)

MLI_PRIVATE MLI_COLD void mli_folded(mli_report *r);
MLI_PRIVATE MLI_COLD void mli_folded_peak(mli_report *r);
MLI_PRIVATE MLI_COLD void mli_folded_allocated(mli_report *r);

MLI_PRIVATE MLI_COLD void mli_pprof(mli_report *r);

MLI_PRIVATE MLI_COLD void mli_heaptrack(mli_report *r);
#endif

#endif

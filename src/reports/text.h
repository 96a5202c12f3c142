/* Writes TEXT from a capture. Owns no state. May use reports/capture. Locks: none. */
#ifndef MLI_REPORTS_TEXT_H
#define MLI_REPORTS_TEXT_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/text.h"
#include "books/blocks.h"
#include "reports/capture.h"

/* A first screen of about 25 lines comes before the lists in full. It begins with verdicts, the
   worst first. Each is one line with its devices, those of the highest peaks first. Names are cut
   after MLI_TEXT_NAME characters. */

MLI_PRIVATE int mli_report_device(const mli_report *r, uint32_t dev);

MLI_PRIVATE MLI_COLD const memlord_site *mli_culprit_site(const mli_report *r);

MLI_PRIVATE void mli_text_devices(mli_report *r, size_t most);

/* Writes a shape as "[4096,128]"; nothing for rank 0. */
MLI_PRIVATE void mli_put_shape(mli_out *o, const memlord_meta *meta, const char *between);

/* 1: a move or a copy went that way since the last reset. */
MLI_PRIVATE int mli_route_used(const mli_route *route);

/* Returns the name of the next anomaly or drop of a device that is not 0, and its count in *v.
   NULL: there is no other. dev 0: of all devices, with the losses of the ledger. *i: how many of
   mli_anomaly_columns were read, 0 at first. */
MLI_PRIVATE MLI_COLD const char *mli_anomaly_next(mli_report *r, uint32_t dev, size_t *i,
                                                  uint64_t *v);
MLI_PRIVATE memlord_device mli_anomaly_device(const mli_report *r, uint32_t dev);

/* Writes all anomalies and drops of a device (dev 0: of all) in one line that begins with `head`.
   Writes nothing if there are none. */
MLI_PRIVATE MLI_COLD void mli_text_anomalies(mli_report *r, mli_out *o, const char *head,
                                             uint32_t dev);

MLI_PRIVATE MLI_COLD void mli_text_verdicts(mli_report *r);

MLI_PRIVATE MLI_COLD void mli_text(mli_report *r);

#endif

/* Composes the answers that all formats of a report share: verdicts, anomalies and drops. A verdict
   says what is bad, what grows, who holds or held most, or what is odd; its head is its first
   words, and it has a part for each device. Owns no state. Locks: none. */
#ifndef MLI_REPORTS_ANSWERS_H
#define MLI_REPORTS_ANSWERS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/text.h"
#include "reports/capture.h"
#include "reports/leaks.h"

#define MLI_TEXT_NAME 60
#define MLI_FIRST_DEVICES 4 /* the most devices in one verdict, and on the first screen of TEXT */

/* Finds the next anomaly or drop of a device or, if `dev` is 0, of all devices and of none. Returns
   its name, or NULL at the end, and sets *v to the count. *i is the position, 0 at first. */
MLI_PRIVATE MLI_COLD const char *mli_anomaly_next(mli_report *r, uint32_t dev, size_t *i,
                                                  uint64_t *v);
/* Returns the device with the ledger's number `dev`, or memlord_device_all() if dev is 0. */
MLI_PRIVATE memlord_device mli_anomaly_device(const mli_report *r, uint32_t dev);

/* Writes all anomalies and drops of a device, or of all devices if dev is 0, in one line that
   begins with `head`, if there are any. */
MLI_PRIVATE MLI_COLD void mli_text_anomalies(mli_report *r, mli_out *o, const char *head,
                                             uint32_t dev);

/* Writes a site with the device, tag and scope of its leaked blocks, as in " cpu [kv] in decode f
   x.c:3", or how many there are, as in " cpu with 3 tags in 300 scopes f x.c:3". Writes "partly
   [kv]" or "partly in decode" if some of the blocks have none. */
MLI_PRIVATE MLI_COLD void mli_put_leak_site(mli_report *r, mli_out *o, const mli_leak_site *s);

/* Writes the process that a report is about, as in "sort, pid 4242 on a1, since
   2027-01-15T08:00:00.123Z for 1.0 s". If `raw` is 1, the names are not escaped. */
MLI_PRIVATE MLI_COLD void mli_text_process(mli_report *r, mli_out *o, int raw);
/* Writes the members of JSON that say which process a report is about, and since when. */
MLI_PRIVATE MLI_COLD void mli_json_process(mli_report *r);

#define MLI_FIRST_SENTENCES 4 /* the most sentences on the first screen of TEXT */

/* Writes verdicts, one sentence a line, the worst first: what is bad, then what grows, then who
   holds or held most, then what is odd; in most kinds the devices with the highest peaks first.
   Writes the sentences `first` to `last` - 1, from 0, and returns how many there are. Cuts names
   after MLI_TEXT_NAME characters, and leaves that bound in r->out.name_max. */
MLI_PRIVATE MLI_COLD size_t mli_text_verdicts(mli_report *r, size_t first, size_t last);
MLI_PRIVATE MLI_COLD void mli_json_verdicts(mli_report *r);

#endif

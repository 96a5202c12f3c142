/* Writes CSV and TIMELINE, tables of RFC 4180. Owns no state. Locks: none. */
#ifndef MLR_FORMATS_CSV_H
#define MLR_FORMATS_CSV_H
#include "profile/read.h"
#include "profile/text.h"

/* CSV has the live blocks. Each is one line, which ends in CR LF, below a line of names. Control
   characters of a text are escaped like bytes that are not UTF-8, so that a block stays one line.
   Names come from model files, so a text may begin with = + - or @, which a spreadsheet would take
   for a formula. Such text gets an apostrophe before it. So does text that begins with an
   apostrophe, so that a reader can always remove one. `shape` reads as JSON. The parts of a block
   follow it, one line each. A part repeats the block's device, storage, site and stream, and has
   its own tag and description. It has a `part_offset` and a `part_bytes`, and 0 in `bytes` and
   `blocks`; a last one has those of them that the profile does not list. At the end, a line without a `storage` has what the profile does not list of one
   device, tag, scope and site, and a line named "(arena)" has the bytes of an arena. So `blocks`
   and `bytes` add up to what is live. Anomalies and drops are left out, because readers know no
   comments. */
MLR_PRIVATE mlr_result mlr_csv(const mlr_profile *p, mlr_out *o);

/* TIMELINE has the snapshots. Each has lines for each device: one for each of the largest tags, and
   a last one without a tag, for the rest. So the live bytes of the lines of a device add up to its
   own. Every line has the peak of its device until then. */
MLR_PRIVATE mlr_result mlr_timeline(const mlr_profile *p, mlr_out *o);

#endif

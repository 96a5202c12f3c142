/* Writes answers as JSON of the schema memlord-answers/1, for `--json` and for the page. Owns no
   state. Locks: none.

   {"schema":"memlord-answers/1", "program":"...", "filter":"...", "notes":["..."],
    "sentences":[{"kind":"growth", "tone":"odd", "device":"cpu" or null, "bytes":n,
        "head":"growth, cpu", "text":"...", "frame":n or null, "tag":"..." or null,
        "detail":["..."]}],
    "tables":{"sites":{"title":"...", "note":"...", "columns":[{"key":"live", "title":"live",
        "type":"bytes"}], "rows":[[n,"...",null]], "frames":[n], "more":n, "more_bytes":n}}}

   "type" is bytes, change, count, share (tenths of a percent), duration and since (nanoseconds),
   rate (bytes a minute), address or text. null in a row: not known. "frames" has for each row the
   number of its frame in the profile, 0 for none; it is left out if all are 0. Members that are
   empty or 0 are left out, but not those of a row. */
#ifndef MLR_FORMATS_ANSWERS_JSON_H
#define MLR_FORMATS_ANSWERS_JSON_H
#include "answers/answers.h"
#include "profile/text.h"

MLR_PRIVATE void mlr_write_answers_json(const mlr_answers *answers, mlr_out *o);

#endif

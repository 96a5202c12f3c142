/* Writes TRACE, the Trace Event Format in its JSON object form (Google's "Trace Event Format"
   document), which ui.perfetto.dev and chrome://tracing read. A slice is what the viewer draws as a
   bar from a begin to an end. Owns no state. Locks: none. */
#ifndef MLR_FORMATS_TRACE_H
#define MLR_FORMATS_TRACE_H
#include "profile/read.h"
#include "profile/text.h"

/* Times are microseconds since the ledger was created. A counter "DEVICE live" has the bytes of
   each tag as an argument; they add up to the live bytes of the device. A changed tag counts from
   the beginning. The counter has a sample whenever the live bytes have changed by a 64th of the
   peak, and at most 2048 more, at even steps of time. "DEVICE snapshots" shows the snapshots.
   Scopes are slices of their threads: B and E events from the events or, if those have no scopes, X
   events for the remembered invocations. A block that begins in the events is an async slice, which
   ends with the file if the block is still live, and whose end event has the parts, if the profile
   lists them. Names are cut to 200 bytes. Snapshots come first, then X events, then the events;
   snapshots and the events are in order of time. The process, anomalies and drops are in
   "otherData". */
MLR_PRIVATE mlr_result mlr_trace(const mlr_profile *p, mlr_out *o);

#endif

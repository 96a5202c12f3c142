/* Writes MEMORY_VIZ, a Python pickle for PyTorch's memory viewer. The memo of a pickle numbers
   items that were written, so that they can be repeated by their number. The ring has the latest
   events of the ledger. A storage is the address or handle of a block. Owns no state. May use
   reports/export and reports/ring. Locks: none. */
#ifndef MLI_REPORTS_MEMORY_VIZ_H
#define MLI_REPORTS_MEMORY_VIZ_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

/* MEMORY_VIZ is the result of torch.cuda.memory._snapshot(), pickled by protocol 2
   (https://pytorch.org/docs/stable/torch_cuda_memory.html; docs.python.org pickletools). Every
   block is a segment of its own, so that its bytes lie in a segment at every step. The arena of a
   device is a segment, too, at an address that no block has. Blocks of no bytes are left out. The
   frames of a block are its stack if it has one, else its site. Its scopes follow as the callers.
   The event of an alloc or a move has these frames, too; another event has the site of its call.
   The category of a block is its tag. The parts of a block are under "parts", which viewers skip.
   CUDA devices keep their index. The other devices come after them. The key "memlord" lists all
   devices, and the anomalies and drops that are not 0. Traces come from the ring of events. If the
   ring has events of a storage, its segment is as the last of these events left it, so that viewers
   can walk back from there. The first time a word, tag or frame occurs, it is written in full.
   After that it is written as its number in the pickle's memo. Words have the lowest numbers. Tags
   and frames have the numbers after these, in the order in which they first occur. */

#if !defined(MEMLORD_NO_REPORTS)
MLI_PRIVATE MLI_COLD void mli_memory_viz(mli_report *r);
#endif

#endif

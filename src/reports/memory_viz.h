/* Writes MEMORY_VIZ, a Python pickle for PyTorch's memory viewer. The memo of a pickle numbers
   items that were written, so that they can be repeated by their number. Owns no state. Locks:
   none. */
#ifndef MLI_REPORTS_MEMORY_VIZ_H
#define MLI_REPORTS_MEMORY_VIZ_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

/* MEMORY_VIZ is the result of torch.cuda.memory._snapshot(), pickled by protocol 2
   (https://pytorch.org/docs/stable/torch_cuda_memory.html; docs.python.org pickletools). Every
   block is a segment of its own, so that its bytes lie in a segment at every step, and so is each
   arena, at an address that no block has. Blocks of no bytes are left out. The frames of a block,
   and of the event of an alloc or a move, are its stack or else its site, then its scopes as the
   callers; another event has the site of its call. The category of a block is its tag; its parts
   are under "parts", which viewers skip. CUDA devices keep their index, and the others come after
   them. The key "memlord" lists all devices, and the anomalies and drops. If the ring has events of
   a storage, its segment is as the last of them left it, so that viewers can walk back from there.
   A word, tag or frame is written in full at first, and then as its number in the memo: words have
   the lowest numbers, then tags and frames in the order in which they first occur. */

#if !defined(MEMLORD_NO_REPORTS)
MLI_PRIVATE MLI_COLD void mli_memory_viz(mli_report *r);
#endif

#endif

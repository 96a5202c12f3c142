/* Writes MEMORY_VIZ, a Python pickle for PyTorch's memory viewer. The memo of a pickle numbers
   items that were written, so that they can be repeated by their number. Owns no state. Locks:
   none. */
#ifndef MLR_FORMATS_MEMORY_VIZ_H
#define MLR_FORMATS_MEMORY_VIZ_H
#include "profile/read.h"
#include "profile/text.h"

/* MEMORY_VIZ is the result of torch.cuda.memory._snapshot(), pickled by protocol 2
   (https://pytorch.org/docs/stable/torch_cuda_memory.html; docs.python.org pickletools). Every
   block is a segment of its own, so that its bytes lie in a segment at every step. So are the bytes
   of each arena, and those blocks of one stack together that the profile does not list, at
   addresses that no block has. Blocks of no bytes are left out. The frames of a block, and of the
   event of an alloc or a move, are its stack or else its site, then its scopes as the callers;
   another event has the site of its call. The category of a block is its tag; its parts are under
   "parts", which viewers skip. CUDA devices keep their index, and the others come after them. The
   key "memlord" lists all devices, the anomalies and drops, and how many blocks and bytes have no
   segment of their own. If there are events of a storage, its segment is as the last of them left
   it, so that viewers can walk back from there. A word, tag or frame is written in full at first,
   and then as its number in the memo: words have the lowest numbers, then tags and frames in the
   order in which they first occur. */
MLR_PRIVATE mlr_result mlr_memory_viz(const mlr_profile *p, mlr_out *o);

#endif

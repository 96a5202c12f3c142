// ggml-memlord.cpp: MemLord itself, and how its global ledger is set up. Goes into ggml/src.
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"

static const memlord_result ggml_memlord_setup = [] {
    memlord_desc desc = {};
    desc.logger.fn = memlord_log_stderr;
    desc.flags = MEMLORD_FLAG_SITES;
    desc.stack_depth = 16; // buffers are few: each may have its stack
    desc.stack_bytes = 1;
    return memlord_global_setup(&desc);
}();

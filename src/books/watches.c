#include "books/watches.h"

MLI_PRIVATE int mli_mark_passed(const mli_watch *w, const mli_u64 *published) {
    const int64_t bytes = (int64_t)mli_u64_load(published);
    return bytes >= (int64_t)mli_u64_load(&w->check_above) ||
           bytes < (int64_t)mli_u64_load(&w->check_below);
}
MLI_PRIVATE int mli_holders_due(const mli_watch *w, uint64_t live, uint64_t peak) {
    const int64_t noted = (int64_t)mli_u64_load(&w->holders_bytes), level = (int64_t)live;
    return level > noted + noted / (level < (int64_t)peak ? 128 : 16);
}

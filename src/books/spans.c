#include "books/spans.h"

MLI_PRIVATE MLI_NOINLINE mli_span_peak *mli_span_peak_at(mli_span *f, uint32_t dev) {
    while (f->devices < dev) {
        f->devices++;
        f->peaks[f->devices].from = f->peaks[f->devices].high = 0;
    }
    return &f->peaks[dev];
}
MLI_PRIVATE void mli_span_raise(mli_span *f, uint32_t dev, uint64_t level) {
    mli_span_peak *at = mli_span_peak_at(f, dev);
    if ((int64_t)(level - at->high) > 0) at->high = level;
}

MLI_PRIVATE void mli_joint_add(mli_joint *shared, uint32_t dev, uint64_t by, uint64_t above) {
    mli_lock_take(&shared->lock);
    above += shared->at[dev].level;
    shared->at[dev].level += by;
    if ((int64_t)above < (int64_t)shared->at[dev].level) above = shared->at[dev].level;
    if ((int64_t)above > (int64_t)shared->at[dev].high) shared->at[dev].high = above;
    mli_lock_drop(&shared->lock);
}
MLI_PRIVATE void mli_spans_share(const mli_thread *t, uint32_t dev, uint64_t by, uint64_t above) {
    const mli_span *f = t ? t->now.span : NULL;
    for (; f; f = f->around)
        if (MLI_UNLIKELY(f->shared != NULL)) mli_joint_add(f->shared, dev, by, above);
}

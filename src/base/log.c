#include "base/log.h"
#include "os/system.h"
#include "os/unwind.h"
#include "base/ledger.h"

MLI_PRIVATE MLI_COLD void mli_log_coloured(void *user, int level, const char *text) {
    static const char colours[][2][9] = {{"[alloc_n", "\033[36m"}, /* cyan: a summary */
                                         {"[free_n", "\033[36m"},
                                         {"[alloc", "\033[31m"}, /* red */
                                         {"[free", "\033[32m"},  /* green */
                                         {"[gc", "\033[33m"},    /* yellow */
                                         {"[reset", "\033[35m"}, /* magenta */
                                         {"", "\033[36m"}};      /* cyan */
    char line[640];
    mli_out o;
    size_t i = 0;
    (void)user;
    (void)level;
    while (strncmp(text, colours[i][0], strlen(colours[i][0]))) i++;
    mli_out_buffer(&o, line, sizeof line - 8); /* a cut line keeps its end */
    mli_put_str(&o, colours[i][1]);
    mli_put_str(&o, text);
    o.cap = sizeof line;
    mli_put_str(&o, "\033[0m\n");
    mli_stderr_write(line, o.used);
}

MLI_PRIVATE MLI_COLD int mli_log_hears(const memlord *lord, int level) {
    return level <= (int)mli_u32_load(&lord->log.level);
}

/* Sets the calls of the logger that the thread is in back to `before`. */
static MLI_COLD void mli_log_calls_end(memlord *lord, const mli_log_calls *before) {
    const int same = before->generation == lord->generation;
    int turn;
    mli_lock_take(&lord->log.lock);
    for (turn = 0; turn < 2; turn++)
        lord->log.inside[turn] -=
            mli_self.log_calls.inside[turn] - (same ? before->inside[turn] : 0);
    mli_lock_drop(&lord->log.lock);
    mli_self.log_calls = *before;
}
MLI_PRIVATE MLI_COLD void mli_log_calls_left(memlord *lord, uintptr_t here) {
    MLI_REQUIRE(mli_none_held());
    static const mli_log_calls none = {0, 0, {0, 0}};
    mli_log_calls *mine = &mli_self.log_calls;
    if (mine->generation == lord->generation && !mli_frame_runs(&mine->frame, here))
        mli_log_calls_end(lord, &none);
}

MLI_PRIVATE MLI_COLD void mli_log(memlord *lord, int level, const char *text) {
    MLI_REQUIRE(mli_none_held());
    mli_log_calls before; /* of the logger that makes this call */
    memlord_logger logger;
    uint32_t turn;
    if (!mli_log_hears(lord, level)) return;
    mli_log_calls_left(lord, MLI_STACK_ADDRESS());
    before = mli_self.log_calls;
    if (before.generation != lord->generation) {
        memset(&mli_self.log_calls, 0, sizeof before);
        mli_self.log_calls.generation = lord->generation;
        mli_self.log_calls.frame = MLI_STACK_ADDRESS();
    }
    mli_lock_take(&lord->log.lock);
    logger = lord->log.logger;
    turn = lord->log.turn;
    lord->log.inside[turn]++;
    mli_lock_drop(&lord->log.lock);
    mli_self.log_calls.inside[turn]++;
    if (logger.fn) logger.fn(logger.user, level, text);
    mli_log_calls_end(lord, &before);
}

MLI_PRIVATE MLI_COLD void mli_log_end(memlord *lord, int level, mli_out *o) {
    (void)mli_out_end(o, 1);
    mli_log(lord, level, o->buf);
}

MLI_PRIVATE MLI_COLD MLI_PRINTF_LIKE(3) void mli_logf(memlord *lord, int level, const char *form,
                                     ...) {
    char line[256];
    mli_out o;
    va_list args;
    mli_out_buffer(&o, line, sizeof line);
    va_start(args, form);
    mli_put_format(&o, 0, form, &args);
    va_end(args);
    mli_log_end(lord, level, &o);
}

MLI_PRIVATE MLI_COLD void mli_drop_warn(memlord *lord, mli_u32 *said, const char *text) {
    if (mli_self.generation == lord->generation && !mli_u32_exchange(said, 1))
        mli_log(lord, MEMLORD_LOG_WARNING, text);
}

MLI_PRIVATE MLI_COLD void mli_put_amount(mli_out *o, uint64_t bytes, uint64_t blocks) {
    mli_putf(o, blocks == 1 ? "%jo in %ju block" : "%jo in %ju blocks", bytes, blocks);
}

/* -- public -- */

MLI_API void memlord_log_stderr(void *user, int level, const char *text) {
    char line[1024];
    mli_out o;
    (void)user;
    if (level > MEMLORD_LOG_WARNING || !text) return;
    mli_out_buffer(&o, line, sizeof line - 1); /* a cut line keeps its end */
    mli_put_str(&o, "memlord: ");
    mli_put_str(&o, text);
    o.cap = sizeof line;
    mli_put_str(&o, "\n");
    mli_stderr_write(line, o.used);
}

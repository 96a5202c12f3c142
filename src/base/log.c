#include "base/log.h"
#include "os/system.h"
#include "base/ledger.h"

struct mli_log_state {
    mli_u32 level;      /* the highest level that the logger receives; 0: there is no logger */
    mli_lock lock;      /* guards all members below but `setting` */
    memlord_logger logger;
    uint32_t turn;      /* 0 or 1; it flips when the logger is replaced */
    uint32_t inside[2]; /* its calls in progress, by the turn in which they began */
    mli_u32 setting;    /* 1: a thread is in memlord_logger_set */
};

/* The logger of MEMLORD_DEBUG: one system call writes a line, whose start chooses its colour. */
static MLI_COLD void mli_log_coloured(void *user, int level, const char *text) {
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
    mli_out_buffer(&o, line, sizeof line - 8); /* leaves room for the last escape and the newline */
    mli_put_str(&o, colours[i][1]);
    mli_put_str(&o, text);
    o.cap = sizeof line;
    mli_put_str(&o, "\033[0m\n");
    mli_stderr_write(line, o.used);
}

MLI_PRIVATE MLI_COLD int mli_log_hears(const memlord *lord, int level) {
    return level <= (int)mli_u32_load(&lord->log->level);
}

/* Returns how many calls of this ledger's logger the thread is in that began in a turn. */
static MLI_COLD uint32_t mli_logger_calls_mine(const memlord *lord, uint32_t turn) {
    const mli_logger_call *call = mli_self.logger_call;
    uint32_t n = 0;
    for (; call; call = call->outer)
        n += call->generation == lord->generation && call->turn == turn;
    return n;
}
MLI_PRIVATE MLI_COLD int mli_log_runs(const memlord *lord) {
    return mli_logger_calls_mine(lord, 0) || mli_logger_calls_mine(lord, 1);
}

MLI_PRIVATE MLI_COLD void mli_log(memlord *lord, int level, const char *text) {
    MLI_REQUIRE(mli_none_held());
    mli_logger_call call;
    memlord_logger logger;
    if (!mli_log_hears(lord, level)) return;
    call.outer = mli_self.logger_call;
    call.generation = lord->generation;
    mli_lock_take(&lord->log->lock);
    logger = lord->log->logger;
    call.turn = lord->log->turn;
    lord->log->inside[call.turn]++;
    mli_lock_drop(&lord->log->lock);
    mli_self.logger_call = &call;
    if (logger.fn) logger.fn(logger.user, level, text);
    mli_self.logger_call = call.outer;
    mli_lock_take(&lord->log->lock);
    lord->log->inside[call.turn]--;
    mli_lock_drop(&lord->log->lock);
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

/* -- life -- */

/* Sets the logger. MEMLORD_DEBUG has its own in place of memlord_log_stderr and NULL. */
static MLI_COLD void mli_logger_use(memlord *lord, const memlord_logger *logger) {
    MLI_REQUIRE(mli_rank_held(MLI_RANK_LOG) || !lord->back);
    lord->log->logger = *logger;
    if (lord->debug && (!logger->fn || logger->fn == memlord_log_stderr))
        lord->log->logger.fn = mli_log_coloured;
    mli_u32_store(&lord->log->level, !lord->log->logger.fn ? 0
                                    : lord->debug        ? MEMLORD_LOG_TRACE
                                                         : MEMLORD_LOG_INFO);
}
static MLI_COLD void mli_log_init(memlord *lord, const memlord_desc *desc) {
    mli_lock_rank(&lord->log->lock, MLI_RANK_LOG);
    mli_logger_use(lord, &desc->logger);
}
static MLI_COLD void mli_log_lock(memlord *lord, int take) {
    mli_lock_set(&lord->log->lock, take);
}
/* In a forked child, keeps only the logger calls that this thread is in. */
static MLI_COLD void mli_log_forked(memlord *lord) {
    uint32_t turn;
    for (turn = 0; turn < 2; turn++) lord->log->inside[turn] = mli_logger_calls_mine(lord, turn);
    mli_u32_store(&lord->log->setting, 0);
}
MLI_PRIVATE const mli_life mli_log_life = {MLI_LIFE_STATE(log), mli_log_init, NULL, NULL,
                                           mli_log_lock, mli_log_forked, NULL};

/* -- public -- */

MLI_API void memlord_log_stderr(void *user, int level, const char *text) {
    char line[1024];
    mli_out o;
    (void)user;
    if (level > MEMLORD_LOG_WARNING || !text) return;
    mli_out_buffer(&o, line, sizeof line - 1); /* leaves room for a newline */
    mli_put_str(&o, "memlord: ");
    mli_put_str(&o, text);
    o.cap = sizeof line;
    mli_put_str(&o, "\n");
    mli_stderr_write(line, o.used);
}

MLI_API memlord_result memlord_logger_set(memlord *lord, const memlord_logger *logger) {
    const memlord_logger none = {NULL, NULL};
    const mli_logger_call *call = mli_self.logger_call;
    uint32_t turn;
    unsigned spins = 0;
    if (!lord) return MEMLORD_OK;
    for (; call; call = call->outer)
        if (call->generation != lord->generation) return MEMLORD_E_STATE;
    /* Another thread may be in this function, and may wait until this thread has left the old
       logger. So if this thread is in the old logger, it does not wait for the other thread. */
    while (mli_u32_exchange(&lord->log->setting, 1)) {
        if (mli_self.logger_call) return MEMLORD_E_STATE;
        mli_spin_wait(&spins);
    }
    mli_lock_take(&lord->log->lock);
    mli_logger_use(lord, logger ? logger : &none);
    turn = lord->log->turn;
    lord->log->turn = !turn;
    /* Calls that begin from here on are counted in inside[!turn], so inside[turn] only falls. */
    while (lord->log->inside[turn] != mli_logger_calls_mine(lord, turn)) {
        mli_lock_drop(&lord->log->lock);
        mli_spin_wait(&spins);
        mli_lock_take(&lord->log->lock);
    }
    mli_lock_drop(&lord->log->lock);
    mli_u32_store_release(&lord->log->setting, 0); /* pairs with the exchange of the next call */
    return MEMLORD_OK;
}

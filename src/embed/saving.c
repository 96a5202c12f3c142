#include "embed/saving.h"
#include "os/compiler.h"
#include "os/system.h"
#include "os/knobs.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/text.h"
#include "base/log.h"
#include "base/memory.h"
#include "books/threads.h"
#include "books/counters.h"
#include "books/names.h"
#include "services/room.h"
#include "services/snapshots.h"
#include "reports/callers.h"
#include "reports/capture.h"
#include "reports/leaks.h"
#include "reports/formats.h"

struct mli_saving_state {
    mli_u32 exit_format;    /* a memlord_format plus 1; 0 means no report at exit */
    mli_ptr exit_directory; /* const char *: a kept string; NULL means output_dir */
    mli_ptr export_path;    /* const char *: a kept string; NULL if there was no export */
    mli_u32 export_failed;  /* 1: the last export failed, and the failure was logged */
    const char *output_dir; /* a kept string; NULL means the current directory */
};

/* Gives a report the list of the ledger's snapshots, which are not freed before the report ends. If
   snapshots are taken at an interval, and the format shows snapshots (TEXT, JSON, HTML, TRACE and
   TIMELINE do), adds one of this moment. The added snapshot belongs to the report and not to the
   ledger's list, so that frequent reports evict no snapshot from the list. */
static MLI_COLD void mli_report_snapshots(memlord *lord, mli_report *r, memlord_format format) {
    r->snapshots = mli_snapshots_pin(lord, &r->reader, r->snapshot);
    if (format > MEMLORD_FORMAT_TRACE && format != MEMLORD_FORMAT_TIMELINE) return;
    if (!mli_recorder_is_on(lord, MLI_RECORDER_SNAPSHOTS)) return;
    r->present = mli_snapshot_new(lord, NULL, 1);
    if (r->present)
        r->snapshot[r->snapshots++] = r->present;
    else
        mli_loss_add(lord, MLI_LOST_snapshots);
}

/* Writes a report. Returns MEMLORD_E_IO if fn failed, else the result of the capture. */
static MLI_COLD memlord_result mli_report_write(memlord *lord, memlord_format format,
                                                memlord_write_fn fn, void *user) {
    mli_report *r;
    memlord_result result;
    r = (mli_report *)mli_own_alloc(lord, sizeof *r);
    if (!r) return MEMLORD_E_NOMEM;
    mli_report_snapshots(lord, r, format);
    r->out.fn = fn;
    r->out.user = user;
    r->out.buf = r->buf;
    r->out.cap = sizeof r->buf;
    r->o = &r->out;
    r->exports = mli_ptr_load(&lord->saving->export_path) != NULL;
    r->whole = mli_format_whole(format);
    mli_report_capture(lord, r);
    if (r->whole) mli_callers_begin(r);
    mli_format_write(r, format);
    mli_flush(r->o);
    result = r->out.failed ? MEMLORD_E_IO : r->result;
    mli_snapshots_unpin(lord, &r->reader);
    mli_snapshot_list_free(lord, r->present);
    mli_callers_end(r);
    mli_report_free(r);
    mli_own_free(lord, r, sizeof *r);
    return result;
}

MLI_API memlord_result memlord_write(memlord *lord, memlord_format format,
                                     memlord_write_fn fn, void *user) {
    if (!lord) return MEMLORD_OK;
    if (!fn) return MEMLORD_E_INVALID;
    if (!mli_format_known(format)) return MEMLORD_E_UNSUPPORTED;
    mli_capacities_refresh(lord, 0);
    return mli_report_write(lord, format, fn, user);
}

/* -- files -- */

static const char mli_format_suffixes[][sizeof "allocated.folded"] = {
#define MLI_X(name, suffix, text) suffix,
    MLI_FORMATS(MLI_X)
#undef MLI_X
};

#define MLI_SAVE_PATH_MAX 4000

/* The path of a report, and the path of a temporary file in the same directory, which is renamed to
   the report. Both are allocated, because the stacks of some hosts have only 16 KiB. */
typedef struct mli_save_paths {
    char target[MLI_SAVE_PATH_MAX], beside[MLI_SAVE_PATH_MAX + 64];
} mli_save_paths;

#define MLI_ERROR_SPECIAL UINT32_MAX /* an error of MemLord itself: the target is no regular file */
typedef struct mli_saved_file {
    mli_file file;
    uint32_t error; /* the first error of the system while the file was written, or 0 */
} mli_saved_file;

/* Keeps the system's error of the first step that has failed. Returns `failed`. */
static MLI_COLD int mli_saved_step(mli_saved_file *f, int failed) {
    if (failed && !f->error) f->error = mli_system_error();
    return failed;
}
/* Logs such as "[save] no /tmp/x.json: could not read or write there: there is no space left". */
static MLI_COLD void mli_save_failed(memlord *lord, const char *head, const char *path,
                                     memlord_result r, uint32_t error) {
    const char *why = error == MLI_ERROR_SPECIAL ? "it is no regular file"
                                                 : mli_system_error_text(error);
    char line[512];
    mli_out o;
    mli_out_buffer(&o, line, sizeof line);
    mli_putf(&o, "%s%s: %s", head, path, memlord_result_text(r));
    if (why)
        mli_putf(&o, ": %s", why);
    else if (error)
        mli_putf(&o, ": error %ju of the system", (uint64_t)error);
    mli_log_end(lord, MEMLORD_LOG_ERROR, &o);
}

/* Sets p->target to `path`, with the process id for %p, and % for %%. Returns -1 if too long. */
static int mli_save_path_expand(const char *path, mli_save_paths *p) {
    mli_out o;
    mli_out_buffer(&o, p->target, sizeof p->target);
    for (; *path; path++) {
        int escape = *path == '%' && (path[1] == 'p' || path[1] == '%');
        path += escape;
        if (escape && *path == 'p')
            mli_put_u64(&o, mli_pid());
        else
            mli_put(&o, path, 1);
    }
    return mli_out_end(&o, sizeof p->target) < sizeof p->target ? 0 : -1;
}

static MLI_COLD int mli_write_file(void *user, const void *data, size_t size) {
    mli_saved_file *f = (mli_saved_file *)user;
    return mli_saved_step(f, mli_file_write(f->file, (const char *)data, size));
}

/* Creates p->beside, a new file .memlord-pid-n.tmp in the target's directory, so that a rename can
   replace the target. Returns 0, or another value if no file was created. */
static int mli_file_temp_create(mli_save_paths *p, mli_file *file) {
    size_t n, directory = strlen(p->target);
    int r = 1;
    while (directory && !strchr(MLI_WINDOWS ? "/\\" : "/", p->target[directory - 1]))
        directory--;
    for (n = 0; r > 0 && n < 1000; n++) {
        mli_out o;
        mli_out_buffer(&o, p->beside, sizeof p->beside);
        mli_put(&o, p->target, directory);
        mli_putf(&o, ".memlord-%ju-%ju.tmp", mli_pid(), (uint64_t)n);
        (void)mli_out_end(&o, sizeof p->beside);
        r = mli_file_create(p->beside, file);
    }
    return r;
}

/* Writes a report to p->beside, a new file beside p->target, removed if the report fails. */
static MLI_COLD memlord_result mli_file_write_report(memlord *lord, memlord_format format,
                                                     mli_save_paths *p, mli_saved_file *f) {
    mli_signals held = mli_signals_block();
    memlord_result r = MEMLORD_E_IO;
    if (!mli_saved_step(f, mli_file_temp_create(p, &f->file))) {
        r = mli_report_write(lord, format, mli_write_file, f);
        if (mli_saved_step(f, mli_file_close(f->file)) && r == MEMLORD_OK) r = MEMLORD_E_IO;
        if (r != MEMLORD_OK) mli_file_remove(p->beside);
    }
    mli_signals_restore(&held);
    return r;
}
/* Ends the saving of a file. If `failed` is 1, the renaming to p->target has failed, and the
   function removes the temporary file. */
static memlord_result mli_file_renamed(const mli_save_paths *p, mli_saved_file *f, int failed) {
    if (!mli_saved_step(f, failed)) return MEMLORD_OK;
    mli_file_remove(p->beside);
    return MEMLORD_E_IO;
}

/* Writes a report to standard output, without stdio, whose lock another thread may hold. */
static MLI_COLD memlord_result mli_save_stdout(memlord *lord, memlord_format format,
                                               mli_saved_file *f) {
    mli_signals held;
    memlord_result r;
    f->file = mli_file_stdout();
    if ((format == MEMLORD_FORMAT_PPROF || format == MEMLORD_FORMAT_MEMORY_VIZ) &&
        mli_file_is_terminal(f->file)) {
        mli_logf(lord, MEMLORD_LOG_ERROR,
                 "[save] .%s is binary: redirect standard output from the terminal, or name a file",
                 mli_format_suffixes[format]);
        return MEMLORD_E_UNSUPPORTED;
    }
    held = mli_signals_block();
    r = mli_report_write(lord, format, mli_write_file, f);
    mli_signals_restore(&held);
    return r;
}

static MLI_COLD memlord_result mli_save_refuse(memlord *lord, memlord_result r, const char *why) {
    mli_logf(lord, MEMLORD_LOG_ERROR, "[save] %s", why);
    return r;
}

/* Saves a report. *error gets the system's error that made the saving fail, or 0. */
static MLI_COLD memlord_result mli_save(memlord *lord, memlord_format format, const char *path,
                                        uint32_t *error) {
    mli_save_paths *p;
    mli_saved_file f;
    memlord_result r = MEMLORD_E_INVALID;
    memset(&f, 0, sizeof f);
    *error = 0;
    if (!path || !*path) return mli_save_refuse(lord, r, "path is NULL or empty");
    if (!mli_format_known(format))
        return mli_save_refuse(lord, MEMLORD_E_UNSUPPORTED, "format is none of those there are");
    mli_capacities_refresh(lord, 0);
    if (!strcmp(path, "-")) {
        r = mli_save_stdout(lord, format, &f);
        *error = f.error;
        return r;
    }
    p = (mli_save_paths *)mli_own_alloc(lord, sizeof *p);
    if (!p) return MEMLORD_E_NOMEM;
    if (mli_save_path_expand(path, p)) {
        (void)mli_save_refuse(lord, r, "path is too long");
    } else if (mli_file_is_special(p->target)) {
        r = MEMLORD_E_IO;
        f.error = MLI_ERROR_SPECIAL;
    } else {
        r = mli_file_write_report(lord, format, p, &f);
        if (r == MEMLORD_OK) r = mli_file_renamed(p, &f, mli_file_rename(p->beside, p->target, 1));
    }
    mli_own_free(lord, p, sizeof *p);
    *error = f.error;
    return r;
}
MLI_API memlord_result memlord_save(memlord *lord, memlord_format format, const char *path) {
    uint32_t error;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    r = mli_save(lord, format, path, &error);
    if (r == MEMLORD_E_IO) mli_save_failed(lord, "[save] no ", path, r, error);
    return r;
}

/* -- saving at exit and on request, under a dated name -- */

/* Sets p->target to a path such as directory/memory_profile_20261121_080500.json, with the process
   id if n > 0, and n if n > 1, for the case that there is such a file. Returns -1 if too long. */
static int mli_dated_path(const char *directory, uint64_t wall, memlord_format format,
                          unsigned n, mli_save_paths *p) {
    mli_out o;
    mli_out_buffer(&o, p->target, sizeof p->target);
    mli_put_str(&o, directory);
    mli_put_str(&o, "/memory_profile_");
    mli_put_time(&o, wall, 1);
    if (n) mli_putf(&o, "_%ju", mli_pid());
    if (n > 1) mli_putf(&o, "_%ju", (uint64_t)n);
    mli_put_str(&o, ".");
    mli_put_str(&o, mli_format_suffixes[format]);
    return mli_out_end(&o, sizeof p->target) < sizeof p->target ? 0 : -1;
}

static memlord_result mli_dated_save(memlord *lord, memlord_format format,
                                     const char *directory, mli_save_paths *p,
                                     mli_saved_file *f) {
    uint64_t wall = mli_wall_now();
    unsigned n;
    int there = 1;
    memlord_result r;
    if (mli_dated_path(directory, wall, format, 0, p)) return MEMLORD_E_INVALID;
    r = mli_file_write_report(lord, format, p, f);
    for (n = 0; r == MEMLORD_OK && there > 0 && n < 1000; n++)
        there = mli_dated_path(directory, wall, format, n, p)
                    ? -1
                    : mli_file_rename(p->beside, p->target, 0);
    return r == MEMLORD_OK ? mli_file_renamed(p, f, there) : r;
}

/* Saves a dated report and logs the result. The directory is that of memlord_save_at_exit, else
   output_dir, else ".". `end` is 1 if the ledger or the process ends. In that case the function
   saves only if the host asked for a report at exit, or if a request for a report was not served
   yet. It saves only once, because the exchange of exit_format lets one caller save. */
static MLI_COLD void mli_save_dated(memlord *lord, int end) {
    uint32_t format = end ? mli_u32_exchange(&lord->saving->exit_format, 0)
                          : mli_u32_load(&lord->saving->exit_format);
    const char *directory = (const char *)mli_ptr_load_acquire(&lord->saving->exit_directory);
    int asked = end && mli_alert_set(lord, MLI_ALERT_SAVE, 0);
    mli_save_paths *p;
    mli_saved_file f;
    memlord_result r = MEMLORD_E_NOMEM;
    memset(&f, 0, sizeof f);
    if (end && !format && !asked) return;
    mli_capacities_refresh(lord, 1); /* the host may be inside its allocator, or about to end */
    if (!directory) directory = lord->saving->output_dir ? lord->saving->output_dir : ".";
    p = (mli_save_paths *)mli_own_alloc(lord, sizeof *p);
    if (p)
        r = mli_dated_save(lord, format ? (memlord_format)(format - 1) : MEMLORD_FORMAT_JSON,
                           directory, p, &f);
    if (r)
        mli_save_failed(lord, "[save] no report in ", directory, r, f.error);
    else
        mli_logf(lord, MEMLORD_LOG_INFO, "[save] %s", p->target);
    mli_own_free(lord, p, sizeof *p);
}

static const mli_saver mli_dated_saver = {mli_save_dated};

/* Saves every ledger that wants a report at exit. Chooses a ledger under the registry lock, drops
   the lock, saves that ledger, and starts over, because the list may have changed. */
static MLI_COLD void mli_at_exit(void) {
    memlord *lord;
    do {
        mli_lock_take(&mli_process.registry_lock);
        MLI_LEDGERS_EACH(lord)
            if (mli_u32_load(&lord->saving->exit_format) ||
                mli_alert_on(lord, MLI_ALERT_SAVE))
                break;
        mli_process.saving = lord; /* memlord_destroy elsewhere waits until this is NULL */
        mli_lock_drop(&mli_process.registry_lock);
        if (lord) mli_save_dated(lord, 1);
    } while (lord);
}
static MLI_COLD memlord_result mli_at_exit_once(void) {
    int bad = 0;
    const uint64_t generation = mli_busy_begin(); /* atexit may call a malloc that records */
    if (!mli_u32_exchange(&mli_process.at_exit, 1))
        bad = atexit(mli_at_exit);
    mli_busy_end(generation);
    if (bad) mli_u32_store(&mli_process.at_exit, 0);
    return bad ? MEMLORD_E_NOMEM : MEMLORD_OK;
}

/* -- the export: PROMETHEUS at an interval -- */

#define MLI_EXPORT_MS_DEFAULT 15000 /* the scrape interval in Prometheus's own prometheus.yml */

/* Saves the export. Logs only the first of several failures in a row. */
static MLI_COLD void mli_export_save(memlord *lord, int end) {
    const char *path = (const char *)mli_ptr_load_acquire(&lord->saving->export_path);
    uint32_t error;
    memlord_result r = mli_save(lord, MEMLORD_FORMAT_PROMETHEUS, path, &error);
    const uint32_t before = mli_u32_exchange(&lord->saving->export_failed, r != MEMLORD_OK);
    (void)end;
    if (!r) return;
    mli_loss_add(lord, MLI_LOST_exports);
    if (!before) mli_save_failed(lord, "[export] no ", path, r, error);
}
static const mli_saver mli_export_saver = {mli_export_save};

/* -- life -- */

static MLI_COLD memlord_result mli_saving_open(memlord *lord, const memlord_desc *desc) {
    return mli_name(lord, desc->output_dir, &lord->saving->output_dir);
}
MLI_PRIVATE const mli_life mli_saving_life = {MLI_LIFE_STATE(saving), NULL, mli_saving_open, NULL,
                                              NULL, NULL, NULL};

/* -- public -- */

MLI_API memlord_format memlord_format_for(const char *path) {
    size_t n = path ? strlen(path) : 0, best = 0;
    int i, found = MEMLORD_FORMAT_TEXT;
    for (i = 0; i < MEMLORD_FORMAT_COUNT; i++) { /* the longest decides: .trace.json is not .json */
        const char *suffix = mli_format_suffixes[i];
        size_t length = strlen(suffix);
        if (length <= best || n <= length || path[n - length - 1] != '.') continue;
        if (strcmp(path + n - length, suffix)) continue;
        best = length;
        found = i;
    }
    return (memlord_format)found;
}

MLI_API memlord_result memlord_save_at_exit(memlord *lord, memlord_format format,
                                            const char *directory) {
    const char *kept;
    uint32_t error;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!mli_format_known(format)) return MEMLORD_E_UNSUPPORTED;
    if (directory && strlen(directory) > MLI_SAVE_PATH_MAX - 100) return MEMLORD_E_INVALID;
    if (!directory || !*directory) directory = lord->saving->output_dir;
    error = mli_directory_error(directory ? directory : ".");
    if (error)
        mli_save_failed(lord, "[save] no report in ", directory ? directory : ".", MEMLORD_E_IO,
                        error);
    r = error ? MEMLORD_E_IO : mli_name(lord, directory, &kept);
    if (r == MEMLORD_OK) r = mli_at_exit_once();
    if (r) return r;
    mli_saver_set(lord, &mli_dated_saver);
    mli_ptr_store_release(&lord->saving->exit_directory, (void *)(uintptr_t)kept);
    (void)mli_u32_exchange(&lord->saving->exit_format, (uint32_t)format + 1);
    return MEMLORD_OK;
}
/* Sets the path before it saves the first export, because what an export contains depends on
   whether a path is set: see mli_prom_labels. */
MLI_API memlord_result memlord_export_start(memlord *lord, const char *path,
                                            uint32_t interval_ms) {
    const char *kept, *before;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!path || !*path || !strcmp(path, "-") || strlen(path) >= MLI_SAVE_PATH_MAX ||
        (interval_ms && interval_ms < MLI_RECORDER_MS_MIN))
        return MEMLORD_E_INVALID;
    if (!mli_format_known(MEMLORD_FORMAT_PROMETHEUS)) return MEMLORD_E_UNSUPPORTED;
    r = mli_name_limited(lord, path, &kept);
    if (r) return r;
    before = (const char *)mli_ptr_exchange(&lord->saving->export_path, (void *)(uintptr_t)kept);
    r = memlord_save(lord, MEMLORD_FORMAT_PROMETHEUS, kept);
    if (r) {
        mli_ptr_store_release(&lord->saving->export_path, (void *)(uintptr_t)before);
        return r;
    }
    mli_recorder_start(lord, MLI_RECORDER_EXPORT, &mli_export_saver,
                       interval_ms ? interval_ms : MLI_EXPORT_MS_DEFAULT);
    return MEMLORD_OK;
}
MLI_API memlord_result memlord_export_stop(memlord *lord) {
    if (!lord) return MEMLORD_OK;
    if (mli_self.is_helper || mli_self.in_host_alloc) return MEMLORD_E_STATE;
    mli_recorder_stop(lord, MLI_RECORDER_EXPORT);
    return MEMLORD_OK;
}
MLI_API void memlord_request_save(memlord *lord) {
    if (!lord) return;
    mli_saver_set(lord, &mli_dated_saver);
    mli_alert_set(lord, MLI_ALERT_SAVE, 1); /* takes no lock, so it is safe in a signal handler */
}

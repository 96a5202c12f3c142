/* -- reports -- */

/* name, suffix of its files, what it is */
#define MLI_FORMATS(X)                                                                        \
    X(TEXT, "txt", "a table for people; the first 25 lines tell most of it")                  \
    X(JSON, "json", "for programs: everything; schema memlord/2")                             \
    X(HTML, "html", "a page for people, of one file, that needs no network")                  \
    X(TRACE, "trace.json", "a timeline, for ui.perfetto.dev and chrome://tracing")            \
    X(PROMETHEUS, "prom", "metrics, for a server to scrape or a textfile collector")          \
    X(PPROF, "pb", "live and allocated bytes by stack or site, for go tool pprof")            \
    X(HEAPTRACK, "heaptrack", "calls, peak and what is live by site, for heaptrack_print")    \
    X(FOLDED, "folded", "live bytes by device, tag, scope and stack, for flamegraph.pl")      \
    X(MEMORY_VIZ, "pickle", "a snapshot as PyTorch's, for pytorch.org/memory_viz")            \
    X(CSV, "csv", "every live block, and its parts, for a spreadsheet or a script")           \
    X(FOLDED_PEAK, "peak.folded", "as FOLDED: what each stack held at its device's peak")     \
    X(FOLDED_ALLOCATED, "allocated.folded", "as FOLDED: what each stack has allocated")

typedef enum memlord_format {
#define MLI_X(name, suffix, text) MEMLORD_FORMAT_##name,
    MLI_FORMATS(MLI_X)
#undef MLI_X
    MEMLORD_FORMAT_COUNT
} memlord_format;

/* Returns the format that the suffix of a file's name stands for ("x.html", "y.trace.json"); TEXT
   if it stands for none. */
MEMLORD_API memlord_format memlord_format_for(const char *path)
    MLI_OFF(MEMLORD_FORMAT_TEXT)

typedef int (*memlord_write_fn)(void *user, const void *data, size_t size); /* 0: written */

/* Writes a report through fn, in pieces of up to a few KiB.
   Errors: E_IO fn returned non-zero; E_UNSUPPORTED no such format, or not in this build: see
           >>knobs; E_INVALID fn NULL; E_NOMEM.
   The statistics of devices and tags are captured at one moment, and no other call waits. Other
   lists are read while they are written: they may have what was recorded since. Cost: walks blocks
   and sites. */
MEMLORD_API memlord_result memlord_write(memlord *lord, memlord_format format,
                                         memlord_write_fn fn, void *user)
    MLI_OFF(MEMLORD_OK)

/* Writes a report to a file: the whole file or none. It writes a temporary file beside it, and
   renames that; it does not wait for the disk. %p in the path is the process id, %% a percent sign.
   An existing regular file is replaced; a symbolic link, FIFO, device or directory is refused. The
   path "-" is descriptor 1, written with write(2): what stdio still buffers comes later, and
   SIGPIPE is held back.
   Errors: E_INVALID the path, logged; E_IO, also descriptor 1 closed, or not all written, or on
           Windows while another thread or program has the file open;
           E_UNSUPPORTED, also a binary format to a terminal, logged; E_NOMEM. */
MEMLORD_API memlord_result memlord_save(memlord *lord, memlord_format format,
                                        const char *path) MLI_OFF(MEMLORD_OK)

/* Sets the labels of the ledger, like "host=a1,model=x", in place of those it had. NULL takes them
   off. TEXT, JSON and HTML reports show them, and every sample of PROMETHEUS has them. PROMETHEUS
   leaves out a label that is no name=value with a name of letters, digits and _, one with the name
   of an earlier label or of one of MemLord's own (device, tag, scope, site, from, to, version), and
   what is beyond 1000 bytes.
   Errors: E_NOMEM, also from more than MEMLORD_MAX_STRINGS bytes of names.
   Owns:   the text is copied. */
MEMLORD_API memlord_result memlord_labels_set(memlord *lord, const char *labels)
    MLI_OFF(MEMLORD_OK)

/* Saves a report when the ledger is destroyed or the process exits, whichever is first, as
   memory_profile_YYYYMMDD_HHMMSS and the format's suffix (UTC), in `directory` (NULL: the
   ledger's output_dir, else the current one). Replaces no file: where there is one of that name,
   the process id and a number follow the time. The last call counts. A forked child that exits
   writes a report of its own.
   Errors: E_INVALID the path is too long; E_UNSUPPORTED; E_NOMEM. */
MEMLORD_API memlord_result memlord_save_at_exit(memlord *lord, memlord_format format,
                                                const char *directory) MLI_OFF(MEMLORD_OK)

/* Starts an export: keeps a file fresh for the textfile collector of Prometheus's node_exporter.
   Saves PROMETHEUS to `path` now, every interval_ms (0: 15000, as often as Prometheus's own
   configuration scrapes; at least 10) on a thread of its own, and a last time at the stop or in
   memlord_destroy. The path is as for memlord_save, with %p; the collector reads names that end in
   .prom. Without threads memlord_gc_poll saves what is due. The ledger's clock decides, as for
   snapshots. A later start replaces the earlier one. Failures count in dropped_exports; of several
   in a row the first is logged.
   Every sample has the labels of the ledger: memlord_labels_set. A ledger without labels has the
   label pid. The files of one directory need labels that differ: node_exporter refuses a series
   that another file has, too.
   The file stays, and node_exporter goes on to show it: remove the file once it is scraped, and let
   queries take fresh samples only. memlord_written_timestamp_seconds is the time of its samples.
   The end of the process saves nothing: stop first.
   A forked child does not export. It may start its own export, with a path and labels of its own.
   Errors: E_INVALID the path, "-", or an interval of 1 to 9; E_IO it cannot be written now;
           E_NOMEM; E_UNSUPPORTED in a build with MEMLORD_NO_REPORTS. */
MEMLORD_API memlord_result memlord_export_start(memlord *lord, const char *path,
                                                uint32_t interval_ms) MLI_OFF(MEMLORD_OK)
/* Stops the export: saves a last time and joins the thread.
   Errors: E_STATE on a thread of MemLord's own. */
MEMLORD_API memlord_result memlord_export_stop(memlord *lord) MLI_OFF(MEMLORD_OK)

/* Asks for a dated report now, like that of memlord_save_at_exit. Async-signal-safe: a handler of
   SIGUSR1 may call this function. The report is JSON, or what memlord_save_at_exit has set. It is
   one report, however many calls asked before it was written. What comes first writes it:
   - the next call that begins, ends, moves or resizes a block or an arena, describes, retags, adds
     or removes a part, marks, resets, charges, reserves, sets a plan or a pool, begins or ends a
     scope, takes a checkpoint, polls or retires; not one that retains, or releases a view. With
     MEMLORD_FLAG_DEFER only memlord_gc_poll, memlord_retire and memlord_alloc_retry;
   - a poller, within its interval, or the thread that takes snapshots or exports, within a second;
   - memlord_destroy, or the exit of the process if memlord_save_at_exit was called for a ledger. */
MEMLORD_API void memlord_request_save(memlord *lord) MLI_OFF_VOID

/* -- interposers: a preloaded library that keeps books of its own --
   A library that LD_PRELOAD loads, such as src/tools/preload.c, may export a memlord_interposer
   under the name "memlord_interposer". Then each tag and scope that begins or ends in a ledger of
   the program does so there, too, on the same thread: they cover every malloc. The two books stay
   apart. A swap of contexts ends there what is open in the context that the thread leaves, and
   begins what is open in the one that it enters. So a scope is an invocation there for each time
   that its context runs. Default tags and adopted scopes stay in the program's ledger. A tag or a
   scope that is open when its ledger is destroyed stays open there. The first ledger of the process
   looks for the interposer, on Linux; without LD_PRELOAD in the environment, and in static
   programs, there is none. An interposer of another size or version, or with a NULL function, is
   ignored. */
typedef struct memlord_interposer {
    uint32_t size;    /* sizeof(memlord_interposer) where the library was compiled */
    uint32_t version; /* 1 */
    memlord *lord;    /* the library's own ledger, whose tags and scopes do not come back to it */
    void (*tag_begin)(const char *tag);
    void (*tag_end)(void); /* ends the innermost tag */
    void (*scope_begin)(const char *name);
    void (*scope_end)(void); /* ends the innermost scope */
} memlord_interposer;

/* -- hooks: a host whose allocator is a table of function pointers -- */

/* The functions of the host's allocator; NULL: it has no such function. free_fn frees what any of
   them returned. */
typedef struct memlord_hooks {
    void *(*malloc_fn)(size_t size);
    void *(*calloc_fn)(size_t n, size_t size);
    void *(*realloc_fn)(void *ptr, size_t size);
    void *(*aligned_fn)(size_t alignment, size_t size);
    void (*free_fn)(void *ptr);
} memlord_hooks;

enum {
    MEMLORD_HOOK_MALLOC = 1,
    MEMLORD_HOOK_CALLOC = 2,
    MEMLORD_HOOK_REALLOC = 4,
    MEMLORD_HOOK_ALIGNED = 8,
    MEMLORD_HOOK_ALL = 15
};

/* Puts functions of MemLord in place of the host's: they call the host's, and record on the cpu. A
   block's site is the caller of its function: if a wrapper of the host's calls the table, all its
   blocks have the wrapper as their site. `which` selects the functions whose blocks are recorded,
   as in MEMLORD_HOOK_MALLOC | MEMLORD_HOOK_CALLOC. free and realloc always end a block
   that is recorded. If the allocator gets its functions by a call, as sqlite3_config, pass it the
   functions of the table after the install, and again after the uninstall. MemLord's functions call
   those of their own host as long as MemLord is loaded. So each different set of five functions
   takes one of four places for good; after an uninstall the same set takes its place again. Four
   tables may be hooked at once, each with a ledger and a `which` of its own. Two hooked tables with
   the same functions take two places. To share a ledger and a place, copy a table that is hooked.
   An install of a table that is hooked changes its ledger and `which`. After the ledger's end the
   functions record nothing.
   Requires: no thread is in the functions of the table.
   Errors: E_INVALID no table, malloc_fn or free_fn, or an unknown bit in `which`; E_STATE the table
           is not hooked but has functions of MemLord, no place is left, or the table was changed
           since it was hooked. The ledger's logger gets the cause.
   Owns:   the table is yours, and stays where it is until the uninstall. */
MEMLORD_API memlord_result memlord_hooks_install(memlord *lord, memlord_hooks *table,
                                                 uint32_t which) MLI_OFF(MEMLORD_OK)

/* Puts the host's own pointers back, exactly, whatever other tables are hooked. Blocks that are
   live stay on the books. MemLord's functions may still be called through copies: they call the
   host's, and record nothing until a table with the same functions is hooked in that place again.
   Requires: as memlord_hooks_install.
   Errors: E_STATE the table is not hooked, or has neither MemLord's functions nor the host's
           own. */
MEMLORD_API memlord_result memlord_hooks_uninstall(memlord_hooks *table) MLI_OFF(MEMLORD_OK)

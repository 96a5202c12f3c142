/* -- reports --
   A report is what a ledger knows, written in one of the formats below. PROMETHEUS and the other
   names in capitals are these formats. */

/* Each line has a format: its name, the suffix of its files, and what it is. */
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
    X(FOLDED_ALLOCATED, "allocated.folded", "as FOLDED: what each stack has allocated")       \
    X(TIMELINE, "timeline.csv", "live bytes by device and tag over time, for a spreadsheet")

typedef enum memlord_format {
#define MLI_X(name, suffix, text) MEMLORD_FORMAT_##name,
    MLI_FORMATS(MLI_X)
#undef MLI_X
    MEMLORD_FORMAT_COUNT
} memlord_format;

/* Returns the format that the suffix of a file's name stands for ("x.html", "y.trace.json"), or
   TEXT if it stands for none. */
MEMLORD_API memlord_format memlord_format_for(const char *path)
    MLI_OFF(MEMLORD_FORMAT_TEXT)

typedef int (*memlord_write_fn)(void *user, const void *data, size_t size); /* not 0: failed */

/* Writes a report through fn, in pieces of up to a few KiB. The statistics of devices and tags are
   captured at one moment, and no other call waits for that. The report reads each other list from
   the ledger when it comes to that list, so the list may have what was recorded since.
   Errors: E_IO if fn returned non-zero; E_UNSUPPORTED if there is no such format, or not in this
           build (see >>knobs); E_INVALID if fn is NULL; E_NOMEM.
   Cost:   walks blocks and sites. */
MEMLORD_API memlord_result memlord_write(memlord *lord, memlord_format format,
                                         memlord_write_fn fn, void *user)
    MLI_OFF(MEMLORD_OK)

/* Writes a report to a file: the whole file or none. It writes a temporary file beside the file,
   renames it, and does not wait for the disk. %p in the path is the process id, %% a percent sign.
   An existing regular file is replaced. A symbolic link, FIFO, device or directory is refused. The
   path "-" is descriptor 1. The report goes there by write(2), so what stdio still buffers comes
   later. A pipe without a reader gives E_IO, and raises no SIGPIPE.
   Errors: E_INVALID if the path is NULL, empty or too long; E_IO if the file cannot be written
           whole, also if descriptor 1 is closed, or on Windows if another thread or program has the
           file open; E_UNSUPPORTED as memlord_write, and if the format is binary and descriptor 1
           is a terminal; E_NOMEM. All of these but E_NOMEM are logged. */
MEMLORD_API memlord_result memlord_save(memlord *lord, memlord_format format,
                                        const char *path) MLI_OFF(MEMLORD_OK)

/* Sets the labels of the ledger, such as "host=a1,model=x", in place of those it had. NULL removes
   them. The text is copied, and each different text is kept until memlord_destroy. TEXT, JSON and
   HTML reports show the labels, and every sample of PROMETHEUS has them. PROMETHEUS leaves out a
   label that is not name=value. The name must have only letters, digits and _, and begin with
   neither a digit nor __. PROMETHEUS also leaves out a label with the name of an earlier label or of
   one of MemLord's own labels (device, tag, scope, rest, site, from, to, version), and a label that
   would make the labels longer than 1000 bytes.
   Errors: E_NOMEM, also if the ledger would keep more than MEMLORD_MAX_STRINGS bytes of strings. */
MEMLORD_API memlord_result memlord_labels_set(memlord *lord, const char *labels)
    MLI_OFF(MEMLORD_OK)

/* Saves a report when the ledger is destroyed or the process exits, whichever is first. The file is
   memory_profile_YYYYMMDD_HHMMSS (UTC) and the format's suffix, in `directory`. NULL is the
   ledger's output_dir, or else the current directory. The report replaces no file: if there is a
   file of that name, the process id and a number follow the time. If this function is called
   several times, the last call counts. A forked child that exits writes a report of its own.
   Errors: E_INVALID if the path is too long; E_IO, with a line in the log, if the directory is not
           there or this process may not write in it; E_UNSUPPORTED as memlord_write; E_NOMEM. */
MEMLORD_API memlord_result memlord_save_at_exit(memlord *lord, memlord_format format,
                                                const char *directory) MLI_OFF(MEMLORD_OK)

/* Starts an export: keeps a file fresh for the textfile collector of Prometheus's node_exporter. It
   saves PROMETHEUS to `path` now, every interval_ms on a thread of its own, and a last time at the
   stop or in memlord_destroy. The interval is at least 10; 0 is 15000, as often as Prometheus's own
   configuration scrapes. The path is as for memlord_save, with %p. The collector reads names that
   end in .prom. Without threads memlord_gc_poll saves what is due. The ledger's clock measures the
   interval, as for snapshots. A later start replaces the earlier one. Failed exports count in
   dropped_exports. If several fail in a row, the first failure is logged.
   Every sample has the labels of the ledger: memlord_labels_set. A ledger without labels has the
   label pid. The files of one directory need labels that differ, because node_exporter refuses a
   series that another file has, too.
   The file stays, and node_exporter goes on to show it. Remove the file once it is scraped, and let
   queries take fresh samples only: memlord_written_timestamp_seconds is the time of the samples in
   the file. The end of the process saves nothing, so call memlord_export_stop first. A forked child
   does not export. It may start its own export, with a path and labels of its own.
   Errors: E_INVALID for a bad path, for "-", or for an interval of 1 to 9; E_IO if the file cannot
           be written now; E_NOMEM; E_UNSUPPORTED in a build with MEMLORD_NO_REPORTS. */
MEMLORD_API memlord_result memlord_export_start(memlord *lord, const char *path,
                                                uint32_t interval_ms) MLI_OFF(MEMLORD_OK)
/* Stops the export: saves a last time and joins the thread.
   Errors: E_STATE on a thread of MemLord's own. */
MEMLORD_API memlord_result memlord_export_stop(memlord *lord) MLI_OFF(MEMLORD_OK)

/* Asks for a dated report now, like that of memlord_save_at_exit. It is async-signal-safe, so a
   handler of SIGUSR1 may call it. The report is JSON, or has the format of memlord_save_at_exit if
   that was called. Several requests before the report is written give one report. The first of
   these events writes it:
   - the next call that begins, ends, moves, resizes, describes or retags a block, changes an arena,
     adds or removes a part, begins a mark (memlord_mark), resets the ledger, charges an account,
     reserves, plans the bytes of a tag, sets a pool, begins or ends a scope, drops a context, takes
     a checkpoint, counts a failed alloc, polls or retires. A call that retains a block, or releases
     a view, writes no report. With MEMLORD_FLAG_DEFER only memlord_gc_poll, memlord_retire and
     memlord_alloc_retry write it;
   - a poller, within its interval, or the thread that takes snapshots or exports, within a second;
   - memlord_destroy, or the exit of the process if memlord_save_at_exit was called for a ledger. */
MEMLORD_API void memlord_request_save(memlord *lord) MLI_OFF_VOID

/* -- interposers: a preloaded library with a ledger of its own --
   A library that LD_PRELOAD loads, such as src/tools/preload.c, may export a memlord_interposer
   under the name "memlord_interposer". Then each tag and scope that begins or ends in a ledger of
   the program also begins or ends in the library's ledger, on the same thread. So the tags and
   scopes apply to every malloc. The two ledgers stay apart.
   When a thread leaves a context, the open tags and scopes of the context end in the library's
   ledger. When a thread enters a context, they begin there. So the library's ledger counts one
   invocation of a scope each time that the context of the scope runs. An end applies to the
   innermost tag or scope of the library's ledger, whichever ledger of the program began that. So if
   a program swaps the contexts of its fibres in two ledgers, it should open tags and scopes in only
   one of the two. Default tags and adopted scopes stay in the program's ledger. A tag or a scope
   that is open when its ledger is destroyed stays open in the library's.
   The first ledger of the process looks for the interposer, on Linux. Without LD_PRELOAD in the
   environment, and in static programs, it finds none. An interposer of another size or version, or
   with a NULL function, is ignored. */
typedef struct memlord_interposer {
    uint32_t size;    /* sizeof(memlord_interposer) when the library was compiled */
    uint32_t version; /* always 1 */
    memlord *lord;    /* the library's own ledger; tags and scopes that begin in it are not passed
                         on */
    void (*tag_begin)(const char *tag);
    void (*tag_end)(void); /* ends the innermost tag */
    void (*scope_begin)(const char *name);
    void (*scope_end)(void); /* ends the innermost scope */
} memlord_interposer;

/* -- hooks: a host whose allocator is a table of function pointers -- */

/* The functions of the host's allocator. A function is NULL if the allocator does not have it.
   free_fn frees what any of them returned. */
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

/* Puts functions of MemLord in place of those in the host's table. They call the host's functions,
   and record on the cpu. A block's site is the code that called MemLord's function. If that code
   is a wrapper in the host, all blocks from the wrapper have the same site. `which` selects the
   functions whose blocks are recorded, such as MEMLORD_HOOK_MALLOC | MEMLORD_HOOK_CALLOC. free and
   realloc always end a block that is recorded. If an allocator gets its functions by a call, such
   as sqlite3_config, pass it the functions of the table after the install, and again after the
   uninstall.
   A slot keeps the host's five functions. MemLord's functions call those in their slot as long as
   MemLord is loaded. So each set of five host functions takes one of four slots for good. After an
   uninstall the same set takes the same slot again. Four tables may be hooked at once, each with a
   ledger and a `which` of its own. Two hooked tables with the same functions take two slots. To
   share a ledger and a slot, copy a table that is hooked. Another install of a hooked table changes
   the ledger and the `which` of the table. After the ledger has ended, MemLord's functions
   record nothing.
   Requires: no thread is in the functions of the table.
   Errors: E_INVALID if there is no table, malloc_fn or free_fn, or `which` has an unknown bit;
           E_STATE if the table is not hooked but has functions of MemLord, no slot is left, or the
           table was changed since it was hooked. The ledger's logger gets the cause.
   Owns:   the table is yours, and stays where it is until the uninstall. */
MEMLORD_API memlord_result memlord_hooks_install(memlord *lord, memlord_hooks *table,
                                                 uint32_t which) MLI_OFF(MEMLORD_OK)

/* Puts the host's own pointers back, exactly, whatever other tables are hooked. Live blocks stay in
   the ledger. MemLord's functions may still be called through copies of the table. They then call
   the host's functions. They record nothing until a table with the same host functions takes the
   slot again (see memlord_hooks_install).
   Requires: as memlord_hooks_install.
   Errors: E_STATE if the table is not hooked, or has neither MemLord's functions nor the host's
           own. */
MEMLORD_API memlord_result memlord_hooks_uninstall(memlord_hooks *table) MLI_OFF(MEMLORD_OK)

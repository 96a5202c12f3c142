/* What the loader and the headers of a module say of it, and what is made of headers that make no
   sense. This suite has the implementation in it, to hand it modules that no loader would load, and
   to see what no call shows: the alerts that a forked child has, and the way that a call took. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#if defined(MEMLORD_CHECK_LOCKS)
#define MEMLORD_ASSERT(expression) ((expression) ? (void)0 : abort())
#endif
#define MEMLORD_STATIC
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"

#include "support.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- notes -- */

/* A note: its name and what it has are followed by zeros up to the alignment. */
static size_t put_note(unsigned char *to, uint32_t name_size, uint32_t size, uint32_t type,
                       const char *name, size_t align) {
    const uint32_t head[3] = {name_size, size, type};
    const size_t behind_name = 12 + ((name_size + align - 1) & ~(align - 1));
    size_t i;
    memcpy(to, head, sizeof head);
    memcpy(to + 12, name, strlen(name) + 1);
    for (i = 0; i < size; i++) to[behind_name + i] = (unsigned char)(i + 1);
    return behind_name + ((size + align - 1) & ~(align - 1));
}

/* One note, or a note of another kind and then this one. */
static void the_build_id_is_the_note_of_gnu_of_type_3(void **state) {
    static const struct {
        const char *name;
        uint32_t name_size, size, type;
        size_t align, id; /* bytes of the id; 0: it is none */
    } cases[] = {
        {"GNU", 4, 20, 3, 4, 20}, {"GNU", 4, 16, 3, 8, 16}, {"GNU", 4, 40, 3, 4, 32},
        {"GNU", 4, 32, 3, 4, 32}, {"GNU", 4, 3, 3, 4, 3},   {"GNU", 4, 20, 1, 4, 0},
        {"GNU", 5, 20, 3, 4, 0},  {"XNU", 4, 20, 3, 4, 0},  {"", 0, 20, 3, 4, 0},
    };
    unsigned char notes[256];
    size_t i, first;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++)
        for (first = 0; first < 2; first++) {
            size_t before, size, id_size = 77;
            const void *id;
            memset(notes, 0, sizeof notes);
            before = first ? put_note(notes, 4, 5, 1, "GNU", cases[i].align) : 0;
            size = before + put_note(notes + before, cases[i].name_size, cases[i].size,
                                     cases[i].type, cases[i].name, cases[i].align);
            id = mli_notes_id((const char *)notes, size, cases[i].align, &id_size);
            if (!cases[i].id) {
                assert_null(id);
                assert_int_equal(id_size, 77);
                continue;
            }
            assert_ptr_equal(id, notes + before + (cases[i].align == 8 ? 20 : 16));
            assert_int_equal(id_size, cases[i].id);
        }
}

/* Sizes that reach beyond the end; each note but the last case would be a build id. */
static void notes_that_are_cut_have_no_build_id(void **state) {
    static const struct {
        uint32_t name_size, size, type;
        size_t all; /* bytes that there are */
    } cases[] = {
        {4, 20, 3, 0},           {4, 20, 3, 11},          {4, 20, 3, 12},          {4, 20, 3, 15},
        {4, 20, 3, 35},          {4, 21, 3, 36},          {4, UINT32_MAX, 3, 36},  {UINT32_MAX, 20, 3, 36},
        {UINT32_MAX - 2, 20, 3, 36}, {25, 0, 3, 36},      {4, 18, 1, 34},
    };
    unsigned char notes[256];
    size_t i, id_size = 77;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t head[3] = {cases[i].name_size, cases[i].size, cases[i].type};
        memset(notes, 0, sizeof notes);
        memcpy(notes, head, sizeof head);
        memcpy(notes + 12, "GNU", 4);
        if (mli_notes_id((const char *)notes, cases[i].all, 4, &id_size)) fail_msg("case %zu", i);
        assert_int_equal(id_size, 77);
    }
}

/* -- segments -- */

/* A module of two segments, from 0x1000 and from 0x3000, with a note in the second, and one that is
   not in memory. */
static struct image {
    unsigned char bytes[0x4000];
    ElfW(Phdr) headers[5];
    mli_dl_phdrs module;
} image;
static ElfW(Phdr) * header(int i, uint32_t type, uint64_t at, uint64_t size) {
    ElfW(Phdr) *p = &image.headers[i];
    memset(p, 0, sizeof *p);
    p->p_type = type;
    p->p_vaddr = (ElfW(Addr))at;
    p->p_memsz = (ElfW(Addr))size;
    p->p_offset = (ElfW(Off))(at - 0x800);
    p->p_align = 4;
    return p;
}
static void make_image(void) {
    memset(&image, 0, sizeof image);
    (void)header(0, PT_NOTE, 0x3f00, 0x200);
    (void)header(1, PT_NOTE, 0x3010, put_note(image.bytes + 0x3010, 4, 20, 3, "GNU", 4));
    (void)header(2, PT_DYNAMIC, 0x1000, 0x2000);
    (void)header(3, PT_LOAD, 0x1000, 0x1001);
    (void)header(4, PT_LOAD, 0x3000, 0x1000);
    image.module.bias = (ElfW(Addr))(uintptr_t)image.bytes;
    image.module.name = "made.so";
    image.module.at = image.headers;
    image.module.count = 5;
}

static void an_address_is_in_the_segment_that_has_it_in_memory(void **state) {
    static const struct {
        uint64_t at, size;
        int header; /* 0: none */
    } cases[] = {
        {0, 1, 0},          {0xfff, 1, 0},         {0x1000, 1, 3},      {0x1000, 0x1001, 3},
        {0x1000, 0x1002, 0}, {0x2000, 1, 3},       {0x2000, 2, 0},      {0x2001, 1, 0},
        {0x2fff, 1, 0},     {0x3000, 0x1000, 4},   {0x3fff, 1, 4},      {0x4000, 1, 0},
        {UINT64_MAX, 1, 0}, {0x3000, UINT64_MAX, 0},
    };
    size_t i;
    (void)state;
    make_image();
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ElfW(Phdr) *found = mli_segment_of(&image.module, cases[i].at, cases[i].size);
        if (found != (cases[i].header ? &image.headers[cases[i].header] : NULL))
            fail_msg("case %zu", i);
    }
}

static void a_module_is_found_by_an_address_in_it(void **state) {
    mli_image found;
    mli_image_search search = {NULL, &found, 0, 0, 0};
    (void)state;
    make_image();
    memset(&found, 0, sizeof found);
    search.address = image.bytes + 0x2001; /* between the segments */
    assert_int_equal(mli_image_visit(&image.module, sizeof image.module, &search), 0);
    assert_int_equal(search.modules, 1);
    assert_null(found.path);
    search.address = image.bytes + 0x3456;
    assert_int_equal(mli_image_visit(&image.module, sizeof image.module, &search), 1);
    assert_string_equal(found.path, "made.so");
    assert_string_equal(found.loaded, "made.so");
    assert_ptr_equal(found.start, image.bytes + 0x1000);
    assert_int_equal(found.bias, (uintptr_t)image.bytes);
    assert_int_equal(found.segment.start, 0x3000);
    assert_int_equal(found.segment.end, 0x4000);
    assert_int_equal(found.segment.offset, 0x2000);
    assert_ptr_equal(found.id, image.bytes + 0x3010 + 16); /* the first note is not in memory */
    assert_int_equal(found.id_size, 20);
    assert_int_equal(search.program, 0);
}

static void a_module_without_notes_in_memory_has_no_build_id(void **state) {
    mli_image found;
    mli_image_search search = {image.bytes + 0x1000, &found, 1, 0, 0};
    (void)state;
    make_image();
    image.headers[1].p_type = PT_NULL;
    memset(&found, 0, sizeof found);
    found.start = image.bytes; /* as the loader said */
    assert_int_equal(mli_image_visit(&image.module, sizeof image.module, &search), 1);
    assert_null(found.id);
    assert_int_equal(found.id_size, 0);
    assert_ptr_equal(found.start, image.bytes);
    assert_int_equal(found.segment.start, 0x1000);
    assert_int_equal(found.segment.end, 0x2001);
    assert_int_equal(found.segment.offset, 0);
    assert_int_equal(found.stays, 0); /* modules of dlopen are closed */
}

/* -- symbols -- */

/* A table with the given buckets and chain, in which symbols before `first` are not hashed. */
static void the_last_symbol_is_the_last_of_the_last_chain(void **state) {
    enum { BLOOM = sizeof(ElfW(Addr)) / 4 };
    static const struct {
        uint32_t first, buckets[2], chain[3];
        size_t words; /* of the chain that are in memory */
        uint64_t count;
    } cases[] = {
        {1, {1, 0}, {1}, 3, 2},       {5, {5, 6}, {1, 1}, 3, 7},    {2, {2, 0}, {8, 6, 5}, 3, 5},
        {2, {3, 2}, {1, 6, 5}, 3, 5}, {2, {0, 0}, {1}, 3, 0},       {1, {1, 0}, {2, 4, 6}, 3, 0},
        {1, {1, 0}, {2, 3}, 1, 0},    {1, {1, 3}, {1, 1, 1}, 2, 0}, {1, {1, 0}, {1}, 1, 2}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t table[4 + BLOOM + 2 + 3] = {2, cases[i].first, 1};
        memcpy(table + 4 + BLOOM, cases[i].buckets, sizeof cases[i].buckets);
        memcpy(table + 4 + BLOOM + 2, cases[i].chain, sizeof cases[i].chain);
        assert_int_equal(
            mli_gnu_hash_count(table, (char *)(table + 4 + BLOOM + 2 + cases[i].words)),
            cases[i].count);
    }
}

/* In the module: its dynamic section, with addresses to which some loaders add the bias, and
   symbols. Only two name an address: the others have no size, are not defined, are of a thread, and
   have no name. */
static void put_symbols(uint64_t bias, int change, uint64_t to) {
    static const char names[] = "\0outer\0inner\0none";
    const uint32_t hash[2] = {1, 7};
    ElfW(Dyn) dynamic[] = {{DT_HASH, {0x1100}},
                           {DT_SYMTAB, {0x1200}},
                           {DT_STRTAB, {0x1400}},
                           {DT_STRSZ, {sizeof names}},
                           {DT_NULL, {0}}};
    ElfW(Sym) symbols[7];
    int i;
    memset(symbols, 0, sizeof symbols);
    for (i = 1; i < 7; i++) {
        symbols[i].st_name = i < 3 ? (i == 1 ? 1 : 7) : i < 6 ? 13 : sizeof names;
        symbols[i].st_value = i == 1 ? 0x3100 : 0x3110;
        symbols[i].st_size = i == 1 ? 0x40 : i == 3 ? 0 : 0x10;
        symbols[i].st_shndx = i == 4 ? SHN_UNDEF : 1;
        symbols[i].st_info = i == 5 ? STT_TLS : STT_FUNC;
    }
    for (i = 0; i < 3; i++) dynamic[i].d_un.d_val += bias;
    if (change >= 0) dynamic[change].d_un.d_val = to;
    image.headers[2].p_memsz = sizeof dynamic;
    memcpy(image.bytes + 0x1000, dynamic, sizeof dynamic);
    memcpy(image.bytes + 0x1100, hash, sizeof hash);
    memcpy(image.bytes + 0x1200, symbols, sizeof symbols);
    memcpy(image.bytes + 0x1400, names, sizeof names);
}
static void the_innermost_symbol_names_an_address(void **state) {
    static const struct {
        uint64_t at;
        const char *name;
    } cases[] = {{0x1000, NULL},    {0x30ff, NULL},    {0x3100, "outer"}, {0x310f, "outer"},
                 {0x3110, "inner"}, {0x311f, "inner"}, {0x3120, "outer"}, {0x313f, "outer"},
                 {0x3140, NULL},    {0x3fff, NULL},    {0x4000, NULL}};
    enum { CASES = sizeof cases / sizeof *cases };
    mli_symbol_query q[CASES];
    mli_symbol_queries all = {q, CASES};
    int with_bias, i;
    (void)state;
    for (with_bias = 0; with_bias < 2; with_bias++) {
        make_image();
        put_symbols(with_bias ? image.module.bias : 0, -1, 0);
        memset(q, 0, sizeof q);
        for (i = 0; i < CASES; i++) q[i].address = image.bytes + cases[i].at;
        assert_int_equal(mli_symbols_visit(&image.module, sizeof image.module, &all), 0);
        for (i = 0; i < CASES; i++)
            if (!q[i].name != !cases[i].name || (q[i].name && strcmp(q[i].name, cases[i].name)))
                fail_msg("0x%x is in %s", (unsigned)cases[i].at, q[i].name ? q[i].name : "nothing");
    }
}
static void a_module_whose_symbols_are_damaged_names_nothing(void **state) {
    static const struct {
        int entry;
        uint64_t value;
    } cases[] = {{0, 0},      {0, 0x2800}, {1, 0},      {1, 0x1fc0}, {2, 0},
                 {2, 0x1ff0}, {3, 0},      {3, 0x1000}, {3, 5}};
    mli_symbol_query q;
    mli_symbol_queries all = {&q, 1};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_image();
        put_symbols(0, cases[i].entry, cases[i].value);
        memset(&q, 0, sizeof q);
        q.address = image.bytes + 0x3118;
        (void)mli_symbols_visit(&image.module, sizeof image.module, &all);
        if (q.name) fail_msg("case %zu: %s", i, q.name);
    }
}

/* -- what the kernel does not say -- */

#if !TEST_SANITIZED /* they ask before they are ready */
static unsigned long hidden[2]; /* what the kernel tells nothing of */
static int secure, refuse_links;
unsigned long getauxval(unsigned long type) {
    static unsigned long (*real)(unsigned long);
    void *found;
    if (type && (type == hidden[0] || type == hidden[1])) return 0;
    if (type == AT_SECURE && secure) return 1;
    if (!real) {
        found = dlsym(RTLD_NEXT, "getauxval");
        memcpy(&real, &found, sizeof real);
    }
    return real(type);
}
ssize_t readlink(const char *path, char *to, size_t size) {
    if (refuse_links) {
        errno = EACCES;
        return -1;
    }
    return (ssize_t)syscall(SYS_readlinkat, AT_FDCWD, path, to, size);
}

/* Without /proc the program has the name that it was started by. */
static void without_proc_the_program_has_the_name_it_was_started_by(void **state) {
    char executable[MLI_PATH_MAX];
    mli_image with, without, nothing;
    mli_image_search search = {&image, &with, 0, 0, 0};
    const char *started = (const char *)getauxval(AT_EXECFN);
    (void)state;
    memset(&with, 0, sizeof with);
    assert_int_equal(mli_dl_each(mli_image_visit, &search), 1);
    assert_int_equal(search.program, 1);
    mli_image_at(&image, &with, executable);
    assert_ptr_equal(with.path, executable);
    assert_string_equal(strrchr(executable, '/'), strrchr(started, '/'));
    refuse_links = 1;
    errno = 1234;
    mli_image_at(&image, &without, executable);
    hidden[0] = AT_EXECFN;
    mli_image_at(&image, &nothing, executable);
    hidden[0] = 0;
    refuse_links = 0;
    assert_int_equal(errno, 1234);
    assert_ptr_equal(without.path, started);
    assert_ptr_equal(without.start, with.start);
    assert_string_equal(nothing.path, "");
    assert_ptr_equal(nothing.start, with.start);
}

/* As in `ld.so ./program`, and as in a static program: the headers of the program tell. */
static void without_a_loader_known_to_the_kernel_a_module_is_found_by_its_headers(void **state) {
    char executable[MLI_PATH_MAX];
    mli_image usual, run, fixed;
    mli_loaded loaded;
    const void *usual_start = mli_module_of(&image), *run_start, *fixed_start;
    int run_finds, fixed_finds;
    (void)state;
    mli_image_at(&image, &usual, executable);
    hidden[0] = AT_BASE;
    mli_image_at(&image, &run, executable);
    run_start = mli_module_of(&image);
    run_finds = mli_loaded_at(&image, &loaded);
    hidden[1] = AT_PHNUM;
    mli_image_at(&image, &fixed, executable);
    fixed_start = mli_module_of(&image);
    fixed_finds = mli_loaded_at(&image, &loaded);
    hidden[0] = hidden[1] = 0;
    assert_ptr_equal(run.start, usual.start);
    assert_int_equal(run.bias, usual.bias);
    assert_ptr_equal(run_start, usual_start);
    assert_int_equal(run.segment.end, usual.segment.end);
    assert_int_equal(fixed.bias, usual.bias);
    assert_int_equal(fixed.segment.end, usual.segment.end);
    assert_int_equal(fixed.stays, 1);
#if defined(__GLIBC__)
    if (mli_dl_find_object) {
        assert_int_equal(run_finds, 1);
        assert_null(fixed_start);
    }
#else
    (void)run_finds, (void)fixed_start;
#endif
    assert_int_equal(fixed_finds, -1);
}

/* A program with more rights than who runs it takes no wishes from the environment. */
static void a_secure_program_reads_no_environment(void **state) {
    char value[16] = "unchanged";
    (void)state;
    assert_int_equal(setenv("MEMLORD_DEBUG", "2", 1), 0);
    secure = 1;
    assert_int_equal(mli_env_read("MEMLORD_DEBUG", value, sizeof value), 0);
    secure = 0;
    assert_string_equal(value, "unchanged");
    assert_int_equal(mli_env_read("MEMLORD_DEBUG", value, 1), -1);
    assert_int_equal(mli_env_read("MEMLORD_DEBUG", value, 2), 1);
    assert_string_equal(value, "2");
    assert_int_equal(setenv("MEMLORD_DEBUG", "", 1), 0);
    assert_int_equal(mli_env_read("MEMLORD_DEBUG", value, 2), 0);
    assert_int_equal(unsetenv("MEMLORD_DEBUG"), 0);
    assert_int_equal(mli_env_read("MEMLORD_DEBUG", value, 2), 0);
}
#endif

/* -- alerts -- */

static int no_memory(void *user, uint64_t bytes, uint64_t *storage) {
    (void)user, (void)bytes, (void)storage;
    return 1;
}
static void *request(void *user) {
    const memlord_retry policy = {1, 60000, 60000, 1, NULL, NULL};
    uint64_t storage;
    const memlord_result r = memlord_alloc_retry((memlord *)user, cuda(0), 1000, no_memory, NULL,
                                                 &policy, &storage, NULL);
    return r == MEMLORD_E_OOM ? user : NULL;
}
/* The thread that waits is not there in the child, and the end of each call would look for it. */
static void a_child_has_no_alert_of_a_thread_that_waits(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    void *ended = NULL;
    int status = -1, spins = 0;
    pid_t child;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1000, NULL));
    assert_int_equal(pthread_create(&thread, NULL, request, lord), 0);
    while (!mli_alert_on(lord, MLI_ALERT_WAITER) && spins++ < 20000) usleep(500);
    assert_true(mli_alert_on(lord, MLI_ALERT_WAITER));
    child = fork();
    if (!child) _exit(mli_alert_on(lord, MLI_ALERT_WAITER) != 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(mli_alert_on(lord, MLI_ALERT_WAITER));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(pthread_join(thread, &ended), 0);
    assert_ptr_equal(ended, lord);
}

static void *alloc_on_cuda(void *lord) {
    assert_ok(memlord_alloc((memlord *)lord, cuda(0), 0x2000, 10, NULL));
    return NULL;
}
/* A thread that comes asks this one to publish. This one does so in a call on another device, and
   the check that then becomes due waits for no call on the first device: until it has run, all
   calls look for it. */
static void a_check_that_a_publication_requests_runs_at_the_end_of_the_call(void **state) {
    memlord *lord = test_lord(state);
    mli_watch *watch;
    pthread_t thread;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 50000, NULL));
    assert_int_equal(pthread_create(&thread, NULL, alloc_on_cuda, lord), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    watch = &mli_device_record_at(lord, mli_dev_known(lord, cuda(0)))->watch;
    assert_int_equal(mli_u32_load(&watch->check_requested), 0);
    mli_u64_store(&watch->check_above, (uint64_t)INT64_MIN);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 8, NULL));
    assert_int_equal(mli_u64_load(&watch->check_above) >> 63, 0); /* the check has set it again */
    assert_int_equal(mli_u32_load(&watch->check_requested), 0);
}

/* The general path notes the site of the call. The first handle makes the table of the shard and
   the cell of the device. */
static void a_handle_does_not_take_the_general_path(void **state) {
    static const memlord_site here = {"tests/test_modules.c", "a handle", 1};
    memlord *lord = test_lord(state);
    uint64_t key;
    assert_ok(memlord_alloc(lord, cuda(0), 5000, 100, &here));
    assert_ptr_equal(mli_self.thread->call.site, &here);
    mli_self.thread->call.site = NULL;
    for (key = 5001; key < 5004; key++) assert_ok(memlord_alloc(lord, cuda(0), key, 100, &here));
    assert_ok(memlord_free(lord, cuda(0), 5001, &here));
    assert_ok(memlord_release(lord, cuda(0), 5002, &here));
    assert_null(mli_self.thread->call.site);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 200);
    assert_ok(memlord_verify(lord));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_build_id_is_the_note_of_gnu_of_type_3),
        cmocka_unit_test(notes_that_are_cut_have_no_build_id),
        cmocka_unit_test(an_address_is_in_the_segment_that_has_it_in_memory),
        cmocka_unit_test(a_module_is_found_by_an_address_in_it),
        cmocka_unit_test(a_module_without_notes_in_memory_has_no_build_id),
        cmocka_unit_test(the_last_symbol_is_the_last_of_the_last_chain),
        cmocka_unit_test(the_innermost_symbol_names_an_address),
        cmocka_unit_test(a_module_whose_symbols_are_damaged_names_nothing),
        TEST(a_child_has_no_alert_of_a_thread_that_waits),
        TEST(a_check_that_a_publication_requests_runs_at_the_end_of_the_call),
        TEST(a_handle_does_not_take_the_general_path),
#if !TEST_SANITIZED
        cmocka_unit_test(without_proc_the_program_has_the_name_it_was_started_by),
        cmocka_unit_test(without_a_loader_known_to_the_kernel_a_module_is_found_by_its_headers),
        cmocka_unit_test(a_secure_program_reads_no_environment),
#endif
    };
    return cmocka_run_group_tests_name("modules", tests, NULL, NULL);
}

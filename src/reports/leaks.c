#include "reports/leaks.h"
#include "base/memory.h"
#include "books/counters.h"
#include "books/names.h"
#include "books/sites.h"
#include "books/tags.h"
#include "books/listing.h"
#include "services/stats.h"

/* The arrays `seen` and `of` store the number of a listed site in one byte. */
typedef char mli_check_leaks_shown[MLI_LEAKS_SHOWN <= 255 ? 1 : -1];
#define MLI_LEAKS_TRIED 32 /* the most groups that mli_leak_add looks at */

MLI_PRIVATE MLI_COLD int mli_leaks_begin(memlord *lord, mli_leak_table *leaks, uint64_t blocks) {
    for (leaks->room = 64; MLI_LEAKS > leaks->room && leaks->room / 2 < blocks;) leaks->room *= 2;
    leaks->at = (mli_leak_group *)mli_own_alloc(lord, leaks->room * sizeof *leaks->at);
    if (!leaks->at) leaks->room = 0;
    return leaks->at != NULL;
}
MLI_PRIVATE MLI_COLD void mli_leaks_free(memlord *lord, mli_leak_table *leaks) {
    mli_own_free(lord, leaks->at, leaks->room * sizeof *leaks->at);
}
MLI_PRIVATE MLI_COLD void mli_leak_add(memlord *lord, mli_leak_table *leaks, uint64_t rows,
                                       uint32_t dev, uint64_t bytes) {
    uint64_t scope = mli_scope_of(lord, rows);
    uint64_t key = (rows & MLI_ROWS_MASK) | (uint64_t)dev << 40 | scope << 48;
    uint64_t at = (key * 0x9e3779b97f4a7c15u) >> 52; /* depends on every bit of the key */
    mli_leak_group *leak = NULL, *tried;
    size_t i;
    leaks->bytes += bytes;
    leaks->blocks++;
    if (!leaks->at) {
        leaks->lost = 1;
        return;
    }
    for (i = 0; i < MLI_LEAKS_TRIED; i++) {
        int mine;
        tried = &leaks->at[(at * leaks->room / MLI_LEAKS + i) % leaks->room];
        mine = !tried->blocks || tried->key == key;
        if (!leak || mine || tried->bytes < leak->bytes) leak = tried;
        if (mine) break;
    }
    if (leak->blocks && leak->key != key) {
        leaks->lost = 1;
        if (leak->bytes >= bytes) return;
        leak->bytes = leak->blocks = 0;
    }
    leak->key = key;
    leak->of.word1 = (uint64_t)dev << 49;
    leak->of.word2 = rows;
    leak->blocks++;
    leak->bytes += bytes;
}
MLI_PRIVATE MLI_COLD void mli_leaks_sort(mli_leak_table *leaks, size_t most) {
    size_t i;
    leaks->groups = leaks->count = 0;
    for (i = 0; i < leaks->room; i++) {
        mli_leak_group leak = leaks->at[i];
        if (!leak.blocks) continue;
        leaks->groups++;
        leaks->count = mli_top_insert(leaks->at, leaks->count, most, &leak, sizeof leak,
                                      offsetof(mli_leak_group, bytes));
    }
}
MLI_PRIVATE memlord_block_info mli_leak_info(memlord *lord, const mli_leak_group *leak) {
    memlord_block_info info;
    mli_block_copy_out(lord, &leak->of, &info);
    info.site = mli_site_display_of(lord, info.site);
    return info;
}
MLI_PRIVATE MLI_COLD void mli_put_leak(mli_out *o, memlord *lord, const mli_leak_group *leak,
                                       int site) {
    const memlord_block_info of = mli_leak_info(lord, leak);
    mli_put_device(o, of.device);
    if (of.tag) mli_putf(o, " [%s]", of.tag);
    if (of.scope) mli_putf(o, " in %s", of.scope);
    if (site) mli_putf(o, "  %p", (const void *)of.site);
}

/* -- by site -- */

MLI_PRIVATE MLI_COLD int mli_leak_sites_begin(mli_leak_sites *s, memlord *lord, uint32_t devices,
                                              uint32_t tags, uint32_t scopes) {
    size_t sums;
    s->lord = lord;
    s->rows = mli_row_count(lord, MLI_BOOK_SITE) - 1;
    s->tags = tags;
    s->scopes = scopes;
    s->devices = devices;
    sums = (size_t)s->rows + tags + 2;
    s->size = sums * sizeof *s->sum + (size_t)tags + scopes + devices + 3;
    s->sum = (mli_leak_sum *)mli_own_alloc(lord, s->size);
    if (s->sum) s->seen = (unsigned char *)(s->sum + sums);
    return s->sum != NULL;
}
MLI_PRIVATE MLI_COLD void mli_leak_sites_free(mli_leak_sites *s) {
    if (s->sum) mli_own_free(s->lord, s->sum, s->size);
}
MLI_PRIVATE MLI_COLD void mli_leak_sites_add(mli_leak_sites *s, uint64_t rows, uint64_t bytes) {
    const uint32_t site = MLI_SITE_ROW(rows), tag = MLI_TAG_ROW(rows);
    mli_leak_sum *sum;
    if (!s->sum || site > s->rows || tag > s->tags) return;
    sum = &s->sum[site ? site : s->rows + 1 + tag];
    sum->bytes += bytes;
    sum->blocks++;
}

/* Returns the row of a site or a tag on the first device that has it, or 0 if no device has it. */
static MLI_COLD uint32_t mli_leak_first_row(const mli_leak_sites *s, const void *subject) {
    uint32_t dev, row = 0;
    for (dev = 1; dev <= s->devices && !row && subject; dev++)
        row = (uint32_t)mli_index_get(s->lord, mli_index_key(subject, dev));
    return row;
}
/* Adds the sums of a site on all devices to the site's sum on the first device that has the site.
   Sets the site's sums on the other devices to 0. If `book` is MLI_BOOK_TAG, does the same for the
   tags of blocks without a site. s->sum[first] is the sum of row 0. */
static MLI_COLD void mli_leak_sums_join(mli_leak_sites *s, int book, size_t first, uint32_t rows) {
    uint32_t row;
    for (row = 1; row <= rows; row++) {
        mli_leak_sum *from = &s->sum[first + row], *to;
        const uint32_t home =
            from->blocks ? mli_leak_first_row(s, mli_row_at(s->lord, book, row)->subject) : 0;
        if (!home || home == row || home > rows) continue; /* leaves out a row that is new */
        to = &s->sum[first + home];
        to->bytes += from->bytes;
        to->blocks += from->blocks;
        from->bytes = from->blocks = 0;
    }
}
/* Lists the largest sites, or tags of blocks without a site. */
static MLI_COLD void mli_leak_lines_add(mli_leak_sites *s, int book) {
    const int is_site = book == MLI_BOOK_SITE;
    const uint32_t rows = is_site ? s->rows : s->tags;
    const size_t first = is_site ? 0 : (size_t)s->rows + 1;
    uint32_t row;
    mli_leak_sums_join(s, book, first, rows);
    for (row = is_site ? 1 : 0; row <= rows; row++) {
        mli_leak_site line;
        memset(&line, 0, sizeof line);
        line.sum = first + row;
        line.bytes = s->sum[line.sum].bytes;
        line.blocks = s->sum[line.sum].blocks;
        line.is_site = is_site;
        if (!line.blocks) continue;
        if (row) line.subject = mli_row_at(s->lord, book, row)->subject;
        s->total++;
        s->lines = mli_top_insert(s->line, s->lines, MLI_LEAKS_SHOWN, &line, sizeof line,
                                  offsetof(mli_leak_site, bytes));
    }
}
/* Stores for each of the first n groups the number of the listed site that it belongs to. */
static MLI_COLD void mli_leak_groups_number(mli_leak_sites *s, const mli_leak_table *groups,
                                            size_t n) {
    size_t i;
    for (i = 0; i < n; i++) {
        const uint64_t rows = groups->at[i].of.word2;
        const uint32_t site = MLI_SITE_ROW(rows), tag = MLI_TAG_ROW(rows);
        const int book = site ? MLI_BOOK_SITE : MLI_BOOK_TAG;
        uint32_t row = site ? site : tag;
        s->of[i] = 0;
        if (!groups->at[i].blocks || site > s->rows || tag > s->tags) continue;
        if (row) row = mli_leak_first_row(s, mli_row_at(s->lord, book, row)->subject);
        if (row > (site ? s->rows : s->tags)) continue;
        s->of[i] = (unsigned char)s->sum[site ? row : s->rows + 1 + row].number;
    }
}
/* Stores the number of a site in an element of `seen`. Returns 1 if the element had another number,
   so that the caller counts a tag, scope or device only once for each site. */
static int mli_leak_first_seen(unsigned char *seen, uint32_t number) {
    const int first = *seen != number;
    *seen = (unsigned char)number;
    return first;
}
/* Counts the device, the tag and the scope of a group in the line of its site. */
static MLI_COLD void mli_leak_site_note(mli_leak_sites *s, uint32_t number,
                                        const mli_leak_group *leak) {
    mli_leak_site *line = &s->line[number - 1];
    const uint32_t tag = MLI_TAG_ROW(leak->of.word2), dev = MLI_DEV(leak->of.word1);
    const uint32_t scope = mli_scope_of(s->lord, leak->of.word2);
    const void *name = tag ? mli_row_at(s->lord, MLI_BOOK_TAG, tag)->subject : NULL;
    const uint32_t first = mli_leak_first_row(s, name);
    unsigned char *scopes = s->seen + s->tags + 1, *devices = scopes + s->scopes + 1;
    if (first > s->tags || scope > s->scopes || dev > s->devices) return; /* leaves out what is
                                                                             new */
    line->dev = dev;
    line->devices += (uint32_t)mli_leak_first_seen(&devices[dev], number);
    if (!first) line->untagged = 1;
    if (!scope) line->unscoped = 1;
    if (first && mli_leak_first_seen(&s->seen[first], number))
        line->tags++, line->tag = (const char *)name;
    if (scope && mli_leak_first_seen(&scopes[scope], number))
        line->scopes++, line->scope = mli_scope_record_at(s->lord, scope)->path;
}
/* Fills in the devices, tags and scopes of a listed site from its groups. */
static MLI_COLD void mli_leak_site_fill(mli_leak_sites *s, uint32_t number,
                                        const mli_leak_table *groups) {
    mli_leak_site *line = &s->line[number - 1];
    const unsigned char *of = s->of, *end = of + groups->room;
    uint64_t noted = 0;
    while ((of = (const unsigned char *)memchr(of, (int)number, (size_t)(end - of))) != NULL) {
        const mli_leak_group *group = &groups->at[of++ - s->of];
        mli_leak_site_note(s, number, group);
        noted += group->blocks;
    }
    if (noted != line->blocks) /* some blocks of the site are in no group */
        line->devices = line->tags = line->scopes = 0;
    if (line->is_site || !line->subject) return;
    line->tag = (const char *)line->subject;
    line->tags = 1;
}
MLI_PRIVATE MLI_COLD void mli_leak_sites_list(mli_leak_sites *s, mli_leak_table *groups) {
    uint32_t number;
    if (s->sum) {
        mli_leak_lines_add(s, MLI_BOOK_SITE);
        mli_leak_lines_add(s, MLI_BOOK_TAG);
        for (number = 1; number <= s->lines; number++)
            s->sum[s->line[number - 1].sum].number = number;
        mli_leak_groups_number(s, groups, groups->room);
        for (number = 1; number <= s->lines; number++) mli_leak_site_fill(s, number, groups);
    }
    mli_leaks_sort(groups, MLI_LEAKS_SHOWN);
    if (s->sum) mli_leak_groups_number(s, groups, groups->count);
}

MLI_PRIVATE MLI_COLD mli_leak_sum mli_leak_sites_rest(const mli_leak_sites *s,
                                                      const mli_leak_table *groups, size_t lines) {
    mli_leak_sum rest = {groups->bytes, groups->blocks, 0};
    while (lines--) {
        rest.bytes -= s->line[lines].bytes;
        rest.blocks -= s->line[lines].blocks;
    }
    return rest;
}
MLI_PRIVATE MLI_COLD const memlord_site *mli_leak_site_of(const mli_leak_sites *s,
                                                          const mli_leak_site *line) {
    if (!line->is_site) return NULL;
    return mli_site_display(s->lord, (mli_site_record *)(uintptr_t)line->subject);
}

/* Has the table of the columns that the lists of TEXT and JSON have: one row of the table for each
   number that a line has. Owns no state. Locks: none. */
#ifndef MLI_REPORTS_LISTS_H
#define MLI_REPORTS_LISTS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/text.h"
#include "reports/capture.h"
#include "reports/growth.h"
#include "reports/leaks.h"

/* The lists, with the type of their lines. */
#define MLI_LISTS(X)                                                                               \
    X(CAPACITY, mli_phys_line)                                                                     \
    X(TAGS, mli_tag_line)                                                                          \
    X(SITES, memlord_site_stat)                                                                    \
    X(STACKS, mli_stack_line)                                                                      \
    X(BLOCKS, memlord_block_info)                                                                  \
    X(ACCOUNTS, memlord_account_stat)                                                              \
    X(STREAMS, mli_stream_line)                                                                    \
    X(GROWTH, mli_series)                                                                          \
    X(LEAKS, mli_leak_sum)                                                                         \
    X(MISTAKES, memlord_anomaly)                                                                   \
    X(ROUTES, mli_route_line)
typedef enum mli_list {
#define MLI_X(list, type) MLI_LIST_##list,
    MLI_LISTS(MLI_X)
#undef MLI_X
} mli_list;

/* Writes the headings of a list in TEXT, as wide as its columns; that of errors if `errors`. */
MLI_PRIVATE MLI_COLD void mli_list_headings(mli_out *o, mli_list list, int errors);
/* Writes the numbers of a line, which has the type of the list in MLI_LISTS, into these columns. */
MLI_PRIVATE MLI_COLD void mli_list_text(mli_out *o, mli_list list, const void *line, int errors);
/* Writes the numbers of a line as members of a JSON object, each after a comma. */
MLI_PRIVATE MLI_COLD void mli_list_json(mli_out *o, mli_list list, const void *line);

#endif

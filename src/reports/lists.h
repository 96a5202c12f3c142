/* Has the table of the columns that the lists of TEXT and JSON have. A line of a list is about a
   tag, a site, a stack and so on, and has a number in each column. A new column is one row of the
   table. May use reports/capture, and reports/growth and reports/leaks for the types of lines. Owns
   no state. Locks: none. */
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

/* Writes the headings of a list's columns in TEXT, each as wide as its column. Writes the column of
   standard errors only if `errors` is 1. */
MLI_PRIVATE MLI_COLD void mli_list_headings(mli_out *o, mli_list list, int errors);
/* Writes the numbers of a line into these columns. `line` has the type that MLI_LISTS has for the
   list. */
MLI_PRIVATE MLI_COLD void mli_list_text(mli_out *o, mli_list list, const void *line, int errors);
/* Writes the numbers of a line as members of a JSON object, each after a comma. */
MLI_PRIVATE MLI_COLD void mli_list_json(mli_out *o, mli_list list, const void *line);

#endif

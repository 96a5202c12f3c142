#include "formats/cells.h"
#include <stdio.h>
#include <string.h>
#include "profile/text.h"

/* Gives "1.5 GiB" two decimals: "1.50 GiB". */
static void two_decimals(char *text) {
    char *unit = strchr(text, ' '), *point = strchr(text, '.');
    char rest[8];
    if (!unit || !strcmp(unit, " B")) return;
    (void)snprintf(rest, sizeof rest, "%s", unit);
    if (!point) {
        *unit++ = '.';
        *unit++ = '0';
    }
    if (!point || unit - point == 2) *unit++ = '0';
    strcpy(unit, rest);
}
MLR_PRIVATE void mlr_cell_number(char *buffer, mlr_type type, uint64_t number) {
    if (number == MLR_UNKNOWN && type != MLR_CHANGE) {
        strcpy(buffer, "-");
        return;
    }
    switch (type) {
    case MLR_BYTES:
    case MLR_RATE: two_decimals(mlr_text_bytes(buffer, number)); break;
    case MLR_CHANGE: two_decimals(mlr_text_change(buffer, (int64_t)number)); break;
    case MLR_SHARE:
        (void)snprintf(buffer, 48, "%llu.%u %%", (unsigned long long)(number / 10),
                       (unsigned)(number % 10));
        break;
    case MLR_DURATION:
    case MLR_SINCE: (void)mlr_text_duration(buffer, number); break;
    case MLR_ADDRESS: (void)snprintf(buffer, 48, "0x%llx", (unsigned long long)number); break;
    default: (void)mlr_text_count(buffer, number);
    }
}
MLR_PRIVATE int mlr_column_is_empty(const mlr_table *t, uint32_t column) {
    uint32_t i;
    for (i = 0; i < t->rows; i++) {
        const mlr_cell *cell = &t->cell[(size_t)i * t->columns + column];
        if (t->column[column].type == MLR_TEXT ? *cell->text != 0 : cell->number != MLR_UNKNOWN)
            return 0;
    }
    return 1;
}
MLR_PRIVATE uint64_t mlr_rows_left(const mlr_table *t, uint32_t shown) {
    return t->more + (t->rows > shown ? t->rows - shown : 0);
}

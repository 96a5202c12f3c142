#include "profile/places.h"
#include <stdio.h>
#include <string.h>

static const mlr_field function_fields[] = {
    MLR_FIELD(mlr_function, TEXT, name, "function"), MLR_FIELD(mlr_function, TEXT, file, "file"),
    MLR_FIELD(mlr_function, U32, line, "line"), MLR_FIELD(mlr_function, FLAG, library, "library")};

/* -- modules -- */

static uint32_t module_add(mlr_reader *r, const char *path, const char *build_id) {
    mlr_profile *p = r->profile;
    mlr_module *list =
        (mlr_module *)mlr_reader_grow(r, p->module, p->module_count, &r->module_room, sizeof *list);
    if (!list) return 0;
    p->module = list;
    list[p->module_count].path = path;
    list[p->module_count].build_id = build_id;
    return ++p->module_count;
}
MLR_PRIVATE uint32_t mlr_places_module(mlr_reader *r, const mlr_json *path, const mlr_json *id) {
    const char *text = mlr_reader_text(r, path), *build_id = mlr_reader_text(r, id);
    const mlr_key key = mlr_key_of(MLR_MAP_MODULE, mlr_key_text(text), mlr_key_text(build_id), 0);
    uint32_t row = *text ? mlr_reader_find(r, &key) : 0;
    if (row || !*text) return row;
    row = module_add(r, text, build_id);
    if (row) mlr_reader_name(r, &key, row);
    return row;
}
MLR_PRIVATE void mlr_places_modules(mlr_reader *r, const mlr_json *list) {
    const char *name = r->profile->schema < 3 ? "module" : "path";
    const mlr_json *item;
    MLR_JSON_EACH(item, list) {
        const char *path = mlr_reader_text(r, mlr_json_get(item, name));
        const char *build_id = mlr_reader_text(r, mlr_json_get(item, "build_id"));
        const mlr_key key =
            mlr_key_of(MLR_MAP_MODULE, mlr_key_text(path), mlr_key_text(build_id), 0);
        const uint32_t row = module_add(r, path, build_id);
        if (!row) return;
        mlr_reader_name(r, &key, row);
    }
}

/* -- frames -- */

static mlr_key frame_key(const mlr_function *f, uint32_t module, uint64_t offset) {
    mlr_key key = mlr_key_of(MLR_MAP_FRAME, mlr_key_text(f->name), mlr_key_text(f->file), f->line);
    key.word[4] = module;
    key.word[5] = offset;
    return key;
}
/* Before memlord/3 the file of a place without names is its module's and the offset, as
   "libc.so.6+0x39220". Removes such a file. */
static void file_remove(mlr_function *f, const char *path, uint64_t offset) {
    const char *name = strrchr(path, '/');
    const char *plus = strrchr(f->file, '+');
    char digits[24];
    name = name ? name + 1 : path;
    snprintf(digits, sizeof digits, "+0x%llx", (unsigned long long)offset);
    if (!*f->name && !f->line && plus && !strcmp(plus, digits) &&
        !strncmp(f->file, name, (size_t)(plus - f->file)))
        f->file = "";
}
/* Fills the functions of a frame. `shown` is the one that the program shows; the list of inlined
   functions, if there is one, has it, too. */
static void functions_fill(mlr_reader *r, mlr_frame *frame, const mlr_function *shown,
                           const mlr_json *inlined) {
    const mlr_rows rows = mlr_rows_read(r, "inlined", inlined, function_fields,
                                        MLR_COUNT(function_fields), sizeof(mlr_function));
    uint32_t i;
    frame->functions = rows.count ? rows.count : 1;
    frame->function =
        (mlr_function *)(rows.count ? rows.list : mlr_reader_alloc(r, 1, sizeof *shown));
    if (!frame->function) return;
    if (!rows.count) frame->function[0] = *shown;
    for (i = 0; i < rows.count; i++) {
        const mlr_function *f = &frame->function[i];
        if (f->name != shown->name || f->file != shown->file || f->line != shown->line) continue;
        frame->shown = i;
        return;
    }
}
/* Adds a frame. It may be found by its names alone, too, if it is the first that has them. */
static uint32_t frame_add(mlr_reader *r, mlr_function *shown, uint32_t module, uint64_t offset,
                          const mlr_json *of) {
    mlr_profile *p = r->profile;
    const mlr_key key = frame_key(shown, module, offset), names = frame_key(shown, 0, 0);
    mlr_frame *list =
        (mlr_frame *)mlr_reader_grow(r, p->frame, p->frame_count, &r->frame_room, sizeof *list);
    if (!list) return 0;
    p->frame = list;
    list += p->frame_count;
    list->module = module;
    list->offset = offset;
    if (module && p->schema < 3) file_remove(shown, p->module[module - 1].path, offset);
    functions_fill(r, list, shown, mlr_json_get(of, "inlined"));
    if (!list->function) return 0;
    p->frame_count++;
    mlr_reader_name(r, &key, p->frame_count);
    mlr_reader_name(r, &names, p->frame_count);
    return p->frame_count;
}
static mlr_function function_of(mlr_reader *r, const mlr_json *names, const mlr_json *of) {
    mlr_function f;
    memset(&f, 0, sizeof f);
    f.name = f.file = "";
    mlr_fields_read(r, names, function_fields, MLR_COUNT(function_fields), &f);
    mlr_field_read(r, mlr_json_get(of, "library"), &function_fields[3], &f);
    return f;
}

MLR_PRIVATE uint32_t mlr_places_frame_at(mlr_reader *r, const mlr_json *names, uint32_t module,
                                         uint64_t offset, const mlr_json *of) {
    mlr_function f;
    mlr_key key;
    uint32_t row;
    if (!names || names->kind != MLR_JSON_OBJECT || r->result != MLR_OK) return 0;
    f = function_of(r, names, of);
    key = frame_key(&f, module, offset);
    row = mlr_reader_find(r, &key);
    return row ? row : frame_add(r, &f, module, offset, of);
}
MLR_PRIVATE uint32_t mlr_places_frame(mlr_reader *r, const mlr_json *names) {
    return mlr_places_frame_at(r, names, 0, 0, NULL);
}
MLR_PRIVATE void mlr_places_frames(mlr_reader *r, const mlr_json *list) {
    const mlr_json *item;
    MLR_JSON_EACH(item, list) {
        mlr_function f = function_of(r, item, item);
        const uint32_t module =
            mlr_reader_row(r, mlr_json_get(item, "module"), r->profile->module_count, "module");
        if (r->result != MLR_OK ||
            !frame_add(r, &f, module, mlr_reader_u64(r, mlr_json_get(item, "offset")), item))
            return;
    }
}

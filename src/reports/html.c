#include "reports/html.h"
#include "base/text.h"
#include "reports/answers.h"
#include "reports/text.h"
#include "reports/json.h"
#include "reports/page.h"

#if !defined(MEMLORD_NO_PAGE)

/* Writes a part of the page from an array of string literals. `all` is the size of the array in
   bytes, `size` that of one element. */
static MLI_COLD void mli_put_html(mli_out *o, const char *literal, size_t size, size_t all) {
    size_t at;
    for (at = 0; at < all; at += size) mli_put_str(o, literal + at);
}

/* Writes the compressed scripts and styles of the page as base64. */
static MLI_COLD void mli_put_packed(mli_out *o) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0; /* the n lowest bits are those that are in no digit yet */
    int n = 0;         /* how many bits are in no digit yet */
    size_t i;
    for (i = 0; i < MLI_HTML_PACKED; i++) {
        bits = bits << 8 | (uint32_t)(mli_html_packed[i / 8] >> (56 - i % 8 * 8) & 255);
        for (n += 8; n >= 6; n -= 6) mli_put(o, &digits[bits >> (n - 6) & 63], 1);
    }
    if (n) mli_put(o, &digits[bits << (6 - n) & 63], 1);
    for (; i % 3; i++) mli_put(o, "=", 1);
}

/* Writes the page. Readers without scripts see the verdicts and the devices, as in TEXT. No string
   can end the element that holds the JSON, because < and > are escaped in the JSON. */
MLI_PRIVATE MLI_COLD void mli_html(mli_report *r) {
    mli_put_html(r->o, mli_html_head[0], sizeof mli_html_head[0], sizeof mli_html_head);
    r->out.html = 1;
    mli_text_process(r, r->o, 0);
    mli_put_str(r->o, "\n");
    (void)mli_text_verdicts(r, 0, SIZE_MAX);
    mli_text_devices(r, r->devices);
    r->out.html = 0;
    r->out.name_max = 0;
    mli_put_html(r->o, mli_html_middle[0], sizeof mli_html_middle[0], sizeof mli_html_middle);
    mli_json_run(r, 1);
    mli_put_html(r->o, mli_html_between[0], sizeof mli_html_between[0], sizeof mli_html_between);
    mli_put_packed(r->o);
    mli_put_html(r->o, mli_html_tail[0], sizeof mli_html_tail[0], sizeof mli_html_tail);
}
#endif

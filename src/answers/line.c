#include "answers/line.h"
#include <string.h>

#define POINTS 8  /* the fewest points of a line */
#define PARTS  16 /* of the time, whose lowest points are taken under noise */

typedef struct sums { /* weighted sums over points */
    double w, t, y, tt, ty, yy;
} sums;
typedef struct fit {
    double slope, base, error, total; /* y = base + slope * t; error, total: weighted squares */
} fit;

static double weight_of(const mlr_point *p, uint32_t n, uint32_t i) {
    const double from = p[i ? i - 1 : 0].t, to = p[i + 1 < n ? i + 1 : i].t;
    return to > from ? (to - from) / 2 : 0;
}
static void sums_add(sums *s, const mlr_point *p, double w) {
    s->w += w;
    s->t += w * p->t;
    s->y += w * p->y;
    s->tt += w * p->t * p->t;
    s->ty += w * p->t * p->y;
    s->yy += w * p->y * p->y;
}
static fit fit_of(const sums *s) {
    fit f = {0, 0, 0, 0};
    double over, across;
    if (!(s->w > 0)) return f;
    over = s->tt - s->t * s->t / s->w;
    across = s->ty - s->t * s->y / s->w;
    f.total = s->yy - s->y * s->y / s->w;
    if (over > 0) f.slope = across / over;
    f.base = (s->y - f.slope * s->t) / s->w;
    f.error = f.total - (over > 0 ? across * across / over : 0);
    if (f.error < 0) f.error = 0;
    return f;
}
/* Sums the points from a to below b, with times and bytes from those of the point `zero`. */
static sums sums_of(const mlr_point *p, uint32_t n, uint32_t a, uint32_t b, const mlr_point *zero) {
    sums s;
    uint32_t i;
    memset(&s, 0, sizeof s);
    for (i = a; i < b; i++) {
        mlr_point at = p[i];
        at.t -= zero->t;
        at.y -= zero->y;
        sums_add(&s, &at, weight_of(p, n, i));
    }
    return s;
}

/* Returns the point from a on at which two lines, before and after it, fit best, or `a` if one line
   fits nearly as well. `room` has the errors of the lines after each point. */
static uint32_t kink(const mlr_point *p, uint32_t n, uint32_t a, double *room) {
    const mlr_point zero = p[n - 1];
    double best, whole;
    uint32_t i, at = a;
    sums s;
    memset(&s, 0, sizeof s);
    for (i = n; i-- > a;) {
        mlr_point q = p[i];
        q.t -= zero.t;
        q.y -= zero.y;
        sums_add(&s, &q, weight_of(p, n, i));
        room[i] = fit_of(&s).error;
    }
    best = whole = room[a];
    memset(&s, 0, sizeof s);
    for (i = a; i + POINTS <= n; i++) {
        mlr_point q = p[i];
        if (i > a + 1 && fit_of(&s).error + room[i] < best) {
            best = fit_of(&s).error + room[i];
            at = i;
        }
        q.t -= zero.t;
        q.y -= zero.y;
        sums_add(&s, &q, weight_of(p, n, i));
    }
    if (best > whole / 2) return a;
    /* the kink lies between two points: the earlier one, if the line through the rest meets it */
    return at;
}
/* Returns 1 if the last eighth of the time holds what the line through the rest from `a` promises.
 */
static int lasts(const mlr_point *p, uint32_t n, uint32_t a) {
    const mlr_point zero = p[n - 1];
    double time = (p[n - 1].t - p[0].t) / 8, missing, noise;
    uint32_t i = n - 1;
    sums rest, end;
    fit f;
    if (time > (p[n - 1].t - p[a].t) / 4) time = (p[n - 1].t - p[a].t) / 4;
    while (i > a + 4 && (p[n - 1].t - p[i].t < time || n - i < 2)) i--;
    rest = sums_of(p, n, a, i, &zero);
    end = sums_of(p, n, i, n, &zero);
    f = fit_of(&rest);
    if (!(end.w > 0) || !(rest.w > 0) || f.slope <= 0) return 0;
    missing = f.base + f.slope * end.t / end.w - end.y / end.w;
    noise = f.error / rest.w; /* the square of the standard deviation */
    if (missing <= f.slope * time / 4) return 1;
    return missing * missing * (n - i < 8 ? n - i : 8) < 4 * noise;
}
/* Returns the line from `a` on, with slope 0 if it does not rise by the rules. */
static mlr_line rises(const mlr_point *p, uint32_t n, uint32_t a, uint32_t fewest) {
    mlr_line line = {0, 0, 0, 0, 0};
    const mlr_point zero = p[n - 1];
    const double time = p[n - 1].t - p[a].t;
    double middle;
    uint32_t i;
    sums s;
    fit f;
    if (n - a < fewest || time < (p[n - 1].t - p[0].t) / 8.5) return line;
    s = sums_of(p, n, a, n, &zero);
    f = fit_of(&s);
    if (!(f.slope > 0) || !(f.total > 0) || f.error > f.total / 5) return line;
    if (s.y > 0 || !lasts(p, n, a)) return line; /* s.y: above the last point on the mean */
    middle = zero.y + f.base - f.slope * time / 2;
    for (i = 0; i < a; i++)
        if (p[i].y > middle) return line;
    line.slope = f.slope;
    line.fit = 1 - f.error / f.total;
    line.rise = f.slope * time;
    line.since = a;
    line.points = n - a;
    return line;
}
/* Returns the first point whose time is at least that part of all. */
static uint32_t at_part(const mlr_point *p, uint32_t n, double part) {
    const double t = p[0].t + (p[n - 1].t - p[0].t) * part;
    uint32_t i = 0;
    while (i + 1 < n && p[i].t < t) i++;
    return i;
}
static mlr_line look(const mlr_point *p, uint32_t n, uint32_t fewest, double *room) {
    static const double parts[] = {0, 0.5, 0.75, 0.875};
    const uint32_t first = kink(p, n, 0, room);
    mlr_line line = rises(p, n, first, fewest);
    uint32_t i, a, inner;
    for (i = 0; i < 4 && !(line.slope > 0); i++) {
        mlr_line later;
        a = at_part(p, n, parts[i]);
        line = rises(p, n, a, fewest);
        if (!(line.slope > 0)) continue;
        inner = kink(p, n, a, room);
        later = rises(p, n, inner, fewest);
        if (later.slope > 0) line = later;
    }
    return line;
}
/* Makes the lowest points of the parts of the time. A level holds until the next point. Returns the
   widest... of the noise: the median of what the parts span. */
static double lowest(const mlr_point *p, uint32_t n, mlr_point *low, uint32_t *index) {
    const double part = (p[n - 1].t - p[0].t) / PARTS;
    double span[PARTS];
    uint32_t k, i = 0, j;
    for (k = 0; k < PARTS; k++) {
        const double end = p[0].t + part * (k + 1);
        double most = p[i ? i - 1 : 0].y;
        low[k] = p[i ? i - 1 : 0];
        index[k] = i ? i - 1 : 0;
        for (; i < n && (p[i].t < end || k == PARTS - 1); i++) {
            if (p[i].y > most) most = p[i].y;
            if (p[i].y > low[k].y) continue;
            low[k].y = p[i].y;
            index[k] = i;
        }
        low[k].t = p[0].t + part * (k + 0.5);
        span[k] = most - low[k].y;
    }
    for (k = 1; k < PARTS; k++) {
        const double moving = span[k];
        for (j = k; j && span[j - 1] > moving; j--) span[j] = span[j - 1];
        span[j] = moving;
    }
    return span[PARTS / 2];
}
static mlr_line look_under_noise(const mlr_point *p, uint32_t n) {
    mlr_line line = {0, 0, 0, 0, 0};
    mlr_point low[PARTS];
    double room[PARTS], noise;
    uint32_t index[PARTS];
    if (n < 3 * PARTS) return line;
    noise = lowest(p, n, low, index);
    line = look(low, PARTS, POINTS, room);
    if (line.rise < noise / 2) line.slope = 0;
    if (!(line.slope > 0)) return line;
    line.since = index[line.since];
    line.points = n - line.since;
    return line;
}
MLR_PRIVATE mlr_line mlr_line_find(const mlr_point *p, uint32_t n, double *room) {
    mlr_line line = {0, 0, 0, 0, 0};
    if (n < POINTS) return line;
    line = look(p, n, POINTS, room);
    return line.slope > 0 ? line : look_under_noise(p, n);
}
MLR_PRIVATE uint32_t mlr_line_end(const mlr_point *p, uint32_t n) {
    double least, most;
    uint32_t i = n;
    if (!n) return 0;
    least = most = p[n - 1].y;
    for (i = 0; i < n; i++) {
        if (p[i].y < least) least = p[i].y;
        if (p[i].y > most) most = p[i].y;
    }
    for (i = n; i; i--) {
        const double off = p[i - 1].y - p[n - 1].y;
        if (off > (most - least) / 20 || off < -(most - least) / 20) break;
    }
    return n - i > n / 50 + 1 ? i + 1 : n;
}

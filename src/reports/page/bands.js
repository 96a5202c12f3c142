/* The first chart of the report page shows the largest tags over time, stacked, of all devices together.
   Where no bytes have a tag, it shows sites. */
'use strict';

const BANDS = 5, BANDS_HIGH = 180, BANDS_HEAD = 22;
const bands = { cursor: null, draw: drawBands };

/* Returns the names of the largest tags or sites, and what each had in each snapshot if the profile has that. */
function bandSeries(p) {
    const by = objs(p.raw.tags).some(t => text(t.tag)) ? 'tag' : 'site', all = new Map();
    const nameOf = one => by === 'tag' ? text(one.tag) : siteKey(one.site);
    const of = name => all.get(name) || all.set(name, { name, top: 0, bytes: [] }).get(name);
    if (by === 'tag') for (const t of objs(p.raw.tags)) of(nameOf(t)).top += zero(t.peak);
    for (const s of objs(obj(p.raw.series)[by + 's'])) {
        const one = of(nameOf(s));
        arr(s.bytes).forEach((x, i) => { one.bytes[i] = (one.bytes[i] || 0) + zero(x); });
        one.top = Math.max(one.top, most(one.bytes, x => x));
    }
    const list = [...all.values()].filter(s => s.name && s.top > 0).sort((a, b) => b.top - a.top);
    return { by, list: list.slice(0, BANDS), left: list.length - BANDS };
}

/* Returns the bands. The last one is for all the rest. */
function readBands(p) {
    const e = p.events, { by, list, left } = bandSeries(p), k = list.length, since = e.n ? e.time[0] : Infinity;
    const whole = levels => levels.reduce((a, b) => a + b, 0), total = zero(p.total.allocated);
    const early = p.snapshots.map((s, i) => {
        const parts = list.map(one => zero(one.bytes[i]));
        return { time: s.time, levels: [...parts, Math.max(zero(s.bytes) - whole(parts), 0)] };
    }).filter(s => s.time < since);
    if (!e.lost || early.length) early.unshift({ time: 0, levels: new Array(k + 1).fill(0) });
    const of = new Int8Array(e.n), number = new Map(list.map((one, i) => [one.name, i])), name = lookup(p.strings);
    const last = list.map(one => sum(objs(p.raw.tags).filter(t => by === 'tag' && text(t.tag) === one.name), t => t.allocated));
    const first = [...last, Math.max(total - whole(last), 0)];
    for (let i = 0; i < e.n; i++) {
        const at = by === 'tag' ? number.get(name(e.tag[i])) : k;
        of[i] = at === undefined ? k : at;
        first[of[i]] -= change(e, i);
    }
    if (e.n) early.push({ time: since, levels: first.map(x => Math.max(x, 0)) });
    else early.push({ time: p.end, levels: early.length > 1 && by === 'site' ? early[early.length - 1].levels : first });
    const b = { by, of, early, left, names: [...list.map(one => one.name), k ? `other ${by}s` : 'all'], first: first.map(x => Math.max(x, 0)), high: 1, at: 0 };
    const higher = (bytes, time) => { if (bytes > b.high) b.high = bytes, b.at = time; };
    for (const s of early) higher(whole(s.levels), s.time);
    let level = whole(b.first);
    for (let i = 0; i < e.n; i++) higher(level = Math.max(level + change(e, i), 0), e.time[i]);
    const one = p.devices.length === 1 && p.devices[0].peak;
    if (one && one.bytes > b.high) b.high = one.bytes, b.at = one.time;
    return p.devices.length && (e.n || p.snapshots.length > 1) ? b : null;
}

/* Returns for each column of pixels the bytes of each band. Between two snapshots these are on a straight
   line. With events a column has the moment when most was live. */
function bandColumns(chart, p, b) {
    const n = Math.max(Math.floor(chart.width - chart.left), 1), k = b.names.length, e = p.events;
    const cells = new Float64Array(n * k).fill(NaN), column = t => Math.floor(xOf(chart, t) - chart.left);
    const put = (x, levels) => cells.set(levels, x * k);
    b.early.slice(1).forEach((z, i) => {
        const a = b.early[i], end = Math.min(column(z.time), n - 1);
        for (let x = Math.max(column(a.time), 0); x <= end; x++) {
            const part = clamp((timeAt(chart, x + chart.left) - a.time) / (z.time - a.time || 1), 0, 1);
            put(x, a.levels.map((v, j) => v + (z.levels[j] - v) * part));
        }
    });
    if (!e.n) return cells;
    const levels = Float64Array.from(b.first), kept = levels.slice();
    let x = column(e.time[0]), total = levels.reduce((u, v) => u + v, 0), high = total;
    const flush = to => {
        if (x >= 0 && x < n) put(x, kept);
        for (let i = Math.max(x + 1, 0); i < Math.min(to, n); i++) put(i, levels);
        kept.set(levels);
        high = total;
        x = to;
    };
    for (let i = 0; i < e.n && e.time[i] <= view.to; i++) {
        const by = change(e, i), at = column(e.time[i]);
        if (!by) continue;
        if (at > x) flush(at);
        levels[b.of[i]] = Math.max(levels[b.of[i]] + by, 0);
        total += by;
        if (total > high) high = total, kept.set(levels);
    }
    flush(Math.min(column(p.end), n - 1) + 1);
    return cells;
}

const bandColour = (b, j) => j === b.names.length - 1 && j > 0 || !belongs({ [b.by]: b.names[j] }) ? ink.other : j || b.names.length > 1 ? ink.shades[hue(b.names[j])] : ink.fill;

function drawBands() {
    const { profile: p, data: b } = bands, g = prepare(bands, BANDS_HIGH), k = b.names.length, base = BANDS_HIGH - 1;
    const y = bytes => base - bytes / b.high * (BANDS_HIGH - BANDS_HEAD - 14), cells = bands.cells = bandColumns(bands, p, b), n = cells.length / k;
    drawAxis(g, bands, 0, base);
    for (let j = k; j-- > 0;) { // from the top band to the lowest one: each is drawn down to the axis
        const tops = Float64Array.from({ length: n }, (_, x) => cells.subarray(x * k, x * k + j + 1).reduce((u, v) => u + v, 0));
        for (const [colour, lift] of [[ink.paper, 1], [bandColour(b, j), 0]]) { // a gap tells two bands of like colours apart
            g.fillStyle = colour;
            g.beginPath();
            tops.forEach((up, x) => { if (up > 0) g.rect(bands.left + x, y(up) - lift, 1, base - y(up) + lift); });
            g.fill();
        }
    }
    bandMarks(g, p, base);
    const x = xOf(bands, b.at), label = (p.devices.length > 1 ? 'most at one time ' : 'peak ') + bytes(b.high);
    if (x >= bands.left - 1 && x <= bands.width) {
        g.fillStyle = ink.ink;
        g.beginPath();
        g.arc(x, y(b.high), 3, 0, 7);
        g.fill();
        write(g, ink.ink, label, clamp(x - 4, bands.left + 2, bands.width - g.measureText(label).width - 3), y(b.high) - 11);
    }
    const step = Math.pow(2, Math.ceil(Math.log2(b.high / 4)));
    for (let level = step; level <= b.high; level += step) write(g, ink.soft, bytes(level), bands.left - 6, y(level), 'right');
    stroke(g, ink.rule, bands.left, base + 0.5, bands.width, base + 0.5);
    if (bands.cursor !== null) stroke(g, ink.ink, xOf(bands, bands.cursor), BANDS_HEAD, xOf(bands, bands.cursor), base);
}

function bandMarks(g, p, base) {
    let last = [-9, -9];
    for (const m of p.marks) {
        const x = xOf(bands, m.time), kind = Number(m.oom);
        if (x < bands.left || x > bands.width || x - last[kind] < 3) continue;
        last[kind] = x;
        g.fillStyle = m.oom ? ink.warn : ink.good;
        g.beginPath();
        for (const [dx, dy] of [[-4, m.oom ? 0 : -7], [4, m.oom ? 0 : -7], [0, m.oom ? -7 : 0]]) g.lineTo(x + dx, base + dy);
        g.fill();
    }
}

function bandAt(time, x, y, aloud) {
    const b = bands.data, k = b.names.length;
    bands.cursor = clamp(time, view.from, view.to);
    const at = clamp(Math.floor(xOf(bands, bands.cursor) - bands.left), 0, bands.cells.length / k - 1), cells = bands.cells.subarray(at * k, at * k + k);
    const known = x => x === x ? bytes(Math.round(x)) : '–', all = cells.reduce((u, v) => u + v, 0);
    const pairs = [...k > 1 ? [...b.names.keys()].reverse().filter(j => cells[j] !== 0).map(j => [fitted(b.names[j], 260), known(cells[j])]) : [], ['live', known(all)]];
    const title = instant(bands.cursor, (view.to - view.from) / 1000);
    showTip(bands, x === null ? xOf(bands, bands.cursor) : x, y, title, pairs);
    if (aloud) say(title + ': ' + pairs.map(q => q.join(' ')).join(', '));
    redraw();
}

function leaveBands() {
    bands.cursor = null;
    hideTip();
    redraw();
}

function bandKey(event) {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === 'Escape') return leaveBands(), true;
    if (way) bandAt(bands.focus() + way * (view.to - view.from) / (event.shiftKey ? 10 : 100), null, BANDS_HEAD, true);
    return !!way;
}

/* Returns the chart with its legend, or null if the profile has nothing over time. */
function bandChart(p) {
    const data = readBands(p);
    if (!data) return null;
    const k = data.names.length - 1, swatch = j => { const i = el('i.swatch'); if (j < k) coloured(i, data.names[j]); return i; };
    const canvas = el('canvas', { tabindex: 0, role: 'application', 'aria-label': `Live bytes of all devices over time, by ${data.by}. Left and right move the cursor and read the values.` });
    Object.assign(bands, { canvas, profile: p, data, cursor: null, width: 0, focus: () => bands.cursor === null ? middle() : bands.cursor });
    view.charts.push(bands);
    navigate(bands, { hover: (x, y) => x >= bands.left ? bandAt(timeAt(bands, x), x, y) : leaveBands(), leave: leaveBands, key: bandKey });
    const key = (mark, words, kind) => el('li', el('i', { class: kind }, mark), words), [gc, oom] = [false, true].map(x => p.marks.some(m => m.oom === x));
    return el('div.bands', el('div', canvas), el('ul.keys',
        ...k ? data.names.map((name, j) => el('li', swatch(j), j < k ? link(fitted(name, 300), '', data.by, name) : name + (data.left > 0 ? ` (${count(data.left)})` : ''))) : [],
        gc && key('▼', 'collection', 'g'), oom && key('▲', 'out of memory', 'w')), rangeTools());
}

/* The report page reads one profile of schema memlord/2 and draws it. No part of a profile is trusted:
   text reaches the page only through textContent and fillText, and numbers only through num(). A value
   that is missing or null is left out. */
'use strict';

// -- values out of a profile --

const arr = x => Array.isArray(x) ? x : [];
const obj = x => x && typeof x === 'object' && !Array.isArray(x) ? x : {};
const objs = x => arr(x).map(obj);
const num = x => typeof x === 'number' && Math.abs(x) <= 2e19 ? x : null; // numbers up to a uint64_t; null if the number is not known
const zero = x => num(x) || 0;
const clamp = (x, low, high) => x < low ? low : x > high ? high : x;
const sum = (list, get) => list.reduce((total, x) => total + zero(get(x)), 0);
const most = (list, get) => list.reduce((top, x) => Math.max(top, zero(get(x))), 0);

/* Returns a name as the page shows it. It is cut after `max` characters. Control characters are shown as
   pictures, and characters that reorder the text around them are replaced. */
function text(s, max) {
    if (typeof s === 'number') return String(s);
    if (typeof s !== 'string') return '';
    max = max || 240;
    if (s.length > max) s = s.slice(0, max).replace(/[\ud800-\udbff]$/, '') + '…';
    return s.replace(/[\x00-\x1f]/g, c => String.fromCharCode(0x2400 + c.charCodeAt(0)))
        .replace(/[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]/g, '\ufffd');
}

/* Returns a site as text. If `brief` is set, a long path is cut to its end, which tells files apart, and
   a long name is cut to its beginning. */
function siteText(site, brief) {
    if (typeof site === 'string') return text(site);
    const s = obj(site), line = zero(s.line) ? ':' + s.line : '', file = text(s.file);
    const cut = brief && file.length > 40 ? file.slice(-40).search(/[\\/]/) : -1;
    return [text(s.function, brief ? 60 : 0), (cut < 0 ? file : '…' + file.slice(cut - 40)) + line].filter(Boolean).join('  ');
}

const LONG = 600e9; // in ns; longer times are shown in minutes and hours
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

/* Writes bytes as memlord_format_bytes does: with two decimals at most, and without zeros at the end. */
function bytes(n) {
    if (n === null) return '–';
    if (n < 0) return '−' + bytes(-n);
    let unit = 0;
    while (unit < 6 && n >= Math.pow(1024, unit + 1)) unit++;
    let hundredths = Math.round(n / Math.pow(1024, unit) * 100);
    if (hundredths === 102400 && unit < 6) hundredths = 100, unit++;
    return hundredths / 100 + ' ' + UNITS[unit];
}

const group = n => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
const count = n => n === null ? '–' : n < 0 ? '−' + group(-n) : group(n);
const exact = n => n === null ? '' : count(n) + ' bytes';
const many = (n, word) => count(n) + ' ' + word + (n === 1 ? '' : 's');
const plus = n => n > 0 ? '+' : '';
const signed = n => n === null ? '–' : plus(n) + bytes(n);
const percent = x => x === null ? '–' : Math.round(x * 1000) / 10 + ' %';

function duration(ns) {
    if (ns === null) return '–';
    if (ns < 0) return '−' + duration(-ns);
    const three = (x, unit) => (x < 100 ? Number(x.toPrecision(3)) : Math.round(x)) + unit;
    if (ns < 1e3) return three(ns, ' ns');
    if (ns < 999500) return three(ns / 1e3, ' µs');
    if (ns < 999.5e6) return three(ns / 1e6, ' ms');
    if (ns < 120e9) return three(ns / 1e9, ' s');
    const s = Math.round(ns / 1e9);
    if (s < 7200) return Math.floor(s / 60) + ' min ' + s % 60 + ' s';
    return count(Math.floor(s / 3600)) + ' h ' + Math.floor(s % 3600 / 60) + ' min';
}

/* Returns a point in time as text, such that two points that are `step` ns apart differ. */
function instant(ns, step) {
    if (view.to >= LONG) {
        const s = ns / 1e9, m = Math.floor(s / 60 + 1e-9), rest = Math.max(s - m * 60, 0);
        return [m >= 60 && Math.floor(m / 60) + ' h', m % 60 && m % 60 + ' min',
            step < 60e9 && rest.toFixed(clamp(Math.ceil(9 - Math.log10(step) - 1e-9), 0, 9)) + ' s'].filter(Boolean).join(' ') || '0';
    }
    const [unit, name] = view.to < 1e3 ? [1, ' ns'] : view.to < 1e6 ? [1e3, ' µs'] : view.to < 1e9 ? [1e6, ' ms'] : [1e9, ' s'];
    const places = clamp(Math.ceil(-Math.log10(step / unit) - 1e-9), 0, 9);
    return (ns / unit).toFixed(places) + name;
}

/* Returns the first index from `low` to `high` - 1 whose value is above x, in an ascending array. Returns
   `high` if there is none. */
function above(values, x, low, high) {
    while (low < high) {
        const mid = (low + high) >> 1;
        if (values[mid] > x) high = mid;
        else low = mid + 1;
    }
    return low;
}

// -- elements and colours --

const $ = id => document.getElementById(id);

const listen = (target, handlers) => Object.entries(handlers).forEach(([name, handler]) => target.addEventListener(name, handler));

/* Makes an element from 'tag' or 'tag.class', from attributes, if an object of them comes first, and from
   children. Attributes that are null are left out, and those that are functions are handlers. Children
   that are not elements become text. Children that are missing are left out. */
function el(tag, ...children) {
    const [type, kind] = tag.split('.'), e = document.createElement(type), first = children[0];
    if (kind) e.className = kind;
    const attributes = first && first.constructor === Object ? children.shift() : {};
    for (const [name, value] of Object.entries(attributes))
        if (typeof value === 'function') listen(e, { [name]: value });
        else if (value !== null && value !== undefined) e.setAttribute(name, value);
    e.append(...children.filter(c => c || c === 0 || c === ''));
    return e;
}

function fill(parent, ...children) {
    parent.textContent = '';
    parent.append(...children.filter(Boolean));
}

const button = (words, click, more) => el('button', Object.assign({ type: 'button', click }, more), words);
const sized = (n, show) => el('span', { title: exact(n) }, (show || bytes)(n));
const facts = pairs => el('dl.facts', ...pairs.filter(Boolean).map(([name, value, title]) =>
    el('div', { title }, el('dt', name), el('dd', value))));

/* Returns the hue of a name. It is the same in every report, unless another name of this report has taken
   it first. */
const HUES = 24;
const hues = new Map();
function hue(name) {
    if (hues.has(name)) return hues.get(name);
    const taken = new Set(hues.values());
    let h = 0;
    for (let i = 0; i < name.length; i++) h = Math.imul(h ^ name.charCodeAt(i), 0x01000193) >>> 0;
    h = ((h ^ h >>> 15) >>> 0) % HUES;
    for (let i = 0; i < HUES && taken.has(h); i++) h = (h + 7) % HUES;
    hues.set(name, h);
    return h;
}
const shade = h => `oklch(${ink.dark ? '0.48 0.095' : '0.83 0.085'} ${h * 360 / HUES})`;

function coloured(e, name) {
    e.classList.add('hue');
    e.style.setProperty('--hue', hue(name) * 360 / HUES);
    return e;
}

/* Gives an element the hue of a part's name or, if the part has a kind, the class of that kind. */
function paint(e, part) {
    if (!part.kind) return coloured(e, part.name);
    e.classList.add(part.kind);
    return e;
}

/* The colours of the theme, for canvases, which know no style sheets. */
const ink = {};
function readTheme() {
    const root = document.documentElement.classList, probe = $('live');
    ink.dark = root.contains('dark') && !root.contains('print') ||
        !root.contains('light') && !root.contains('print') &&
        matchMedia('(prefers-color-scheme: dark)').matches;
    for (const name of ['paper', 'panel', 'ink', 'soft', 'rule', 'grid', 'accent', 'fill', 'warn', 'good', 'other']) {
        probe.style.color = `var(--${name})`;
        ink[name] = getComputedStyle(probe).color;
    }
    ink.tones = [-1, -0.5, 0, 0.5, 1].map(x => `oklch(${ink.dark ? '0.48' : '0.83'} ${Math.abs(x) * 0.12} ${x < 0 ? 150 : 30})`);
    ink.shades = Array.from({ length: HUES }, (_, h) => shade(h));
}

// -- the model --

const KINDS = ['alloc', 'free', 'pend', 'move', 'arena_add', 'arena_sub', 'gc', 'oom', 'scope_begin',
    'scope_end', 'checkpoint'];
const [ALLOC, FREE, , MOVE, ADD, SUB, GC, OOM, BEGIN, END, CHECKPOINT] = KINDS.keys();

/* Returns the events as one array for each of their members. The library writes events in order of time.
   Events that are not in that order are sorted here. */
function readEvents(raw, strings) {
    const source = obj(raw);
    let list = arr(source.list).filter(Array.isArray), now = 0, storage = 0;
    const names = arr(source.kinds).length ? source.kinds : KINDS;
    const codes = names.map(name => KINDS.indexOf(name));
    if (source.brief === true) list = list.map(e => { // in a page, times and storages are differences from the event before
        now += zero(e[0]);
        if (e.length < 5) return [now, e[1], e[2], null, 0, 0, 0, 0, e[3]];
        return [now, e[1], e[2], e[3], storage += zero(e[4]), ...e.slice(5)];
    });
    for (let i = 1; i < list.length; i++)
        if (!(list[i][0] >= list[i - 1][0])) {
            list = list.slice().sort((a, b) => zero(a[0]) - zero(b[0]));
            break;
        }
    const n = list.length;
    const e = { n, lost: zero(source.lost), time: new Float64Array(n),
        kind: new Int8Array(n), thread: new Int32Array(n), device: new Int32Array(n),
        bytes: new Float64Array(n), scope: new Float64Array(n), site: new Int32Array(n), tag: new Int32Array(n),
        storage: i => list[i][4], // a checkpoint has its name here
        label: i => text(typeof list[i][7] === 'string' ? list[i][7] : arr(strings)[list[i][7]]) };
    for (let i = 0; i < n; i++) {
        const event = list[i], kind = codes[event[1]];
        e.time[i] = zero(event[0]);
        e.kind[i] = kind === undefined ? KINDS.indexOf(event[1]) : kind;
        e.thread[i] = event[2];
        e.device[i] = num(event[3]) === null ? -1 : event[3];
        e.bytes[i] = zero(event[5]);
        e.site[i] = event[6];
        e.tag[i] = event[7];
        e.scope[i] = zero(event[8]);
    }
    return e;
}

/* Returns by how many bytes an event changes what is live on its device. */
function change(e, i) {
    const kind = e.kind[i];
    if (kind === ALLOC || kind === MOVE || kind === ADD) return e.bytes[i];
    return kind === FREE || kind === SUB ? -e.bytes[i] : 0;
}

function readSnapshots(raw) {
    const list = objs(raw).filter(s => num(s.time_ns) !== null).map(s => ({
        time: s.time_ns, stamp: text(s.timestamp), name: text(s.checkpoint_name),
        bytes: num(s.total_bytes), blocks: num(s.tensor_count),
        devices: new Map(Object.entries(obj(s.device_breakdown)).map(([k, v]) => [k, obj(v)])),
    }));
    return list.sort((a, b) => a.time - b.time);
}

/* Returns the live bytes of a device over time. They are straight lines between snapshots and, from index
   `fine` on, a step for each event. The steps are computed backwards from the live bytes at the end. */
function readCurve(p, d, total) {
    const e = p.events, since = e.n ? e.time[0] : Infinity;
    const early = p.snapshots.filter(s => s.time < since);
    const begin = early.length || !e.lost ? 1 : 0; // 1: the curve begins with 0 bytes at time 0. If events were overwritten, its beginning is not known
    const fine = early.length + begin;
    const n = p.snapshots.length || e.n ? fine + (e.n ? 1 : 0) + total + 1 : 0;
    const t = new Float64Array(n), v = new Float64Array(n);
    early.forEach((s, i) => {
        t[i + 1] = s.time;
        v[i + 1] = zero(obj(s.devices.get(d.key)).total_bytes);
    });
    let at = n - 1, level = zero(d.stats.allocated);
    t[at] = p.end;
    v[at] = level;
    for (let i = e.n; i-- > 0;) {
        const by = e.device[i] === d.index ? change(e, i) : 0;
        if (!by) continue;
        at--;
        t[at] = e.time[i];
        v[at] = level;
        level = Math.max(level - by, 0);
    }
    if (e.n) t[fine] = since, v[fine] = level;
    return { t, v, fine: e.n ? fine : n };
}

function levelAt(c, time) {
    const i = above(c.t, time, 0, c.t.length) - 1;
    if (i < 0) return null;
    if (i >= c.fine || i + 1 >= c.t.length) return c.v[i];
    return c.v[i] + (c.v[i + 1] - c.v[i]) * (time - c.t[i]) / (c.t[i + 1] - c.t[i] || 1);
}

/* Returns where the peak stands in the picture. That is the top of the curve if the top is as high as the
   peak. Otherwise it is the time when the ledger last noted who held the peak. Its height is the most
   that the profile proves, within peak_error. */
function findPeak(d, holder) {
    const c = d.curve, low = Math.max(zero(d.stats.peak), 0);
    let top = 0;
    for (let i = 1; i < c.t.length; i++) if (c.v[i] > c.v[top]) top = i;
    const seen = c.t.length ? c.v[top] : -1, proved = Math.max(seen, zero(obj(holder).bytes));
    const height = clamp(proved, low, low + Math.max(zero(d.stats.peak_error), 0));
    d.height = height;
    const at = num(obj(holder).time_ns);
    if (seen < height * 0.999 && at !== null) return { time: at, bytes: height, drawn: false };
    return c.t.length ? { time: c.t[top], bytes: height, drawn: seen >= height * 0.999 } : null;
}

function readScopes(raw) {
    const list = objs(raw).map(s => ({
        id: num(s.id), parent: zero(s.parent), name: text(s.name) || text(s.path) || 'scope', path: text(s.path) || text(s.name),
        site: s.site, count: num(s.count), delta: obj(s.delta_bytes), peak: num(s.peak_bytes), time: obj(s.time_ns),
        device: num(s.device_time_ns), live: num(s.live_bytes), running: num(s.running),
        calls: arr(s.invocations).filter(Array.isArray), depth: 0, kids: [],
    }));
    const byId = new Map(list.map(s => [s.id, s]));
    for (const s of list) {
        let up = byId.get(s.parent), hops = 0;
        for (let a = up; a && hops < 1000; a = byId.get(a.parent)) hops = a === s ? 1000 : hops + 1;
        s.up = hops < 1000 && up !== s ? up : undefined; // a damaged profile may have a cycle of parents
        s.depth = s.up ? hops : 0;
        if (s.up) s.up.kids.push(s);
    }
    for (const s of list.slice().sort((a, b) => b.depth - a.depth)) // the innermost scopes come first
        s.held = s.live === null ? null : s.live + sum(s.kids, k => k.held);
    return { list, byId };
}

function readDevices(p, raw) {
    const places = objs(raw.capacity), capacity = new Map(places.map(c => [c.device, c]));
    const members = c => Array.isArray(c.devices) ? c.devices : [c.device]; // the devices whose bytes are in a physical device
    const holders = new Map(objs(raw.peak_holders).map(h => [h.device, h]));
    const totals = new Map();
    for (let i = 0; i < p.events.n; i++)
        if (change(p.events, i)) totals.set(p.events.device[i], (totals.get(p.events.device[i]) || 0) + 1);
    return objs(raw.devices).map((s, index) => {
        const d = { index, key: s.device, name: text(s.device) || 'device ' + index, label: text(s.label),
            stats: obj(s.stats), source: s, capacity: obj(capacity.get(s.device)), holder: holders.get(s.device) };
        d.mates = capacity.has(s.device) ? members(d.capacity) : [s.device];
        d.place = places.find(c => c.device !== s.device && members(c).includes(s.device));
        d.arena = sum(objs(raw.devices).filter(x => d.mates.includes(x.device)), untaggedArena);
        d.tags = objs(raw.tags).filter(t => d.mates.includes(t.device));
        d.curve = readCurve(p, d, totals.get(index) || 0);
        d.peak = findPeak(d, d.holder);
        return d;
    });
}

const byPeak = p => p.devices.slice().sort((a, b) => zero(b.stats.peak) - zero(a.stats.peak));

function readMarks(p) {
    const e = p.events, named = p.snapshots.filter(s => s.name).map(s => ({ time: s.time, name: s.name }));
    const known = new Set(named.map(m => m.name));
    const marks = [];
    for (let i = 0; i < e.n; i++) {
        if (e.kind[i] === GC || e.kind[i] === OOM)
            marks.push({ time: e.time[i], oom: e.kind[i] === OOM, device: e.device[i], bytes: e.bytes[i] });
        else if (e.kind[i] === CHECKPOINT && !known.has(e.label(i)))
            named.push({ time: e.time[i], name: e.label(i) });
    }
    p.marks = marks;
    p.checkpoints = named.sort((a, b) => a.time - b.time);
}

function read(raw) {
    const p = { raw, meta: obj(raw.metadata), total: obj(raw.total), strings: arr(raw.strings) };
    p.events = readEvents(raw.events, raw.strings);
    p.snapshots = readSnapshots(raw.snapshots);
    p.scopes = readScopes(raw.scopes);
    const calls = most(p.scopes.list, s => most(s.calls, c => zero(c[0]) + zero(c[1])));
    p.end = Math.max(zero(p.meta.uptime_ns), p.events.n ? p.events.time[p.events.n - 1] : 0,
        most(p.snapshots, s => s.time), calls, 1);
    p.devices = readDevices(p, raw);
    readMarks(p);
    p.slices = readSlices(p);
    p.fit = fitTime(p, calls);
    return p;
}

/* Returns the time from the first to the last thing that happened. The report may have been written long
   after that. */
function fitTime(p, calls) {
    const e = p.events, s = p.snapshots, moved = s.filter((x, i) => i && x.bytes !== s[i - 1].bytes || x.name);
    const last = Math.max(e.n ? e.time[e.n - 1] : 0, most(moved, x => x.time), calls);
    const first = Math.min(e.n ? e.time[0] : Infinity, s.length ? s[0].time : Infinity, p.slices.first);
    const span = last - first;
    if (!(span > 0)) return [0, p.end];
    return [first < span / 10 ? 0 : first - span / 50, last > p.end * 0.95 ? p.end : Math.min(last + span / 50, p.end)];
}

// -- the model: slices of the timeline --

const MAX_ROWS = 128; // the most rows of a thread; slices that overlap more deeply share the last row

/* Returns the invocations in order of their ends, by scope, and by scope and thread. So the event of an
   end finds its invocation. */
function callsByEnd(p) {
    const calls = new Map();
    const keep = (key, c) => calls.has(key) ? calls.get(key).list.push(c) : calls.set(key, { list: [c] });
    for (const s of p.scopes.list)
        for (const call of s.calls) {
            if (num(call[0]) === null || !(zero(call[1]) >= 0)) continue;
            const c = { call, end: call[0] + zero(call[1]), used: false };
            keep(s.id, c);
            keep(s.id + ' ' + zero(call[2]), c);
        }
    for (const c of calls.values()) {
        c.list.sort((a, b) => a.end - b.end);
        c.ends = c.list.map(x => x.end);
    }
    return calls;
}

/* Returns the unused invocation that ended nearest to `end`, of those that ran at some time from `from`
   to `to`. Returns null if there is none. */
function nearest(calls, from, to, end) {
    let best = null;
    if (!calls) return null;
    const off = c => Math.abs(c.end - end), first = above(calls.ends, from - 1, 0, calls.list.length);
    for (const c of calls.list.slice(first, first + 64)) // more than 64 invocations overlap only in a profile that lies
        if (!c.used && c.call[0] <= to && (!best || off(c) < off(best))) best = c;
    return best;
}

/* Returns the invocation of a pair of events, and marks it as used. Returns null if there is none. The
   clock is read once for an event and once for its invocation, and any time may pass between the two. But
   a thread is in only one invocation of a scope at a time. An invocation that was handed over may belong
   to another thread. It is found by its end. */
function takeCall(calls, id, thread, start, end) {
    const near = 2000; // in ns: two readings of the clock are usually at most this far apart
    let c = nearest(calls.get(id + ' ' + thread), start === null ? end : start, end, end);
    if (!c) {
        c = nearest(calls.get(id), end - near, end, end);
        if (!c || c.end > end + near) return null;
    }
    c.used = true;
    return c.call;
}

/* Calls `found` for each begin of a scope and its end in the same thread. A thread that takes a scope
   over and gives it back has events of its own.
   An invocation without an end is still running, and one without a begin began before the first event. */
function eachPair(e, found) {
    const open = new Map(), sums = new Map();
    for (let i = 0; i < e.n; i++) {
        const thread = e.thread[i], id = e.scope[i], kind = e.kind[i];
        if (change(e, i)) sums.set(thread, (sums.get(thread) || 0) + change(e, i));
        if (kind !== BEGIN && kind !== END) continue;
        if (!open.has(id)) open.set(id, new Map());
        const threads = open.get(id);
        if (!threads.has(thread)) threads.set(thread, []);
        if (kind === BEGIN) {
            threads.get(thread).push({ time: e.time[i], sum: sums.get(thread) || 0 });
            continue;
        }
        const begin = threads.get(thread).pop();
        found(id, thread, begin ? begin.time : null, e.time[i], begin ? (sums.get(thread) || 0) - begin.sum : NaN);
    }
    for (const [id, threads] of open)
        for (const [thread, stack] of threads)
            for (const begin of stack) found(id, thread, begin.time, null, (sums.get(thread) || 0) - begin.sum);
}

function readSlices(p) {
    const out = [], calls = callsByEnd(p), e = p.events;
    const add = (id, thread, start, end, delta, call) => {
        if (!p.scopes.byId.has(id))
            p.scopes.byId.set(id, { id, name: 'scope ' + id, path: 'scope ' + id, depth: 0 });
        out.push({ scope: p.scopes.byId.get(id), thread, start, end: Math.max(end, start), delta, call });
    };
    eachPair(e, (id, thread, start, end, delta) => {
        const call = end === null ? null : takeCall(calls, id, thread, start, end);
        const cut = start === null && !call; // true if it is not known when the invocation began
        if (start === null) start = call ? call[0] : e.time[0];
        add(id, thread, start, end === null ? p.end : end, call && num(call[3]) !== null ? call[3] : delta, call);
        Object.assign(out[out.length - 1], { cut, running: end === null });
    });
    p.paired = out.length;
    for (const s of p.scopes.list)
        for (const { call, end, used } of calls.has(s.id) ? calls.get(s.id).list : [])
            if (!used) add(s.id, zero(call[2]), call[0], end, num(call[3]), call);
    return layOut(out);
}

/* Gives each slice a row, which is the first free one below the slices that contain it. */
function layOut(list) {
    list.sort((a, b) => a.thread - b.thread || a.start - b.start || b.end - a.end || a.scope.depth - b.scope.depth);
    const threads = [];
    let first = 0, group = null;
    for (const s of list) {
        if (!group || group.thread !== s.thread) {
            first += group ? group.ends.length : 0;
            group = { thread: s.thread, first, ends: [] };
            threads.push(group);
        }
        const ends = group.ends;
        let row = ends.length;
        while (row > 0 && !(ends[row - 1] >= s.end && ends[row - 1] > s.start)) row--;
        while (row < ends.length && ends[row] > s.start) row++;
        row = Math.min(row, MAX_ROWS - 1);
        ends[row] = Math.max(s.end, ends[row] || 0);
        s.row = group.first + row;
    }
    return pack(list, threads, first + (group ? group.ends.length : 0));
}

/* Puts the slices of all rows into flat arrays, one row after the other. So drawing need not read
   objects. */
function pack(list, threads, rows) {
    const n = list.length, from = new Int32Array(rows + 1);
    for (const s of list) from[s.row + 1]++;
    for (let r = 0; r < rows; r++) from[r + 1] += from[r];
    const next = from.slice(), all = new Array(n), tone = new Uint8Array(n);
    const top = most(list, s => Math.abs(zero(s.delta))); // a slice that changed by at least a sixteenth of `top` has a strong colour
    const start = new Float64Array(n), end = new Float64Array(n), hueOf = new Uint8Array(n);
    for (const s of list) {
        const i = next[s.row]++;
        all[i] = s;
        start[i] = s.start;
        end[i] = s.end;
        hueOf[i] = hue(s.scope.name);
        tone[i] = 2 + Math.sign(zero(s.delta)) * (Math.abs(zero(s.delta)) >= top / 16 ? 2 : 1);
    }
    return { n, rows, from, all, start, end, hueOf, tone, threads, order: null, first: start.reduce((a, b) => Math.min(a, b), Infinity) };
}

// -- the choice: a tag, a site, a scope or a stack. Tables and charts show what has to do with it --

const siteKey = site => siteText(site).replace(/\s+/g, ' ');
const lookup = list => { // returns strings by number, and makes each of them once
    const made = [];
    return i => i in made ? made[i] : made[i] = siteKey(list[i]);
};
const rowKeys = r => ({ tag: text(r.tag), site: siteKey(r.site), scope: text(r.scope) });

/* Returns which key of a row is compared with the choice. A stack is compared by the sites of its frames. */
const keyOf = c => c.sites ? 'site' : c.kind;
/* Returns whether a value is the choice, or is a scope inside a chosen scope. */
const same = (c, value) => c.sites ? c.sites.has(value) : value === c.value || c.kind === 'scope' && !!value && value.startsWith(c.value + '/');

/* Returns a function that returns the tag, the site or the scope of an event. */
function eventKeys(p) {
    const e = p.events, name = lookup(p.strings);
    const of = { tag: i => name(e.tag[i]), site: i => name(e.site[i]), scope: i => obj(p.scopes.byId.get(e.scope[i])).path };
    return (kind, i) => of[kind] ? of[kind](i) || '' : '';
}

/* Returns the tags, sites and scopes that occur together with the choice in an event, a leak or a block. */
function seenWith(p, c) {
    const seen = { tag: new Set(), site: new Set(), scope: new Set() }, kinds = Object.keys(seen);
    const e = p.events, key = eventKeys(p);
    const add = (kind, value) => {
        for (let at = value.length; value && at > 0; at = kind === 'scope' ? value.lastIndexOf('/', at - 1) : 0) // adds a scope, and then each scope around it
            seen[kind].add(value.slice(0, at));
    };
    for (const r of [...objs(obj(p.raw.leaks).by_site), ...objs(obj(p.raw.largest_blocks).blocks)].map(rowKeys))
        if (same(c, r[keyOf(c)])) kinds.forEach(kind => add(kind, r[kind]));
    for (let i = 0; i < e.n; i++)
        if (e.kind[i] === ALLOC && same(c, key(keyOf(c), i))) kinds.forEach(kind => add(kind, key(kind, i)));
    return seen;
}

/* Returns whether a row has to do with the choice. `keys` has the row's tag, site and scope, as far as
   the row has them. */
function belongs(keys) {
    const c = view.choice;
    if (!c || !keys) return true;
    if (keyOf(c) in keys) return same(c, keys[keyOf(c)]);
    return Object.keys(keys).some(kind => c.seen[kind] && c.seen[kind].has(keys[kind]));
}

/* Returns the bytes of the choice on each device over time, as far as the events tell. */
function readParts(p, c) {
    const e = p.events, key = eventKeys(p), held = new Map(), steps = p.devices.map(() => ({ t: [], by: [] }));
    const step = (i, by) => {
        const s = steps[e.device[i]];
        if (s) s.t.push(e.time[i]), s.by.push(by);
    };
    for (let i = 0; i < e.n; i++) {
        const kind = e.kind[i], id = e.device[i] + ' ' + e.storage(i);
        if ((kind === ALLOC || kind === MOVE) && same(c, key(keyOf(c), i))) held.set(id, e.bytes[i]), step(i, e.bytes[i]);
        else if (kind === FREE && held.has(id)) step(i, -held.get(id)), held.delete(id);
        else if (kind === FREE && c.kind === 'tag' && same(c, key('tag', i))) step(i, -e.bytes[i]); // the block was allocated before the first event
    }
    p.devices.forEach((d, i) => d.part = e.n ? readPart(p, c, d, steps[i]) : null);
}

function readPart(p, c, d, { t, by }) {
    const rows = objs(p.raw[keyOf(c) + 's']).filter(r => r.device === d.key && same(c, rowKeys(r)[keyOf(c)]));
    const end = sum(rows, r => c.kind === 'tag' ? r.allocated : r.live_bytes), v = [];
    let level = 0, low = 0;
    for (const x of by) low = Math.min(low, level += x);
    level = !p.events.lost ? 0 : c.kind === 'scope' ? -low : Math.max(end - level, -low);
    const first = level;
    for (const x of by) v.push(level = Math.max(level + x, 0));
    return first || t.length ? { t: [p.events.time[0], ...t, p.end], v: [first, ...v, level], fine: 0 } : null;
}

/* Returns the address of a section with a choice. Half of a character cannot be in an address, so it is
   left out. */
const address = (section, c) => '#' + [section, c && c.kind + '=' + encodeURIComponent(c.value.replace(/[\ud800-\udfff]/gu, ''))].filter(Boolean).join('&');
const link = (words, section, kind, value) => el('a', { href: address(section, kind && { kind, value }), title: kind ? 'Only ' + kind + ' ' + value : null }, words);

/* Sets the choice, and draws tables and charts for it. */
function apply(c) {
    const p = view.profile, root = $('chosen');
    if (!p || c === view.choice) return;
    if (c && c.kind === 'stack') c = Object.assign({}, c, { sites: sitesUnder(p, c.value) });
    view.choice = c && Object.assign({}, c, { seen: seenWith(p, c) });
    p.devices.forEach(d => d.part = null);
    if (c) readParts(p, c);
    root.hidden = !c;
    if (c) fill(root, el('span', `Only ${c.kind} `, el('b', c.value || '(none)')), button('×', () => choose(null), { 'aria-label': 'Show all again' }));
    view.renders.forEach(render => render());
    redraw();
    say(c ? `only ${c.kind} ${c.value}` : 'all is shown again');
}

/* Shows what has to do with { kind, value }, where the kind is tag, site, scope or stack, or shows all if
   that is null. A table without such a kind shows the rows that occur together with the choice in events,
   leaks and blocks. */
function choose(c, section) {
    history.pushState(null, '', address(section, c));
    apply(c);
    if (section && $(section)) $(section).scrollIntoView();
}

/* Follows an address such as "#sites&tag=weights". An address without a choice ends the choice, unless
   `keep` is set. */
function follow(hash, keep) {
    let section = '', c = null;
    for (const part of hash.slice(1).split('&')) {
        const [, kind, value] = /^(tag|site|scope|stack)=(.*)$/.exec(part) || [];
        if (!kind) section = part;
        else try { c = { kind, value: decodeURIComponent(value) }; } catch (error) { c = null; } // this is no address of this page
    }
    if (keep) return choose(c || view.choice, section);
    apply(c);
    if ($(section)) $(section).scrollIntoView();
}

// -- charts: the range of time that they share --

const FONT = '11px system-ui, "Liberation Sans", sans-serif';

function stroke(g, colour, x0, y0, x1, y1, dash) {
    g.strokeStyle = colour;
    g.setLineDash(dash || []);
    g.beginPath();
    g.moveTo(x0, y0);
    g.lineTo(x1, y1);
    g.stroke();
    g.setLineDash([]);
}

function write(g, colour, words, x, y, align) {
    g.fillStyle = colour;
    g.textAlign = align || 'left';
    g.fillText(words, x, y);
}

const view = { from: 0, to: 1, end: 1, fit: [0, 1], charts: [], renders: [], choice: null, due: false };

function redraw() {
    if (view.due) return;
    view.due = true;
    requestAnimationFrame(drawNow);
}

function drawNow() {
    view.due = false;
    for (const chart of view.charts) chart.draw();
}

function look(from, to) {
    const span = clamp(to - from, Math.min(Math.max(100, view.end * 1e-9), view.end), view.end);
    view.from = clamp(from, 0, view.end - span);
    view.to = view.from + span;
    redraw();
    const all = view.to - view.from > view.end * 0.999999, range = $('range');
    if (range) range.textContent = all ? 'all ' + duration(view.end)
        : `${duration(span)} from ${instant(view.from, span / 100)}, of ${duration(view.end)}`;
}

/* Shows the time in which something happened. If that is shown already, shows all the time from 0 to the
   report. */
const home = () => view.from === view.fit[0] && view.to === view.fit[1] ? look(0, view.end) : look(...view.fit);
const zoom = (at, factor) => look(at - (at - view.from) * factor, at + (view.to - at) * factor);
const middle = () => (view.from + view.to) / 2;
const pan = part => look(view.from + part * (view.to - view.from), view.to + part * (view.to - view.from));

/* Prepares the canvas of a chart for drawing, as wide as the page. */
function prepare(chart, height) {
    const c = chart.canvas, width = c.parentElement.clientWidth, ratio = window.devicePixelRatio || 1;
    if (chart.width !== width || chart.height !== height || chart.ratio !== ratio) {
        c.width = Math.round(width * ratio);
        c.height = Math.round(height * ratio);
        c.style.height = height + 'px';
        Object.assign(chart, { width, height, ratio });
    }
    chart.left = width < 600 ? 58 : 92;
    const g = c.getContext('2d');
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    g.font = FONT;
    g.textBaseline = 'middle';
    g.lineWidth = 1;
    c.dataset.from = view.from;
    c.dataset.to = view.to;
    return g;
}

const xOf = (chart, t) => chart.left + (t - view.from) / (view.to - view.from) * (chart.width - chart.left - 1);
const timeAt = (chart, x) =>
    view.from + (x - chart.left) / Math.max(chart.width - chart.left - 1, 1) * (view.to - view.from);

/* Returns as much of a name as fits into a width, in whole characters. Characters from U+1100 on count as
   two, because measuring each name would take longer than drawing it. */
function fitted(name, width) {
    let room = width / 6.1, cut = 0;
    for (const c of name) {
        room -= c >= '\u1100' ? 1.9 : 1;
        if (room < 0) return cut ? name.slice(0, cut) + '…' : '';
        if (room >= 1) cut += c.length;
    }
    return name;
}

function drawAxis(g, chart, top, bottom) {
    const span = view.to - view.from, room = (chart.width - chart.left) / 100;
    const raw = span / Math.max(room, 1), ten = Math.pow(10, Math.floor(Math.log10(raw)));
    const minutes = raw / 60e9, step = view.to < LONG || minutes < 0.5 ? [1, 2, 5, 10].find(k => k * ten >= raw) * ten
        : ([1, 2, 5, 10, 20, 30, 60, 120, 180, 360, 720].find(k => k >= minutes) || Math.ceil(minutes / 1440) * 1440) * 60e9;
    for (let k = Math.ceil(view.from / step); k * step <= view.to; k++) {
        const x = Math.round(xOf(chart, k * step)) + 0.5;
        stroke(g, ink.grid, x, top, x, bottom);
        if (x < chart.width - 40) write(g, ink.soft, instant(k * step, step), x + 4, top + 9);
    }
}

function chartKeys(chart, event) {
    if (event.key === '+' || event.key === '=') zoom(chart.focus(), 1 / 1.5);
    else if (event.key === '-' || event.key === '_') zoom(chart.focus(), 1.5);
    else if (event.key === '0' || event.key === 'Home') home();
    else return false;
    return true;
}

/* Handles the mouse, touch, wheel and keys of a chart. The handlers in `on` are hover(x, y), leave(),
   tap(x, y), key(event) and scroll(dy). If `on.drags` is set, one finger pans. Otherwise it moves the
   cursor. */
function navigate(chart, on) {
    const c = chart.canvas, down = new Map();
    const spot = e => {
        const r = c.getBoundingClientRect();
        return { x: e.clientX - r.left, y: e.clientY - r.top, moved: 0, type: e.pointerType };
    };
    const up = e => {
        const was = down.get(e.pointerId);
        down.delete(e.pointerId);
        if (was && was.moved <= 3 && e.type === 'pointerup' && on.tap) on.tap(was.x, was.y);
    };
    listen(c, {
        pointerdown: e => {
            if (e.button) return;
            c.setPointerCapture(e.pointerId);
            down.set(e.pointerId, spot(e));
            if (e.pointerType !== 'mouse') on.hover(spot(e).x, spot(e).y);
        },
        pointermove: e => {
            const now = spot(e), was = down.get(e.pointerId);
            if (!was) return on.hover(now.x, now.y);
            now.moved = was.moved + Math.abs(now.x - was.x) + Math.abs(now.y - was.y);
            down.set(e.pointerId, now);
            if (down.size === 2) pinch(chart, down, e.pointerId, was);
            else if (was.type !== 'mouse' && !on.drags) on.hover(now.x, now.y);
            else if (now.moved > 3) {
                on.leave();
                pan((was.x - now.x) / (chart.width - chart.left));
                if (on.scroll) on.scroll(was.y - now.y);
            }
        },
        pointerup: up, pointercancel: up, blur: on.leave,
        pointerleave: e => e.pointerType === 'mouse' && !down.size && on.leave(),
        wheel: e => wheel(chart, e, on, spot(e)),
        keydown: e => e.ctrlKey || e.metaKey || e.altKey || (on.key(e) || chartKeys(chart, e)) && e.preventDefault(),
    });
}

function pinch(chart, down, id, was) {
    const [a, b] = down.values(), now = down.get(id), other = now === a ? b : a;
    const before = Math.abs(was.x - other.x), after = Math.abs(now.x - other.x);
    if (before < 8 || after < 8) return;
    const held = timeAt(chart, (was.x + other.x) / 2);
    const scale = (view.to - view.from) * before / after / (chart.width - chart.left);
    const from = held - ((now.x + other.x) / 2 - chart.left) * scale;
    look(from, from + scale * (chart.width - chart.left));
}

/* Zooms around the pointer. If all that happened is shown already, scrolling down scrolls the page. */
function wheel(chart, e, on, { x, y }) {
    const lines = e.deltaMode === 1 ? 16 : e.deltaMode === 2 ? 400 : 1;
    const dx = e.deltaX * lines, dy = e.deltaY * lines;
    if (e.shiftKey && on.scroll) on.scroll(dx || dy);
    else if (Math.abs(dx) > Math.abs(dy)) pan(dx / (chart.width - chart.left));
    else if (dy > 0 && view.to - view.from >= view.fit[1] - view.fit[0]) return;
    else zoom(timeAt(chart, Math.max(x, chart.left)), Math.exp(clamp(dy, -240, 240) / 400));
    e.preventDefault();
    on.hover(x, y);
}

function showTip(chart, x, y, title, pairs) {
    const tip = $('tip'), r = chart.canvas.getBoundingClientRect();
    fill(tip, el('b', title), el('dl', ...[].concat(...pairs.map(([name, value, tip]) =>
        [el('dt', name), el('dd', { title: tip }, value)]))));
    tip.hidden = false;
    const w = tip.offsetWidth, h = tip.offsetHeight;
    let left = r.left + x + 14, top = r.top + y + 14;
    if (left + w > innerWidth - 8) left = r.left + x - w - 14;
    if (top + h > innerHeight - 8) top = r.top + y - h - 14;
    tip.style.transform = `translate(${Math.max(left, 8)}px, ${Math.max(top, 8)}px)`;
}
const hideTip = () => $('tip').hidden = true;
const say = words => $('live').textContent = words;

// -- memory over time --

const LANE = 92, HEAD = 40;
const curves = { shown: 8, cursor: null, draw: drawCurves };

function drawCurves() {
    const p = curves.profile, lanes = curves.lanes.slice(0, curves.shown);
    const g = prepare(curves, HEAD + lanes.length * LANE + 2);
    drawAxis(g, curves, 0, curves.height);
    drawCheckpoints(g, p.checkpoints);
    lanes.forEach((d, i) => drawLane(g, d, HEAD + i * LANE));
    g.clearRect(0, 0, curves.left, curves.height);
    lanes.forEach((d, i) => drawScale(g, d, HEAD + i * LANE));
    if (curves.cursor === null) return;
    const x = xOf(curves, curves.cursor);
    stroke(g, ink.ink, x, 14, x, curves.height);
    g.fillStyle = ink.ink;
    lanes.forEach((d, i) => {
        const level = levelAt(d.curve, curves.cursor);
        if (level === null) return;
        g.beginPath();
        g.arc(x, yOf(d, HEAD + i * LANE, level), 3, 0, 7);
        g.fill();
    });
}

/* Returns the highest level that a lane has to show. There is room for names above it. */
function scaleOf(d) {
    const high = Math.max(d.curve.v.reduce((a, b) => Math.max(a, b), 1), d.height), limit = zero(d.stats.limit);
    return limit > 0 && limit < high * 2 ? Math.max(limit, high) : high;
}
const yOf = (d, top, level) => top + LANE - 1 - level / d.scale * (LANE - 24);

function drawLane(g, d, top) {
    const base = top + LANE - 1, right = curves.width;
    g.save();
    g.beginPath();
    g.rect(curves.left, top, right - curves.left, LANE);
    g.clip();
    drawArea(g, d, d.curve, top, ink.accent, ink.fill);
    if (d.part) drawArea(g, d, d.part, top, ink.accent, ink.shades[hue(view.choice.value)]);
    const limit = zero(d.stats.limit);
    if (limit > 0 && limit <= d.scale) stroke(g, ink.warn, curves.left, yOf(d, top, limit), right, yOf(d, top, limit), [4, 4]);
    drawMarks(g, d, top);
    if (d.peak) drawPeak(g, d, top);
    g.restore();
    stroke(g, ink.rule, 0, base + 0.5, right, base + 0.5);
}

function drawArea(g, d, curve, top, line, area) {
    const base = top + LANE - 1;
    g.strokeStyle = line;
    g.fillStyle = area;
    g.lineWidth = 1.5;
    tracePath(g, d, curve, top);
    g.stroke();
    g.lineTo(curves.width, base);
    g.lineTo(Math.max(xOf(curves, curve.t[0]), curves.left), base);
    g.fill();
    g.lineWidth = 1;
}

/* Draws a curve with at most one vertical stroke for each column of pixels, however many events fall into
   the column. */
function tracePath(g, d, { t, v, fine }, top) {
    const n = t.length;
    let i = Math.max(above(t, view.from, 0, n) - 1, 0), column = -1, low = 0, high = 0, last = 0;
    const rise = () => column >= 0 && [low, high, last].forEach(y => g.lineTo(column + 0.5, y));
    g.beginPath();
    for (let begun = false; i < n; i++) {
        const x = clamp(xOf(curves, t[i]), -1e5, 1e5), y = yOf(d, top, v[i]);
        if (!begun) {
            g.moveTo(x, y);
            begun = true;
        } else if (i > fine && Math.floor(x) === column) {
            low = Math.min(low, y);
            high = Math.max(high, y);
        } else {
            rise();
            if (i > fine) g.lineTo(x, last);
            g.lineTo(x, y);
            column = i >= fine ? Math.floor(x) : -1;
            low = high = y;
        }
        last = y;
        if (t[i] > view.to) break;
    }
    rise();
}

function drawMarks(g, d, top) {
    let last = [-9, -9];
    for (const m of curves.profile.marks) {
        if (m.device !== d.index || m.time < view.from || m.time > view.to) continue;
        const x = xOf(curves, m.time), kind = Number(m.oom);
        if (x - last[kind] < 2) continue;
        last[kind] = x;
        g.fillStyle = m.oom ? ink.warn : ink.good;
        g.fillRect(x - 0.5, top + 20, 1, LANE - 21);
        g.beginPath();
        g.moveTo(x - 4, top + LANE - (m.oom ? 2 : 9));
        g.lineTo(x + 4, top + LANE - (m.oom ? 2 : 9));
        g.lineTo(x, top + LANE - (m.oom ? 9 : 2));
        g.fill();
    }
}

function drawPeak(g, d, top) {
    const x = xOf(curves, d.peak.time), y = yOf(d, top, d.peak.bytes), label = 'peak ' + bytes(d.peak.bytes);
    if (x < curves.left - 5 || x > curves.width + 5) return;
    g.strokeStyle = g.fillStyle = ink.accent;
    g.beginPath();
    g.arc(x, y, 3.5, 0, 7);
    if (d.peak.drawn) g.fill();
    else g.stroke();
    g.textAlign = 'left';
    g.lineWidth = 3;
    g.strokeStyle = ink.paper;
    g.fillStyle = ink.ink;
    const at = [label, clamp(x - 4, curves.left + 2, curves.width - g.measureText(label).width - 3), y - 11];
    g.strokeText(...at);
    g.fillText(...at);
    g.lineWidth = 1;
}

function drawScale(g, d, top) {
    const step = Math.pow(2, Math.ceil(Math.log2(d.scale / 4)));
    g.font = '600 ' + FONT;
    write(g, ink.ink, fitted(d.name, curves.left - 6), 0, top + 10);
    g.font = FONT;
    for (let level = step; level <= d.scale; level += step) {
        const y = yOf(d, top, level);
        if (y < top + (d.label ? 30 : 18)) break;
        write(g, ink.soft, bytes(level), curves.left - 6, y, 'right');
        g.fillRect(curves.left - 4, y, 4, 1);
    }
    if (d.label && curves.left > 60) write(g, ink.soft, fitted(d.label, curves.left - 6), 0, top + 24);
}

/* Draws the checkpoints as a strip above the lanes. A name that would run into the next one is shown only
   at the cursor. If there are few checkpoints, their lines go through the lanes. Otherwise only the line
   of the checkpoint at the cursor does. */
function drawCheckpoints(g, list) {
    const seen = list.map(m => ({ x: Math.round(xOf(curves, m.time)) + 0.5, name: m.name })).filter(m => m.x >= curves.left && m.x <= curves.width);
    const at = curves.cursor === null ? -99 : xOf(curves, curves.cursor), off = m => Math.abs(m.x - at);
    const near = seen.reduce((a, m) => off(m) < (a ? off(a) : 8) ? m : a, null);
    let free = -1, line = -9;
    for (const m of seen) {
        if (m.x - line < 2 && m !== near) continue;
        line = m.x;
        stroke(g, m === near ? ink.ink : ink.soft, m.x, HEAD - 8, m.x, HEAD - 1);
        if (m === near || seen.length <= 12) stroke(g, m === near ? ink.soft : ink.rule, m.x, HEAD, m.x, curves.height, [2, 3]);
        const name = fitted(m.name, 160), w = g.measureText(name).width, from = Math.min(m.x, curves.width - w - 2);
        if (near && m !== near && from < near.x + 170 && from + w > near.x - 8 || from < free + 8) continue;
        free = from + w;
        write(g, ink.ink, name, from, HEAD - 15);
    }
}

function pointAt(time, x, y, aloud) {
    const c = curves, p = c.profile, near = (view.to - view.from) / c.width * 4;
    c.cursor = clamp(time, view.from, view.to);
    const pairs = c.lanes.slice(0, Math.min(c.shown, 16)).map(d => {
        const level = levelAt(d.curve, c.cursor);
        const part = d.part && levelAt(d.part, c.cursor);
        return [d.name, (d.part ? bytes(part) + ' of ' : '') + (level === null ? '–' : bytes(Math.round(level)))];
    });
    if (c.shown > pairs.length) pairs.push(['not listed here', many(c.lanes.length - pairs.length, 'device')]);
    const close = list => list.filter(m => Math.abs(m.time - c.cursor) <= near).slice(0, 3);
    for (const m of close(p.checkpoints)) pairs.push(['checkpoint', m.name]);
    for (const m of close(p.marks))
        pairs.push([m.oom ? 'out of memory, wanted' : 'collected', bytes(m.bytes)]);
    const title = instant(c.cursor, (view.to - view.from) / 1000);
    showTip(c, x === null ? xOf(c, c.cursor) : x, y, title, pairs);
    if (aloud) say(title + ': ' + pairs.map(q => q.join(' ')).join(', '));
    redraw();
}

function curveKey(event) {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === 'Escape') return leaveCurves(), true;
    if (!way) return false;
    const span = view.to - view.from, step = span / (event.shiftKey ? 10 : 100);
    const to = clamp(curves.focus() + way * step, 0, view.end);
    if (to < view.from || to > view.to) look(view.from + way * span / 4, view.to + way * span / 4);
    pointAt(to, null, HEAD, true);
    return true;
}

function leaveCurves() {
    curves.cursor = null;
    hideTip();
    redraw();
}

const LANES = 120; // a canvas cannot be higher than all of these

function showMemory(p, body) {
    const lanes = byPeak(p).filter(d => d.curve.t.length);
    if (!lanes.length) return false;
    for (const d of lanes) d.scale = scaleOf(d);
    const canvas = el('canvas', { tabindex: 0, role: 'application', 'aria-label':
        'Live bytes per device over time. Left and right move the cursor and read the values.' });
    Object.assign(curves, { canvas, profile: p, lanes, shown: 8, cursor: null, width: 0,
        focus: () => curves.cursor === null ? middle() : curves.cursor });
    view.charts.push(curves);
    navigate(curves, { hover: (x, y) => x >= curves.left ? pointAt(timeAt(curves, x), x, y) : leaveCurves(),
        leave: leaveCurves, key: curveKey });
    const more = button(`More of ${count(lanes.length)} devices`, () => {
        curves.shown = Math.min(curves.shown + 16, LANES, lanes.length);
        more.hidden = curves.shown >= Math.min(LANES, lanes.length);
        redraw();
    });
    more.hidden = lanes.length <= curves.shown;
    const key = (mark, words, kind) => el('li', el('i', { class: kind }, mark), words);
    const oom = p.marks.some(m => m.oom), gc = p.marks.some(m => !m.oom);
    fill(body, el('div', canvas), el('ul.keys', key('●', 'peak'),
        lanes.some(d => d.peak && !d.peak.drawn) && key('○', 'peak between snapshots'),
        p.checkpoints.length ? key('ı', 'checkpoint') : null, gc ? key('▼', 'collection', 'g') : null,
        oom ? key('▲', 'out of memory', 'w') : null,
        el('li', p.events.n ? `${many(p.events.n, 'event')} since ${duration(p.events.time[0])}` +
            (p.events.lost ? `, ${count(p.events.lost)} older ones overwritten` : '')
            : many(p.snapshots.length, 'snapshot')),
        lanes.length > LANES && el('li', `${many(lanes.length - LANES, 'device')} with lower peaks not drawn`)), el('p.tools', more));
    return true;
}

// -- timeline of scopes --

const ROW = 18, TOP = 22, GAP = 8;
const timeline = { selected: -1, tones: false, draw: drawTimeline };

/* Returns the top of each row. There is a gap above the first row of each thread. */
function rowTops(s) {
    const tops = new Float64Array(s.rows + 1);
    let group = 0, y = TOP;
    for (let r = 0; r < s.rows; r++) {
        while (group < s.threads.length && s.threads[group].first === r) group++, y += GAP;
        tops[r] = y;
        y += ROW;
    }
    tops[s.rows] = y + GAP;
    return tops;
}

function drawTimeline() {
    const c = timeline, s = c.slices, box = $('lanes');
    const g = prepare(c, Math.max(Math.min(c.tops[s.rows], innerHeight * 0.7), 60));
    const scroll = box.scrollTop;
    let row = above(c.tops, scroll + TOP - ROW, 0, s.rows);
    const first = row;
    g.textAlign = 'left';
    for (; row < s.rows && c.tops[row] - scroll < c.height; row++) drawRow(g, s, row, c.tops[row] - scroll);
    if (c.selected >= 0) outline(g, s.all[c.selected], scroll);
    g.clearRect(0, 0, c.width, TOP);
    g.clearRect(0, 0, c.left, c.height);
    drawAxis(g, c, 0, TOP);
    drawThreads(g, s, first, row, scroll);
}

function drawThreads(g, s, first, last, scroll) {
    s.threads.forEach((t, i) => {
        const end = i + 1 < s.threads.length ? s.threads[i + 1].first : s.rows;
        if (end <= first || t.first >= last) return;
        const y = timeline.tops[t.first] - scroll, low = timeline.tops[end - 1] - scroll;
        g.fillStyle = ink.rule;
        if (y > TOP) g.fillRect(0, Math.round(y - GAP / 2), timeline.width, 1);
        const name = (timeline.left > 60 ? 'thread ' : 'thr ') + t.thread;
        write(g, ink.soft, fitted(name, timeline.left - 4), 0, clamp(TOP + 9, y + 9, low + 9));
    });
}

/* Draws a row. Slices that are narrower than a pixel share one stroke with those that follow in the same
   pixel. So a row costs at most a stroke and a binary search for each of its pixels. */
function drawRow(g, s, row, y) {
    const c = timeline, high = s.from[row + 1], colour = i => c.tones ? ink.tones[s.tone[i]]
        : view.choice && !belongs({ scope: s.all[i].scope.path }) ? ink.grid : ink.shades[s.hueOf[i]];
    let i = above(s.end, view.from - 0.5, s.from[row], high), run = null; // a slice that ended at the left edge is drawn
    const flush = () => {
        if (run) g.fillStyle = run.colour, g.fillRect(run.x, y, run.w, ROW - 2);
        run = null;
    };
    while (i < high && s.start[i] < view.to) {
        const x0 = Math.max(xOf(c, s.start[i]), c.left), x1 = Math.min(xOf(c, s.end[i]), c.width);
        if (x1 - x0 >= 1) {
            flush();
            g.fillStyle = colour(i);
            g.fillRect(x0, y, Math.max(x1 - x0 - 0.5, 1), ROW - 2);
            if (x1 - x0 > 26) write(g, ink.ink, fitted(s.all[i].scope.name, x1 - x0 - 8), x0 + 4, y + ROW / 2);
            i++;
            continue;
        }
        const x = Math.floor(x0), now = colour(i);
        if (run && run.colour === now && run.x + run.w === x) run.w++;
        else flush(), run = { x, w: 1, colour: now };
        i = above(s.end, timeAt(c, x + 1), i + 1, high);
    }
    flush();
}

function outline(g, slice, scroll) {
    const c = timeline, x0 = Math.max(xOf(c, slice.start), c.left - 3), x1 = Math.min(xOf(c, slice.end), c.width + 3);
    g.strokeStyle = ink.ink;
    g.lineWidth = 2;
    g.strokeRect(x0 - 0.5, c.tops[slice.row] - scroll - 1, Math.max(x1 - x0, 2), ROW);
    g.lineWidth = 1;
}

function sliceAt(x, y) {
    const c = timeline, s = c.slices, at = y + $('lanes').scrollTop;
    const row = above(c.tops, at, 0, s.rows) - 1;
    if (y < TOP || x < c.left || row < 0 || at > c.tops[row] + ROW) return -1;
    const i = above(s.end, timeAt(c, x - 1), s.from[row], s.from[row + 1]);
    return i < s.from[row + 1] && s.start[i] <= timeAt(c, x + 1) ? i : -1;
}

function sliceFacts(s) {
    const call = s.call || [], step = Math.max(s.end - s.start, 1000) / 1000;
    const delta = num(s.delta), peak = num(call[7]);
    return [['duration', (s.cut ? 'at least ' : '') + duration(s.end - s.start) + (s.running ? ', running' : '')],
        delta !== null && ['delta', signed(delta), exact(delta)],
        num(call[4]) !== null && ['blocks', plus(call[4]) + count(call[4])],
        peak !== null && ['peak inside', bytes(peak)],
        num(call[5]) !== null && ['before, after', bytes(call[5]) + ', ' + bytes(num(call[6]))],
        ['start', (s.cut ? 'before ' : '') + instant(s.start, step)], ['end', instant(s.end, step)],
        ['thread', String(s.thread)], call[8] && ['shapes', text(call[8])]].filter(Boolean);
}

function select(i, aloud) {
    const c = timeline, s = c.slices.all[i];
    c.selected = i;
    redraw();
    if (i < 0) return hideTip();
    if (aloud) {
        const span = view.to - view.from, long = s.end - s.start;
        if (s.end < view.from || s.start > view.to || long < span / 400)
            look(s.start - Math.min(span, long * 50) / 4, s.start + Math.min(span, Math.max(long * 50, 1e3)) * 3 / 4);
        const box = $('lanes'), y = c.tops[s.row];
        box.scrollTop = clamp(box.scrollTop, y + ROW - c.height + GAP, y - TOP - GAP);
        say(s.scope.path + ', ' + sliceFacts(s).map(f => f[0] + ' ' + f[1]).join(', '));
    }
    showTip(c, clamp(xOf(c, s.start), c.left, c.width), c.tops[s.row] - $('lanes').scrollTop + ROW, s.scope.path, sliceFacts(s));
}

/* Selects the next or the previous slice in order of time. The order is computed when it is first needed. */
function walk(way) {
    const s = timeline.slices;
    if (!s.order) {
        s.order = Uint32Array.from(s.all.keys()).sort((a, b) => s.start[a] - s.start[b] || s.all[a].row - s.all[b].row);
        s.order.forEach((i, rank) => s.all[i].rank = rank);
    }
    const here = timeline.selected >= 0 ? s.all[timeline.selected].rank + way
        : s.order.findIndex(i => s.start[i] >= view.from);
    select(s.order[clamp(here, 0, s.n - 1)], true);
}

/* Selects the slice above or below the selected one. */
function step(way) {
    const s = timeline.slices, now = s.all[timeline.selected], row = now ? now.row + way : -1;
    if (!now || row < 0 || row >= s.rows) return;
    const i = Math.min(above(s.end, now.start, s.from[row], s.from[row + 1]), s.from[row + 1] - 1);
    if (i >= s.from[row]) select(i, true);
}

function timelineKey(event) {
    const far = event.shiftKey ? 0.8 : 0.15;
    if (event.key === 'ArrowLeft') pan(-far);
    else if (event.key === 'ArrowRight') pan(far);
    else if (event.key === 'Enter') walk(event.shiftKey ? -1 : 1);
    else if (event.key === 'Escape') select(-1);
    else if (event.key === 'ArrowUp' && timeline.selected >= 0) step(-1);
    else if (event.key === 'ArrowDown' && timeline.selected >= 0) step(1);
    else return false;
    return true;
}

function hoverSlice(x, y) {
    const i = sliceAt(x, y), s = timeline.slices.all[i];
    timeline.canvas.style.cursor = s ? 'pointer' : '';
    if (s) showTip(timeline, x, y, s.scope.path, sliceFacts(s));
    else hideTip();
}

function showTimeline(p, body) {
    const s = p.slices;
    if (!s.n) return false;
    const canvas = el('canvas', { tabindex: 0, role: 'application', 'aria-label':
        'Timeline of scopes, ' + many(s.n, 'invocation') + '. Enter walks from scope to scope.',
        dblclick: () => {
            const now = s.all[timeline.selected];
            if (now) look(now.start - (now.end - now.start) * 0.1, now.end + (now.end - now.start) * 0.1);
        } });
    Object.assign(timeline, { canvas, slices: s, tops: rowTops(s), selected: -1, width: 0,
        focus: () => timeline.selected >= 0 ? s.start[timeline.selected] : middle() });
    view.charts.push(timeline);
    const high = el('div', canvas), box = el('div', { id: 'lanes', scroll: redraw }, high);
    high.style.height = timeline.tops[s.rows] + 'px';
    navigate(timeline, { drags: true, hover: hoverSlice, leave: hideTip, key: timelineKey,
        tap: (x, y) => select(sliceAt(x, y)), scroll: dy => box.scrollTop += dy });
    const late = p.paired < s.n ? 'Each scope keeps its last invocations; the event ring keeps all that fit.' : '';
    const tones = button('Colour by memory', () => {
        timeline.tones = !timeline.tones;
        tones.setAttribute('aria-pressed', String(timeline.tones));
        redraw();
    }, { 'aria-pressed': 'false', title: 'Red grew, green shrank' });
    timeline.tones = false;
    fill(body, view.charts.includes(bands) ? null : rangeTools(), el('div.tools', tones), box, el('p.keys', `${many(s.n, 'invocation')} on ${many(s.threads.length, 'thread')}. ${late}`));
    return true;
}

// -- tables --

/* By kind of cell: how the cell shows a value, and what its title says. */
const SHOW = {
    text: [x => x, x => x.length > 28 ? x : null], bytes: [bytes, exact], signed: [signed, exact], count: [count],
    time: [duration, x => x === null ? null : count(x) + ' ns'], share: [percent],
};
const FIRST = 200; // the number of rows that are rendered before the reader asks for more
const TALL = 14; // the number of rows that the box of a table shows at once
const order = new Intl.Collator('en', { numeric: true });

const compare = (a, b) => typeof a === 'string' ? order.compare(a, b) : a - b;

/* Returns rows in the order of a column. Values that are not known come last in both directions. In a
   tree, children follow their parent. */
function sorted(rows, get, down, tree) {
    const keys = new Map(rows.map(r => [r, get(r)])), blank = x => x === null || x === '';
    const by = (a, b) => {
        const x = keys.get(a), y = keys.get(b);
        return blank(x) || blank(y) ? blank(x) - blank(y) : down ? compare(y, x) : compare(x, y);
    };
    if (!tree) return rows.slice().sort(by);
    const out = [], open = rows.filter(r => !r.up).sort(by).reverse();
    for (let r; (r = open.pop());) {
        out.push(r);
        open.push(...r.kids.filter(k => keys.has(k)).sort(by).reverse());
    }
    return out;
}

function cell(column, row, tops) {
    const value = column.get(row), [show, title] = SHOW[column.kind], words = column.brief ? column.brief(row) : show(value);
    const tip = column.full ? column.full(row) : title && value !== null ? title(value) : null;
    const picked = column.pick && column.value(row);
    const td = el('td', { class: column.kind === 'text' ? 't' : 'n', title: tip }, picked ? link(words, '', column.pick, picked) : words);
    if (column.mono) td.classList.add('mono');
    if (column.indent && row.depth) td.style.paddingLeft = 0.7 + Math.min(row.depth, 12) * 1.1 + 'rem';
    if (column.tone && value) td.classList.add(value < 0 ? 'minus' : 'over');
    if (column.share && value > 0) {
        td.classList.add('share');
        td.style.setProperty('--share', value / tops.get(column) * 100 + '%');
    }
    return td;
}

/* Returns a table. A column is [title, kind, get(row), options]. A column with `add` has a sum, and one
   with `pick` and value(row) has cells that choose that value.
   Options of the table: `name`; `sort` is the title of the column to sort by, and `up` sorts it from the
   least; `tree` means that rows have parents; inner(row) returns the content of an opened row; keys(row)
   returns what is compared with the choice; `of` is the number of rows with those that are not listed;
   `rest` is what these hold, as [name, { column's title: sum }]. On a phone, bytes come first. */
function table(columns, rows, options) {
    columns = columns.map(([title, kind, get, more]) => Object.assign({ title, kind, get }, more))
        .filter(c => c.keep || rows.some(r => c.get(r) !== null && c.get(r) !== ''));
    const main = columns.findIndex(c => c.share && c.kind === 'bytes');
    if (innerWidth < 600 && main > 0) columns.unshift(...columns.splice(main, 1));
    const state = { rows, limit: FIRST, sort: null, down: false, filter: '' }, all = Math.max(zero(options.of), rows.length);
    const [restName, rest] = options.rest || ['', {}], lacks = c => Math.max(zero(rest[c.title]), 0);
    const sums = (c, title, n) => el('td', { class: c.add ? 'n' : null, title: c.add && SHOW[c.kind][1] ? SHOW[c.kind][1](n) : null }, c.add ? SHOW[c.kind][0](n) : title);
    const footLine = (name, get, kind) => el(kind, ...columns.map((c, i) => sums(c, columns.findIndex(d => d.kind === 'text') === i ? name : '', c.add ? get(c) : 0)));
    const tops = new Map(columns.filter(c => c.share).map(c => [c, most(rows, c.get) || 1]));
    const body = el('tbody'), foot = el('tfoot'), shown = el('output'), heads = columns.map(c => el('th', { scope: 'col' },
        button(c.title, () => sortBy(c), { class: c.kind === 'text' ? null : 'n' })));
    const more = button('Show more', () => { state.limit += FIRST * 5; render(); });
    const words = new Map(), texts = columns.filter(c => c.kind === 'text');
    const matches = r => {
        if (!words.has(r)) words.set(r, texts.map(c => (c.full || c.get)(r)).join('\n').toLowerCase());
        return words.get(r).includes(state.filter);
    };
    function render() {
        const c = options.keys && view.choice, found = state.rows.filter(r => (!state.filter || matches(r)) && (!c || belongs(options.keys(r))));
        const list = found.slice(0, state.limit).map(r => line(columns, r, tops, options)), n = found.length;
        const none = n ? '' : state.filter ? `, none match '${text(state.filter, 40)}'` : `, none of ${c.kind} ${text(c.value, 60)}`;
        const whole = n === rows.length, words = `${count(whole ? Math.min(n, state.limit) : n)} of ${count(all)}${none}`;
        fill(body, ...[].concat(...list), none && el('tr', el('td.soft', { colspan: columns.length }, words)));
        shown.textContent = [(none || n < all || rows.length > FIRST) && words, n > TALL && 'click the table to scroll it'].filter(Boolean).join(', ');
        more.parentElement.hidden = n <= state.limit;
        if (columns.some(c => c.add)) fill(foot, whole && columns.some(c => lacks(c)) && footLine(restName, lacks, 'tr.rest'),
            footLine('Total', c => sum(found, c.get) + (whole ? lacks(c) : 0), 'tr'));
    }
    function sortBy(c, down) {
        state.down = down === undefined ? state.sort === c ? !state.down : c.kind !== 'text' : down;
        state.sort = c;
        state.rows = sorted(rows, c.by || c.get, state.down, options.tree);
        columns.forEach((other, i) => other === c
            ? heads[i].setAttribute('aria-sort', state.down ? 'descending' : 'ascending')
            : heads[i].removeAttribute('aria-sort'));
        render();
    }
    const filter = el('input', { type: 'search', placeholder: 'Filter', 'aria-label': 'Filter ' + options.name,
        input: () => { state.filter = filter.value.toLowerCase(); state.limit = FIRST; render(); } });
    const box = el('div.box', { tabindex: 0, role: 'region', 'aria-label': options.name },
        el('table', el('thead', el('tr', ...heads)), body, columns.some(c => c.add) && foot), el('div.more', more));
    if (options.keys) view.renders.push(render);
    const start = columns.find(c => c.title === options.sort) || columns[0];
    sortBy(start, options.up ? false : start.kind !== 'text');
    return el('div', rows.length > 8 ? el('div.tools', filter, shown) : null, box);
}

function line(columns, row, tops, options) {
    const tr = el('tr', ...columns.map(c => cell(c, row, tops)));
    if (!options.inner || !options.inner(row, true)) return [tr];
    let open = null;
    const toggle = button('▸', () => {
        if (open) open.remove(), open = null;
        else tr.after(open = el('tr', el('td.inner', { colspan: columns.length }, options.inner(row))));
        toggle.setAttribute('aria-expanded', String(!!open));
        toggle.textContent = open ? '▾' : '▸';
    }, { class: 'toggle', 'aria-expanded': 'false', 'aria-label': options.inside });
    (tr.querySelector('.t') || tr.firstChild).prepend(toggle, ' ');
    return [tr];
}

/* These columns are in many tables. */
const T = (title, key, more) => [title, 'text', r => text(r[key]), more];
const N = kind => (title, key, more) => [title, kind, r => num(r[key]), more];
const [B, C] = [N('bytes'), N('count')];
const share = { share: true }, mono = { mono: true };
const site = ['Site', 'text', r => siteText(r.site), { mono: true, brief: r => siteText(r.site, true), pick: 'site', value: r => siteKey(r.site) }];
const [TAG, SCOPE] = ['tag', 'scope'].map(key => T(key === 'tag' ? 'Tag' : 'Scope', key, { pick: key, value: r => text(r[key]) }));

function showTable(rows, body, columns, options) {
    if (!rows.length) return false;
    fill(body, table(columns, rows, options));
    return true;
}

/* Returns what a list lacks of the totals, by the title of a column. For each title, `columns` has the
   key of the total and of a row, or two keys if they differ. */
const lacking = (p, rows, columns) => Object.fromEntries(Object.entries(columns).map(([title, keys]) => {
    const [all, key] = [].concat(keys, keys);
    return [title, zero(p.total[all]) - sum(rows, r => r[key])];
}));

const S = (title, kind, part, key, more) => [title, kind, s => num(s[part][key]), more];

const TABLES = {
    scopes: (p, body) => showTable(p.scopes.list, body, [
        ['Scope', 'text', s => s.depth ? s.name : s.path, { indent: true, full: s => s.path, pick: 'scope', value: s => s.path }],
        B('Held, inclusive', 'held', share), B('Held, exclusive', 'live'), S('Delta, inclusive', 'signed', 'delta', 'total'),
        C('Count', 'count'), S('avg delta', 'signed', 'delta', 'avg'), S('min', 'signed', 'delta', 'min'), S('max', 'signed', 'delta', 'max'),
        B('Peak inside', 'peak'), S('Time', 'time', 'time', 'total'), S('avg time', 'time', 'time', 'avg'), S('max time', 'time', 'time', 'max'),
        ['Device time', 'time', s => s.device || null], ['Running', 'count', s => s.running || null], ['Site', 'text', s => siteText(s.site), mono],
    ], { name: 'scopes', sort: p.scopes.list.some(s => s.held) ? 'Held, inclusive' : 'Delta, inclusive', tree: true, keys: s => ({ scope: s.path }) }),

    tags: (p, body) => showTable(objs(p.raw.tags), body, [
        TAG, T('Device', 'device'), B('Live', 'allocated', { share: true, add: true }), B('Peak', 'peak'), C('Blocks', 'blocks', { add: true }),
        ['Planned', 'bytes', t => num(t.expected) || null],
        ['Variance', 'signed', t => num(t.expected) ? num(t.variance) : null, { tone: true }],
    ], { name: 'tags', sort: 'Live', keys: r => ({ tag: text(r.tag) }), rest: ['Without a tag', lacking(p, objs(p.raw.tags), { Live: 'allocated', Blocks: ['live_blocks', 'blocks'] })] }),

    sites: (p, body) => showTable(groupSites(p), body, [
        ['Function', 'text', g => text(obj(g.site).function) || '(not known)', { pick: 'site', value: g => g.key }],
        ['Place', 'text', g => place(g), { mono: true, brief: g => place(g, true) }],
        ...(objs(p.raw.sites).some(r => objs(r.callers).length) ? [['Called by', 'text', callersText, mono]] : []),
        ['Device', 'text', g => g.on.size > 1 ? g.on.size + ' devices' : text(g.of[0].device), { full: g => [...g.on].map(d => text(d)).join(', ') }],
        B('Live', 'live_bytes', { share: true, add: true }), ['Share', 'share', g => g.part], ['Cumulative', 'share', g => g.up],
        B('Peak', 'peak_bytes', { brief: g => (g.of.length > 1 ? '≤ ' : '') + bytes(g.peak_bytes) }),
        C('Allocs', 'allocs', { add: true }), B('Allocated', 'alloc_bytes', { add: true }), ...freedThere(p, { add: true }),
    ], { name: 'sites', sort: 'Live', keys: g => ({ site: g.key }), inner: siteDevices, inside: 'By device and call', rest: ['Without a site', lacking(p, groupSites(p),
        { Live: ['allocated', 'live_bytes'], Allocs: 'allocs', Allocated: ['total_allocated', 'alloc_bytes'], Frees: 'frees', Freed: ['total_freed', 'free_bytes'] })] }),

    blocks: (p, body) => showTable(objs(obj(p.raw.largest_blocks).blocks), body, [
        ['Name', 'text', r => text(r.name) || text(r.storage), { keep: true }], TAG, B('Bytes', 'bytes', share),
        T('Device', 'device'), T('Type', 'dtype'), ['Shape', 'text', shape], C('References', 'refs'),
        ['Parts', 'count', r => num(obj(r.parts).count)], SCOPE, site, T('Storage', 'storage', mono), T('Stream', 'stream', mono),
        ['Flags', 'count', r => num(r.flags) || null], ['Since mark', 'count', r => num(r.born) || null],
        ['State', 'text', r => r.pending === true || zero(r.pending) ? 'freed, waits for its device' : ''],
    ], { name: 'largest blocks', sort: 'Bytes', of: num(obj(p.raw.largest_blocks).of), inner: parts, inside: 'Parts', keys: rowKeys }),

    leaks: (p, body) => {
        const marked = zero(obj(p.raw.leaks).since_mark), name = marked ? 'Leaks since the mark' : 'Blocks still live', section = body.parentElement;
        section.dataset.nav = section.querySelector('h2').textContent = name;
        body.previousElementSibling.textContent = marked ? `Blocks that were allocated since mark ${marked} ` +
            'and are not freed. What is freed and waits for its device is not among them.' : 'No mark was set, so these are all blocks that are not freed.';
        const leaks = obj(p.raw.leaks), sites = Array.isArray(leaks.sites), listed = objs(sites ? leaks.sites : leaks.by_site); // a profile of 0.4 has only groups
        const groups = sites ? objs(leaks.by_site).map(g => Object.assign({ key: leakKey(g) }, g)) : [], more = obj(leaks.more);
        return showTable(listed, body, [
            site, spread(TAG), spread(SCOPE), spread(T('Device', 'device')), B('Bytes', 'bytes', { share: true, add: true }), C('Blocks', 'count', { add: true }),
        ], { name: name.toLowerCase(), sort: 'Bytes', keys: r => sites && r.site ? { site: siteKey(r.site) } : rowKeys(r),
            of: listed.length + zero(sites ? more.sites : more.groups), inner: (r, ask) => leakGroups(r, groups, ask), inside: 'By tag, scope and device',
            rest: ['Not listed', lacking({ total: leaks }, listed, { Bytes: 'bytes', Blocks: 'count' })] });
    },

    mistakes: (p, body) => {
        const listed = objs(obj(p.raw.mistakes).list), more = zero(obj(p.raw.mistakes).more), at = key => ['', 'text', r => siteText(r[key]), { mono: true, brief: r => siteText(r[key], true) }];
        const shown = showTable(listed, body, [
            T('Mistake', 'kind', { by: r => listed.indexOf(r) }), C('Count', 'count'), B('Bytes', 'bytes', share), Object.assign(at('site'), { 0: 'Call' }), Object.assign(at('born'), { 0: 'Block born at' }),
            TAG, T('Device', 'device'), T('Storage', 'storage', mono), N('time')('First', 'first_ns'), N('time')('Last', 'last_ns'),
        ], { name: 'mistakes' });
        if (more) body.append(el('p.soft', `${count(more)} more were made elsewhere, and are not listed.`));
        return shown;
    },

    streams: (p, body) => {
        const streams = obj(p.raw.streams), rest = obj(streams.rest);
        return showTable(objs(streams.largest), body, [
            T('Stream', 'stream', mono), T('Device', 'device'), B('Bytes', 'bytes', { share: true, add: true }), C('Blocks', 'blocks', { add: true }),
        ], { name: 'streams', sort: 'Bytes', of: num(streams.count), rest: ['On other streams', { Bytes: num(rest.bytes), Blocks: num(rest.blocks) }] });
    },

    accounts: (p, body) => showTable(objs(obj(p.raw.accounts).largest), body, [
        T('Account', 'name'), T('Device', 'device'), B('Held', 'bytes', share), B('Peak', 'peak'), B('Limit', 'limit'),
        C('Refused', 'refused'),
    ], { name: 'accounts', sort: 'Held', of: num(obj(p.raw.accounts).open) }),

    moves: (p, body) => showTable(objs(p.raw.moves), body, [
        T('From', 'from'), T('To', 'to'), C('Moves', 'count'), B('Bytes', 'bytes', share),
        C('Copies', 'copies'), B('Bytes copied', 'copied_bytes', share),
    ], { name: 'moves and copies', sort: 'Bytes' }),

    snapshots: (p, body) => showTable(p.snapshots, body, [
        N('time')('At', 'time'), T('Checkpoint', 'name'), B('Live', 'bytes', share), C('Blocks', 'blocks'), ...byPeak(p).slice(0, COLUMNS).map(d =>
            [d.name, 'bytes', s => num(obj(s.devices.get(d.key)).total_bytes)]),
        ...p.devices.length > COLUMNS ? [[many(p.devices.length - COLUMNS, 'other device'), 'bytes', s => s.bytes - sum(byPeak(p).slice(0, COLUMNS), d => zero(obj(s.devices.get(d.key)).total_bytes))]] : [],
        T('Time', 'stamp'),
    ], { name: 'snapshots', sort: 'At', up: true }),

    threads: (p, body) => showTable(objs(p.raw.threads), body, [
        C('Thread', 'id'), C('Allocs', 'allocs'), C('Frees', 'frees'), B('Allocated', 'bytes_allocated', share),
        B('Freed', 'bytes_freed'),
    ], { name: 'threads', sort: 'Allocated' }),
};

/* Returns the columns of what was freed at a site. There are none if blocks were freed and no free has a
   site, as under the interposer. */
const freedThere = (p, options) => zero(p.total.frees) && !objs(p.raw.sites).some(r => zero(r.frees)) ? [] : [C('Frees', 'frees', options), B('Freed', 'free_bytes', options)];

/* Returns the sites over all devices and return addresses, those with the most live bytes first. Each has
   its part of all live bytes, and the part that it has together with the sites before it. */
function groupSites(p) {
    const groups = new Map(), sums = ['live_bytes', 'peak_bytes', 'allocs', 'alloc_bytes', 'frees', 'free_bytes'];
    const arenas = p.devices.filter(d => zero(d.source.arena) > 0).map(d => ({ site: { function: '(arena)' }, device: d.key, live_bytes: d.source.arena }));
    for (const r of [...objs(p.raw.sites), ...arenas]) {
        const key = siteKey(r.site);
        if (!groups.has(key)) groups.set(key, { key, site: r.site, of: [], on: new Set(), freed: freedThere(p) });
        groups.get(key).of.push(r);
        groups.get(key).on.add(r.device);
    }
    const list = [...groups.values()];
    for (const g of list) for (const key of sums) g[key] = g.of.some(r => num(r[key]) !== null) ? sum(g.of, r => r[key]) : null;
    const total = Math.max(zero(p.total.allocated), sum(list, g => g.live_bytes), 1);
    let up = 0;
    for (const g of sorted(list, g => g.live_bytes, true)) g.part = zero(g.live_bytes) / total, g.up = up += g.part;
    return list;
}

/* Returns the functions that a site was called from. Each has its share of their live bytes or, if there are none,
   of their bytes at the peak or, if there are none of these, of their allocated bytes. */
function callersText(g) {
    const all = g.of.flatMap(r => objs(r.callers)), parts = new Map();
    const key = ['live_bytes', 'at_peak_bytes', 'alloc_bytes'].find(k => k === 'alloc_bytes' || all.some(c => zero(c[k])));
    for (const c of all) parts.set(siteText(c.site, true), zero(parts.get(siteText(c.site, true))) + zero(c[key]));
    const total = Math.max(sum(all, c => c[key]), 1), list = sorted([...parts], c => c[1], true);
    return list.slice(0, 3).map(([caller, part]) => caller + ' ' + percent(part / total)).join(', ') + (list.length > 3 ? ', …' : '');
}

function siteDevices(g, ask) {
    if (ask || g.of.length < 2) return g.of.length > 1;
    return table([T('Device', 'device'), ['Call', 'text', r => text(r.module) && text(r.module).replace(/.*\//, '') + '+0x' + zero(r.offset).toString(16), mono], B('Live', 'live_bytes', share), B('Peak', 'peak_bytes'), C('Allocs', 'allocs'), B('Allocated', 'alloc_bytes'),
        ...g.freed], g.of, { name: 'calls of ' + g.key, sort: 'Live' });
}

/* Returns a column with the tag, scope or device that all leaks of a site have or, if they have several,
   with the number of these. */
function spread([title, kind, get, more]) {
    const word = title.toLowerCase(), n = r => zero(r[word + 's']);
    return [title, kind, r => get(r) || (n(r) ? (n(r) > 1 ? '' : 'partly ') + many(n(r), word) : ''), more];
}

const leakKey = r => r.site ? siteKey(r.site) : '\n' + text(r.tag); // leaks without a site are listed by their tag

function leakGroups(row, groups, ask) {
    const of = groups.filter(g => g.key === leakKey(row));
    if (ask || of.length < 2) return of.length > 1;
    return table([TAG, SCOPE, T('Device', 'device'), B('Bytes', 'bytes', share), C('Blocks', 'count')], of, { name: 'leaks of ' + siteText(row.site), sort: 'Bytes' });
}

const place = (r, brief) => siteText(Object.assign({}, r.site, { function: '' }), brief);
const shape = r => arr(r.shape).slice(0, 16).map(n => text(n)).join(' × ');

function parts(block, ask) {
    const inside = obj(block.parts), rows = objs(inside.listed);
    if (ask || !rows.length) return rows.length;
    const rest = zero(inside.count) - rows.length;
    return el('div', table([
        T('Name', 'name'), C('Offset', 'offset'), B('Bytes', 'bytes', share), T('Type', 'dtype'), ['Shape', 'text', shape], T('Tag', 'tag'),
    ], rows, { name: 'parts of ' + (text(block.name) || text(block.storage)), sort: 'Offset', up: true }),
    rest > 0 ? el('p.soft', count(rest) + ' more are not listed') : null);
}

// -- devices --

/* Returns the parts of which the memory of a device is made. The parts may be more than the total, and
   then the unaccounted bytes are below 0. */
function composition(d) {
    const c = d.capacity, [total, free, unaccounted] = [c.total, c.free, c.unaccounted].map(num);
    const self = num(c.self) === null ? zero(d.stats.allocated) : c.self;
    const held = new Map(); // bytes by tag, because a tag may be on several devices of one physical device
    for (const t of d.tags) held.set(text(t.tag), (held.get(text(t.tag)) || 0) + Math.max(zero(t.allocated), 0));
    const tags = [...held].map(([name, size]) => ({ name, bytes: size, tag: !!name })).filter(t => t.bytes)
        .sort((a, b) => b.bytes - a.bytes);
    const shown = tags.slice(0, 7);
    const others = sum(tags.slice(7), t => t.bytes), rest = num(c.untagged) === null ? self - sum(tags, t => t.bytes) : c.untagged;
    if (others > 0) shown.push({ name: `${tags.length - 7} other tags`, bytes: others, kind: 'grey' });
    const arena = clamp(d.arena, 0, Math.max(rest, 0));
    if (arena > 0) shown.push({ name: 'in arenas', bytes: arena, kind: 'grey' });
    if (rest > arena) shown.push({ name: 'untagged', bytes: rest - arena, kind: 'grey' });
    if ([total, free, unaccounted].includes(null)) return { shown, self, total: null };
    const context = zero(c.context), neighbours = zero(c.neighbours);
    if (context > 0) shown.push({ name: 'driver’s context', bytes: context, kind: 'grey' });
    if (neighbours > 0) shown.push({ name: 'neighbours', bytes: neighbours, kind: 'grey' });
    shown.push({ name: 'unaccounted', bytes: unaccounted, kind: 'hatch' });
    shown.push({ name: 'free', bytes: free, kind: 'free' });
    return { shown, self, total, free, context, unaccounted };
}

const limitOf = d => zero(d.capacity.limit) || zero(d.stats.limit);

/* Returns the parts as one bar. A part that is narrower than a gap has no gap beside it. The host's pool is
   a frame around the bytes that it reserved, and the limit is a line. */
function stackedBar(made, d) {
    const pool = zero(d.stats.reserved), limit = limitOf(d), parts = sum(made.shown, s => Math.max(s.bytes, 0));
    const whole = Math.max(parts, pool, made.total === null ? limit : 0), marks = [['pool', pool], ['limit', limit]].filter(m => m[1] > 0);
    const bar = el('div.stack', { role: 'img', 'aria-label': [...made.shown.map(s => s.name + ' ' + bytes(s.bytes)),
        ...marks.map(m => m[0] + ' ' + bytes(m[1]))].join(', ') || 'no bytes' });
    for (const s of made.shown) {
        if (s.bytes <= 0 || s.kind === 'free' || !whole) continue;
        const part = paint(el('i', { title: `${s.name}: ${exact(s.bytes)}` }), s);
        part.style.width = s.bytes / whole * 100 + '%';
        if (s.bytes < whole / 100) part.style.boxShadow = 'none';
        bar.append(part);
    }
    for (const [kind, size] of marks) {
        const mark = el('em.' + kind, { title: `${kind}: ${exact(size)}` });
        mark.style.width = Math.min(size / whole, 1) * 100 + '%';
        if (size <= whole) bar.append(mark);
    }
    return bar;
}

/* Returns the bar with the names and bytes of its parts. */
function barWithLegend(made, d) {
    const marks = [['pool', zero(d.stats.reserved), 'reserved by the host’s pool'], ['limit', limitOf(d), 'limit']].filter(m => m[1] > 0);
    return el('div', stackedBar(made, d), el('ul.legend', ...made.shown.map(s =>
        el('li', paint(el('i'), s), el('span', { title: s.name }, s.tag ? link(s.name, '', 'tag', s.name) : s.name), sized(s.bytes))),
    ...marks.map(([kind, size, words]) => el('li', el('i.' + kind), el('span', words), sized(size)))));
}

function capacityWords(d, made) {
    if (made.total === null)
        return d.place ? `Its bytes are in the memory of ${text(d.place.device)}, and are counted there.` :
            d.key === 'mapped' ? 'Mapped files are page cache: the system takes it back when it needs memory, so it counts for no device.' :
                'The capacity of this device is not known.';
    const c = d.capacity, parts = [], mates = d.mates.filter(m => m !== d.key).map(text);
    const named = objs(c.other_processes).map(o => ['pid', zero(o.pid), text(o.name), bytes(zero(o.bytes))].filter(x => x).join(' '));
    if (mates.length) parts.push('recorded here is also what is on ' + mates.join(', '));
    const words = `${bytes(made.total)} = ${bytes(made.free)} free + ${bytes(made.self)} recorded here ` +
        (made.context > 0 ? `+ ${bytes(made.context)} driver’s context ` : '') +
        (made.unaccounted < 0 ? '− ' + bytes(-made.unaccounted) : '+ ' + bytes(made.unaccounted)) + ' unaccounted';
    if (num(c.process) !== null) parts.push('the rest of this process ' + bytes(Math.max(c.process - made.self, 0)));
    if (num(c.others) !== null) parts.push('others ' + bytes(c.others) + (named.length ? ` (${named.join(', ')})` : ''));
    if (num(d.stats.cached)) parts.push('the host’s pool holds ' + bytes(d.stats.cached) + ' unused');
    if (num(c.age_ns) > 1e9) parts.push('sampled ' + duration(c.age_ns) + ' ago');
    return (words + (parts.length ? ': ' + parts.join(', ') : '') + '.').replace(/(\d) (?=[KMGTPE]?i?B)/g, '$1\u00a0');
}

function deviceFacts(d) {
    const s = d.stats, c = d.capacity;
    const size = (name, n) => num(n) && [name, bytes(n), exact(n)], times = (name, n) => num(n) && [name, count(n)];
    const more = zero(s.peak) + zero(s.peak_error) - d.height;
    return facts([['peak', bytes(d.height) + (more > 0 ? `, or up to ${bytes(more)} more` : ''), exact(d.height)],
        size('freed, waiting for the device', s.pending), size('held for requests', c.held),
        times('blocks', s.live_blocks), times('allocs', s.allocs), times('frees', s.frees), times('resized', s.reallocs),
        times('arrived by move', s.moves), times('arrived by copy', s.copies),
        times('collections', s.gc_runs), size('reclaimed', s.gc_reclaimed),
        num(d.source.fragmentation) !== null && ['fragmentation', percent(d.source.fragmentation)],
        num(s.hit_rate) !== null && ['pool hits', percent(s.hit_rate)], times('requests saved by a retry', s.recoveries)]);
}

/* Draws bars from a list of [label, value, title]. The axis has the labels of the first, the middle and
   the last bar. */
function bars(caption, list) {
    const top = most(list, b => b[1]);
    if (!top) return null;
    const plot = el('div.plot', ...list.map(([name, value, title]) => {
        const bar = el('i', { title: `${title || name}: ${count(value)} blocks` });
        bar.style.height = value > 0 ? Math.max(value / top * 100, 3) + '%' : 0;
        return bar;
    }));
    const ends = list.length > 4 ? [0, list.length >> 1, list.length - 1] : [...list.keys()];
    return el('div.bars', { role: 'img', 'aria-label': caption + ': ' + list.filter(b => b[1]).map(b => `${b[0]} ${b[1]}`).join(', ') },
        el('p', caption), plot, el('div.axis', ...ends.map(i => el('span', list[i][0]))));
}

function sizeBars(d) {
    const found = new Map(objs(d.source.sizes).filter(s => zero(s.blocks) > 0 && zero(s.from) >= 0)
        .map(s => [zero(s.from) < 1 ? -1 : Math.floor(Math.log2(s.from)), s.blocks]));
    const logs = [...found.keys()].sort((a, b) => a - b), list = [];
    for (let k = logs[0]; k <= logs[logs.length - 1]; k++) {
        const from = bytes(k < 0 ? 0 : Math.pow(2, k));
        list.push([from, found.get(k) || 0, k < 0 ? 'empty' : `${from} to ${bytes(Math.pow(2, k + 1))}`]);
    }
    return bars('live blocks by size', list);
}

function lifeBars(d) {
    const life = obj(d.source.lifetimes), part = (name, key, title) => [name, zero(life[key]), title];
    return bars('lifetime when freed', [part('<0.1', 'under_100ms', 'less than 100 ms'), part('<1', 'under_1s', '0.1 to 1 s'),
        part('<10', 'under_10s', '1 to 10 s'), part('10 s+', 'longer', '10 s and longer')]);
}

function card(d) {
    const made = composition(d), oom = obj(d.source.last_oom);
    return el('article.card', { 'data-device': d.name },
        el('header', el('h3', d.name), el('span.soft', { title: d.label }, d.label), el('b', sized(num(d.stats.allocated)))),
        barWithLegend(made, d), el('p.sum', capacityWords(d, made)), deviceFacts(d),
        el('div.charts', sizeBars(d), lifeBars(d)),
        d.source.last_oom ? el('p.bad', `The last request without memory wanted ${bytes(num(oom.bytes))} with ` +
            `${bytes(num(oom.live))} live${oom.site ? ', at ' + siteText(oom.site) : ''}.`) : null);
}

/* Shows a row for each device, the fullest first, and its card when the row is opened. */
function showDevices(p, body) {
    const used = d => { const total = num(d.capacity.total), free = num(d.capacity.free); return total > 0 && free !== null ? (total - free) / total : null; };
    return showTable(byPeak(p), body, [
        ['Device', 'text', d => d.name, { full: d => d.label || d.name }], ['Label', 'text', d => d.label],
        B('Live', 'live', { share: true, get: d => num(d.stats.allocated) }), ['Peak', 'bytes', d => d.height],
        ['Used', 'share', used], ['By what', 'share', used, { brief: d => used(d) === null ? '–' : stackedBar(composition(d), d), full: () => null }], ['Capacity', 'bytes', d => num(d.capacity.total)], ['Limit', 'bytes', d => limitOf(d) || null],
    ], { name: 'devices', sort: p.devices.some(d => used(d) !== null) ? 'Used' : 'Peak', inner: (d, ask) => ask || card(d), inside: 'Details of the device' });
}

// -- overview --

// These records are bounded, so they are overwritten or thinned out. That is no fault.
const PASSED = ['scope_invocations', 'snapshots'];
const TOLD = new Map([['leaks', 'leaks'], ['peak', 'flame'], ['growth', 'memory'], ['mistakes', 'mistakes']]); // the sections that kinds of verdicts lead to; the other kinds lead to the devices

/* Returns the words of a part of a verdict, with its tag and its site as links if they are not cut. A tag
   stands after the word 'tag', before the site. A site stands after 'site', 'at' or two spaces. */
function linked(part) {
    const words = text(part.text, 2000), tag = text(part.tag), site = siteText(part.site).replace('  ', ' ');
    const from = tag ? (' ' + words).indexOf(` tag ${tag} `) + 4 : 3, end = from > 3 ? from + tag.length : 0;
    const at = most(['site ', 'at ', '  '].filter(before => site && words.includes(before + site)), before => words.lastIndexOf(before + site) + before.length);
    const out = end ? [words.slice(0, from), link(tag, 'tags', 'tag', tag)] : [];
    if (at <= end) return [...out, words.slice(end)];
    return [...out, words.slice(end, at), link(site, 'sites', 'site', siteKey(part.site)), words.slice(at + site.length)];
}

/* Returns words that say what a profile of an older version lacks. */
const older = raw => `written by MemLord ${text(raw.version, 20) || '(unknown)'}: it has no verdicts and no places of mistakes`;

/* Returns the sentences that come first, in the words of the library, as [how bad it is, ...words]. */
function verdicts(p) {
    if (!Array.isArray(p.raw.verdicts)) return [['odd', `This profile was ${older(p.raw)}.`]];
    return [].concat(...objs(p.raw.verdicts).map(v => {
        const words = text(v.head), tone = v.tone === 'bad' || v.tone === 'odd' ? v.tone : '';
        const head = words.slice(0, 1).toUpperCase() + words.slice(1);
        const list = objs(v.parts).map(part => [tone, link(head, TOLD.get(v.kind) || 'devices'),
            typeof part.device === 'string' ? `, ${text(part.device)}: ` : ': ', ...linked(part)]);
        return zero(v.more) ? [...list, [tone, `${head}: and ${count(v.more)} more${zero(v.more_bytes) ? ', ' + bytes(v.more_bytes) : ''}`]] : list;
    }));
}

/* Returns the bytes of a device's arena that no tag has. In a profile of 0.4, arenas have no tags. */
const untaggedArena = d => zero(d.arena_untagged === undefined ? d.arena : d.arena_untagged);

const COLUMNS = 12; // of devices in the list of snapshots
const SENTENCES = 4; // the others are one click away

/* Returns the line that says what the report is of. */
function titleLine(p) {
    const meta = p.meta, program = text(meta.program, 80), ran = num(meta.uptime_ns);
    const from = typeof meta.generated_at === 'string' && ran !== null ? Date.parse(meta.generated_at) - ran / 1e6 : NaN; // a profile of before 0.5 does not say when it began
    const began = text(meta.started_at, 40) || isFinite(from) && new Date(from).toISOString();
    return el('p.who', program && el('b', program), ...[text(meta.arguments, 200), num(meta.pid) && 'pid ' + meta.pid, text(meta.host, 60) && 'on ' + text(meta.host, 60), text(meta.labels, 200),
        began && 'since ' + began.replace('T', ' ').replace(/\.\d*Z$|Z$/, ' UTC'), ran !== null && 'for ' + duration(ran), p.raw.version && 'MemLord ' + text(p.raw.version, 20)].filter(Boolean).map(words => el('span', words)));
}

function showOverview(p, body) {
    const t = p.total, several = p.devices.length > 1, together = most(p.snapshots, s => s.bytes);
    const figure = (name, value, small) => el('div', el('dt', name), el('dd', value, small && el('small', small)));
    const list = (p.devices.length ? verdicts(p) : []).map(([tone, ...words]) => el('li', { class: tone || null }, ...words));
    const more = list.splice(SENTENCES);
    fill(body, titleLine(p), list.length && el('ul.answers', ...list), more.length && el('details', el('summary', `${more.length} more`), el('ul.answers', ...more)),
        bandChart(p),
        p.devices.length ? el('dl.figures',
            figure('Live', sized(num(t.allocated)), many(num(t.live_blocks), 'block')),
            figure(several ? 'Peaks, added up' : 'Peak', sized(several ? sum(p.devices, d => d.height) : p.devices[0].height),
                [several && 'each device had its own at another time', several && together && `the snapshot with most has ${bytes(together)}`,
                    zero(t.peak_error) > 0 && `peaks are low by at most ${bytes(t.peak_error)}`].filter(Boolean).join('; ')),
            figure('Allocated in all', sized(num(t.total_allocated)), many(num(t.allocs), 'alloc') + ', ' + many(num(t.frees), 'free')))
            : el('p', 'Nothing was recorded. Call memlord_alloc and memlord_free where the program gets and returns memory, or run it with ' +
                'LD_PRELOAD=libmemlord_preload.so, then save the report again at the end of the work, before the ledger is destroyed.'));
    return true;
}

function showAbout(p, body) {
    const meta = p.meta, e = p.events, dropped = obj(meta.dropped);
    const passed = PASSED.filter(key => zero(dropped[key])).map(key => count(dropped[key]) + ' ' + key.replace('_', ' '));
    fill(body, facts([text(meta.program) && ['program', text(meta.program, 2000)], meta.generated_at && ['written', text(meta.generated_at)],
        num(meta.own_bytes) !== null && ['MemLord’s own memory', bytes(meta.own_bytes), exact(meta.own_bytes)],
        meta.sites_enabled === false && ['sites', 'off'], meta.operation_tracking_enabled === false && ['scopes', 'none used'],
        (meta.events_enabled === false || !e.n) && ['events', 'not recorded'],
        passed.length && ['older, not kept', passed.join(', ')],
        e.n && ['events', count(e.n) + (e.lost ? `, ${count(e.lost)} older ones overwritten` : '')]]));
    return true;
}

// -- the page --

const DRAW = Object.assign({ overview: showOverview, devices: showDevices, flame: showFlame, memory: showMemory, timeline: showTimeline }, TABLES, { about: showAbout });

/* Draws a section. If that fails, the section says so, and the other sections are drawn all the same. */
function drawSection(id, p) {
    const section = $(id), body = section.querySelector('.body'), charts = view.charts.length;
    try {
        section.hidden = !DRAW[id](p, body);
        if (view.charts.length > charts) redraw();
    } catch (error) {
        fill(body, el('p.soft', 'This section could not be drawn: ' + text(error.message)));
        section.hidden = false;
    }
    return section.hidden ? null : section;
}

function rangeTools() {
    const about = factor => () => zoom(middle(), factor), key = (words, name, click) => button(words, click, { 'aria-label': name });
    return el('div.tools', el('span.group', key('−', 'Zoom out', about(2)),
        key('+', 'Zoom in', about(0.5)), key('All', 'Show all', home)), el('output', { id: 'range' }));
}

/* Shows a profile. The first sections are drawn at once, and then the others one by one, so that the page
   stays responsive. */
function show(raw) {
    const p = read(raw), sections = Object.keys(DRAW), nav = $('nav');
    const link = section => section && section.dataset.nav && nav.append(el('a', { href: '#' + section.id }, section.dataset.nav));
    hideTip();
    Object.assign(view, { charts: [], renders: [], choice: null, end: p.end, fit: p.fit, profile: p });
    $('chosen').hidden = true;
    $('empty').hidden = true;
    $('report').hidden = false;
    nav.textContent = '';
    compareNone();
    for (const id of sections) $(id).hidden = true;
    sections.splice(0, 3).map(id => drawSection(id, p)).forEach(link);
    look(...p.fit);
    document.title = ['MemLord', text(p.meta.program, 60), text(p.meta.labels, 60), num(p.meta.pid) && 'pid ' + p.meta.pid].filter(Boolean).join(' · ');
    setTimeout(function next() {
        if (view.profile !== p) return;
        link(drawSection(sections.shift(), p));
        if (sections.length) return setTimeout(next);
        performance.mark('complete');
        if (location.hash) follow(location.hash);
    });
}

const complain = words => {
    $('message').textContent = words;
    $('message').hidden = !words;
};

/* Parses the text of a profile. If the profile cannot be shown, the page says why, and otherwise stays as
   it was. */
function parse(source, name) {
    const still = $('report').hidden ? '' : ' The report below is still the one before.';
    let raw;
    try {
        raw = JSON.parse(source);
    } catch (error) {
        return complain(`${name} is not JSON: ${text(error.message)}.${still}`);
    }
    const schema = text(obj(raw).schema);
    if (schema !== 'memlord/2')
        return complain(`${name} is not a profile of MemLord that this page can read: its schema is ` +
            `${schema ? '“' + schema + '”' : 'missing'}, not “memlord/2”.${still}`);
    if (!Array.isArray(raw.devices)) return complain(`${name} says that it is a profile, but has no devices.${still}`);
    complain('');
    return raw;
}

function load(source, name) {
    const raw = parse(source, name);
    if (raw) show(raw);
}

function readFile(file, then) {
    if (!file) return;
    const reader = new FileReader();
    reader.onload = () => then(reader.result, text(file.name));
    reader.onerror = () => complain(text(file.name) + ' could not be read.');
    reader.readAsText(file);
}

function retheme(change) {
    change(document.documentElement.classList);
    readTheme();
    if (view.charts.length) drawNow();
}

const over = on => e => {
    e.preventDefault();
    document.body.classList.toggle('over', on);
};

readTheme();
listen(window, {
    dragover: over(true),
    dragleave: over(false),
    drop: e => {
        over(false)(e);
        dropped(e);
    },
    resize: redraw,
    scroll: hideTip,
    popstate: () => follow(location.hash),
    beforeprint: () => {
        view.before = [view.from, view.to];
        if (view.profile) look(...view.fit);
        retheme(c => c.add('print'));
    },
    afterprint: () => {
        if (view.profile) look(...view.before);
        retheme(c => c.remove('print'));
    },
    click: e => {
        const a = e.target.closest && e.target.closest('a[href^="#"]');
        if (!a || a.className === 'skip' || e.button || e.ctrlKey || e.metaKey || e.shiftKey) return;
        e.preventDefault();
        follow(a.getAttribute('href'), true);
    },
});
listen($('open'), { click: () => $('file').click() });
listen($('file'), { change: e => {
    readFile(e.target.files[0], load);
    e.target.value = '';
} });
listen($('theme'), { click: () => retheme(c => {
    const dark = ink.dark;
    c.toggle('dark', !dark);
    c.toggle('light', dark);
}) });
listen(matchMedia('(prefers-color-scheme: dark)'), { change: () => retheme(() => 0) });
const embedded = $('profile').textContent.trim();
$('profile').remove();
$('hint').textContent = 'Drop a profile.json here, or open one. It is read on this machine and goes nowhere.';
if (embedded) load(embedded, 'The profile in this page');
startCompare();
performance.mark('interactive');

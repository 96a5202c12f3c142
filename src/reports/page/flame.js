/* The flame graph of the report page shows bytes by stack, scope, tag or site. Boxes stand in rows below
   what holds them. The comparison of two profiles draws the changes with the same code. */
'use strict';

// -- stacks out of a profile --

/* Returns the stacks of a profile with the outermost frame first, or null if it has none. No other
   function knows how a profile writes stacks. */
function readStacks(raw) {
    const s = obj(raw.stacks), modules = objs(s.modules), list = objs(s.list), more = obj(s.more);
    const functions = f => objs(f.inlined).length ? objs(f.inlined) : [obj(f.site)]; // the innermost first
    const frames = objs(s.frames).map(f => functions(f).map(site => frameOf(site, obj(modules[num(f.module)]), zero(f.offset))));
    if (!list.length) return null;
    for (const row of list) row.path = arr(row.frames).slice(0, 256).flatMap(n => frames[n] || []).reverse();
    return { mean: zero(s.bytes), cut: zero(s.cut), list, more: zero(more.stacks) > 0 ? more : null, modules, atPeak: list.every(row => num(row.at_peak_bytes) !== null) };
}
const stacksRead = new WeakMap();
function stacksOf(raw) {
    if (!stacksRead.has(raw)) stacksRead.set(raw, readStacks(raw));
    return stacksRead.get(raw);
}

/* Returns a frame with its key, which tells it from others, its name and its colour. All lines of a
   function are one frame. An address without a name is a place in one build of its module. */
function frameOf(site, module, offset) {
    const file = typeof site.file === 'string' ? site.file : '', named = typeof site.function === 'string' && site.function;
    const path = text(module.module), source = /\+0x[0-9a-f]+$/.test(file) ? '' : file, at = file || '0x' + offset.toString(16);
    const within = source || path || file.replace(/\+0x[0-9a-f]+$/, '');
    return { key: named ? named + '\n' + within : at + '\n' + text(module.build_id), name: text(named || at), site, pick: { kind: 'stack', value: text(named || at) },
        place: source || !path ? text(file) + (zero(site.line) ? ':' + site.line : '') : path + '+0x' + offset.toString(16),
        paint: text(within.replace(/.*[\\/]/, '')) || '(not known)' };
}
const withoutLine = place => place.replace(/(:\d+|\+0x[0-9a-f]+)$/, '');

// -- trees of bytes --

const MEASURES = ['live', 'peak', 'allocated'];

/* Returns whether a profile has what was live at the peak of each device, by stack, tag or site. Profiles do not
   have that by scope, nor, up to 0.5.0, by stack. At most they have the peak of each scope or stack. */
const hasAtPeak = { stacks: p => !stacksOf(p.raw) || stacksOf(p.raw).atPeak, scopes: () => false,
    tags: p => objs(p.raw.peak_holders).length > 0, sites: p => objs(p.raw.peak_holders).length > 0 };

/* Returns two functions for the bytes that tags or sites held at the peaks of devices. The first call of `take`
   for a tag or a site returns its bytes. `rest` adds the bytes that nobody took to a box of each device. */
function heldAtPeak(tree, p, side, keyOf) {
    const held = new Map(), key = (device, of) => JSON.stringify([device, of]);
    const add = (device, of, bytes) => held.set(key(device, of), (held.get(key(device, of)) || 0) + bytes);
    for (const h of tree.atPeak ? objs(p.raw.peak_holders) : []) {
        const list = objs(h[tree.by]);
        for (const one of list) add(h.device, keyOf(one), zero(one.bytes));
        add(h.device, 0, Math.max(zero(h.bytes) - sum(list, one => zero(one.bytes)), 0));
    }
    return {
        take(device, of, own) {
            if (!tree.atPeak) return own;
            const bytes = held.get(key(device, of)) || 0;
            held.delete(key(device, of));
            return bytes;
        },
        rest() {
            for (const [of, bytes] of held)
                if (bytes > 0) addTo(tree, childOf(tree, underDevice(tree, JSON.parse(of)[0]), '\n\n', { name: `(other ${tree.by})` }), side, [null, bytes, null]);
        },
    };
}

/* Returns a new node, which has its values by side and measure. Side 0 is the base of a comparison, and
   side 1 is the profile that is shown. A parent comes before its children in the list of nodes. */
function newNode(up, key, about) {
    return { up, key, name: about.name, place: about.place || '', paint: about.paint || about.name, depth: up ? up.depth + 1 : 0,
        pick: about.pick || null, byKey: new Map(), kids: [], own: [[0, 0, 0], [0, 0, 0]], sides: 0, allocs: 0, variance: 0 };
}

const newTree = () => ({ nodes: [newNode(null, '', { name: 'all' })], has: [false, false, false] });

function childOf(tree, up, key, about) {
    let node = up.byKey.get(key);
    if (node) {
        if (about.place && node.place !== about.place) node.place = withoutLine(node.place);
        return node;
    }
    node = newNode(up, key, about);
    up.byKey.set(key, node);
    tree.nodes.push(node);
    return node;
}

/* Adds [live, peak, allocated] bytes to a node. A null means that the value is not known. */
function addTo(tree, node, side, values) {
    node.sides |= 1 << side;
    values.forEach((value, m) => {
        if (value === null) return;
        tree.has[m] = true;
        node.own[side][m] += Math.max(value, 0);
    });
}

/* Returns the node of a device if there are several devices, and otherwise the root. */
function underDevice(tree, device) {
    const name = text(device) || '(not known)';
    return tree.split ? childOf(tree, tree.nodes[0], name, { name }) : tree.nodes[0];
}

/* Returns a frame. If the other profile cannot have the frame, returns the one that stands for all such
   frames of its module. */
const strangeFrame = (frame, strange) => {
    const name = strangeName(frame.site, strange);
    return name ? { key: name, name, site: frame.site, paint: frame.paint, strange: true } : frame;
};

/* Returns a path in which frames that follow each other and stand for one module are one frame. */
const strangePath = (path, strange) => path.map(frame => strangeFrame(frame, strange)).filter((f, i, all) => !f.strange || !i || all[i - 1].key !== f.key);

function growStacks(tree, p, side, strange) {
    const stacks = stacksOf(p.raw);
    if (!stacks) return;
    for (const row of stacks.list) {
        let node = underDevice(tree, row.device), path = strangePath(row.path, strange);
        const main = tree.how.main ? path.findIndex(f => f.name === 'main') : -1;
        path = path.slice(Math.max(main, 0));
        for (const frame of tree.how.inverted ? path.reverse() : path) node = childOf(tree, node, frame.key, frame);
        if (!row.path.length) node = childOf(tree, node, '\n', { name: '(no stack)' });
        addTo(tree, node, side, [row.live_bytes, tree.atPeak ? row.at_peak_bytes : row.peak_bytes, row.alloc_bytes].map(num));
        node.allocs += side ? zero(row.allocs) : 0;
        node.variance += Math.pow(zero(row.error_bytes), 2);
    }
    const more = stacks.more;
    if (more) addTo(tree, childOf(tree, tree.nodes[0], '\n', { name: '(other stacks)' }), side, [more.live_bytes, tree.atPeak ? more.at_peak_bytes : null, more.alloc_bytes].map(num));
}

function growScopes(tree, p, side) {
    const nodes = new Map();
    const nodeOf = s => {
        const chain = [];
        for (; s && !nodes.has(s); s = s.up) chain.push(s);
        let node = s ? nodes.get(s) : tree.nodes[0];
        for (const scope of chain.reverse()) nodes.set(scope, node = childOf(tree, node, scope.name,
            { name: scope.name, place: siteText(scope.site), pick: { kind: 'scope', value: scope.path } }));
        return node;
    };
    const listed = p.scopes.list.filter(s => s.live !== null);
    for (const s of listed) addTo(tree, nodeOf(s), side, [s.live, null, null]);
    const rest = zero(p.total.allocated) - sum(listed, s => s.live);
    if (listed.length && rest > 0) addTo(tree, childOf(tree, tree.nodes[0], '\n', { name: '(no scope)' }), side, [rest, null, null]);
}

const siteChoice = site => ({ kind: 'site', value: siteKey(site) });

/* Adds tags, and below a tag its sites. The sites of a tag are known only for leaks, which are live
   blocks that were allocated since the mark. */
function growTags(tree, p, side, strange) {
    const key = (tag, device) => JSON.stringify([tag, device]), sites = new Map(), tags = objs(p.raw.tags), free = new Map();
    const nameOf = one => typeof one.tag === 'string' ? one.tag : null, held = heldAtPeak(tree, p, side, nameOf);
    for (const r of objs(obj(p.raw.leaks).by_site)) {
        const tag = key(nameOf(r), r.device);
        sites.set(tag, (sites.get(tag) || []).concat(r));
    }
    for (const d of objs(p.raw.devices)) free.set(d.device, zero(obj(d.stats).allocated));
    const add = (tag, device, live, peak) => {
        const node = childOf(tree, underDevice(tree, device), tag === null ? '\n' : tag,
            { name: tag === null ? '(untagged)' : text(tag) || '(no name)', pick: tag === null ? null : { kind: 'tag', value: text(tag) } });
        let rest = Math.max(live, 0);
        for (const r of sites.get(key(tag, device)) || []) {
            const bytes = Math.min(Math.max(zero(r.bytes), 0), rest), frame = strangeFrame(frameOf(obj(r.site), {}, 0), strange);
            if (!bytes) continue;
            rest -= bytes;
            addTo(tree, childOf(tree, node, frame.key, frame.strange ? frame : Object.assign(frame, { pick: siteChoice(r.site) })), side, [bytes, null, null]);
        }
        addTo(tree, node, side, [rest, held.take(device, tag, peak), null]);
    };
    for (const t of tags) {
        add(typeof t.tag === 'string' ? t.tag : '', t.device, zero(t.allocated), num(t.peak));
        free.set(t.device, (free.get(t.device) || 0) - zero(t.allocated));
    }
    if (!tags.length) return;
    for (const [device, bytes] of free) if (bytes > 0 || tree.atPeak) add(null, device, bytes, null);
    held.rest();
}

function growSites(tree, p, side, strange) {
    const sites = objs(p.raw.sites), rest = [p.total.allocated, null, p.total.total_allocated].map(num);
    const held = heldAtPeak(tree, p, side, one => siteKey(one.site));
    for (const s of sites) {
        const frame = strangeFrame(frameOf(obj(s.site), {}, 0), strange), line = !frame.strange && frame.place.match(/:\d+$/);
        const file = childOf(tree, underDevice(tree, s.device), frame.paint, { name: frame.paint });
        const name = frame.name + (line && frame.name !== frame.place ? line[0] : '');
        const node = childOf(tree, file, frame.key + (line || ''), { name, place: frame.place, paint: frame.paint, pick: frame.strange ? null : siteChoice(s.site) });
        const values = [num(s.live_bytes), held.take(s.device, siteKey(s.site), num(s.peak_bytes)), num(s.alloc_bytes)];
        addTo(tree, node, side, values);
        node.allocs += side ? zero(s.allocs) : 0;
        for (const m of [0, 2]) if (rest[m] !== null) rest[m] -= zero(values[m]);
    }
    if (sites.length) held.rest();
    if (sites.length && (rest[0] > 0 || rest[2] > 0))
        addTo(tree, childOf(tree, tree.nodes[0], '\n', { name: '(no site)' }), side, [Math.max(zero(rest[0]), 0), null, Math.max(zero(rest[2]), 0)]);
}

const GROW = { stacks: growStacks, scopes: growScopes, tags: growTags, sites: growSites };

/* Returns the trees of one profile, or of two profiles, the first of which is the base. `how` of a tree says
   what is done to stacks: `main` leaves out what calls main, `inverted` begins with the function that
   allocates. */
function growTrees(profiles) {
    const strange = profiles.length < 2 ? [] : strangers(profiles.map(p => p.raw));
    const devices = new Set([].concat(...profiles.map(p => objs(p.raw.devices).map(d => d.device))));
    const grow = (by, how) => {
        const tree = Object.assign(newTree(), { by, how, split: devices.size > 1, atPeak: profiles.every(hasAtPeak[by]), again: how => grow(by, how) });
        profiles.forEach((p, i) => GROW[by](tree, p, profiles.length < 2 ? 1 : i, strange[i]));
        return tree;
    };
    return Object.keys(GROW).map(by => grow(by, {})).filter(tree => tree.nodes.length > 1);
}

/* Computes the sizes and places of all nodes for one measure. A box is as wide as the bytes under it. In
   a comparison it is as wide as the changes under it, without their signs. */
function weigh(tree, m, both) {
    for (const n of tree.nodes) {
        n.now = n.own[1][m];
        n.was = n.own[0][m];
        n.size = n.self = both ? Math.abs(n.now - n.was) : n.now;
        n.calls = n.allocs;
        n.doubt = n.variance;
        n.seen = n.sides;
        n.kids = [];
    }
    for (let i = tree.nodes.length - 1; i > 0; i--) {
        const n = tree.nodes[i], up = n.up;
        up.now += n.now;
        up.was += n.was;
        up.size += n.size;
        up.calls += n.calls;
        up.doubt += n.doubt;
        up.seen |= n.seen;
        if (n.size > 0) up.kids.push(n);
    }
    tree.depth = 0;
    tree.nodes[0].x = 0;
    for (const n of tree.nodes) {
        if (!(n.size > 0)) continue;
        tree.depth = Math.max(tree.depth, n.depth);
        let x = n.x;
        n.kids.sort((a, b) => b.size - a.size || (a.key < b.key ? -1 : 1));
        for (const kid of n.kids) kid.x = x, x += kid.size;
    }
}

/* Returns the functions, ordered by the bytes that they allocate themselves. Bytes under a recursion
   count once. */
function flattened(tree) {
    const all = new Map();
    for (const n of tree.nodes) {
        if (!n.up || !(n.size > 0) || tree.split && n.depth === 1) continue;
        const row = all.get(n.key) || { name: n.name, place: n.place, self: 0, total: 0, change: 0 };
        all.set(n.key, row);
        if (row.place !== n.place) row.place = withoutLine(n.place);
        row.self += n.self;
        let up = n.up;
        while (up && up.key !== n.key) up = up.up;
        if (!up) row.total += n.size, row.change += n.now - n.was;
    }
    return [...all.values()].sort((a, b) => b.self - a.self || b.total - a.total);
}

// -- the picture --

const FLAME_ROW = 20, FLAME_ROWS = 48;

/* Returns the colour of a change. The colour is red if the bytes grew and blue if they shrank. It is the
   stronger, the more of the change is in one direction. */
function changeColour(n) {
    const part = n.size ? (n.now - n.was) / n.size : 0, full = Math.abs(part);
    const [light, chroma] = ink.dark ? [0.36 + 0.14 * full, 0.13 * full] : [0.93 - 0.13 * full, 0.12 * full];
    return `oklch(${light.toFixed(3)} ${chroma.toFixed(3)} ${part > 0 ? 30 : 255})`;
}

/* Returns the colour of a box. Each file or module has a hue, and its names are a little lighter or
   darker. */
function flameColour(chart, n) {
    if (chart.both) return changeColour(n);
    if (!n.up) return ink.rule;
    const light = (n.name.length * 3 + n.name.charCodeAt(0)) % 5 * 0.018 - 0.036;
    return `oklch(${(ink.dark ? 0.46 : 0.84) + light} ${ink.dark ? 0.095 : 0.085} ${hue(n.paint) * 360 / HUES})`;
}

function drawFlame(chart) {
    const top = chart.top, g = prepare(chart, Math.min(chart.tree.depth + 1, FLAME_ROWS) * FLAME_ROW + 1);
    const scale = chart.width / (top.size || 1);
    chart.boxes = Array.from({ length: FLAME_ROWS }, () => []);
    const open = top.size > 0 ? [top] : [];
    for (let n; (n = open.pop());) {
        const row = n.depth - top.depth, x = (n.x - top.x) * scale, w = n.size * scale;
        chart.boxes[row].push(n);
        drawBox(g, chart, n, x, row * FLAME_ROW, w);
        if (row + 1 >= FLAME_ROWS) continue;
        const wide = n.kids.findIndex(k => k.size * scale < 1), kids = wide < 0 ? n.kids : n.kids.slice(0, wide);
        open.push(...kids);
        if (wide >= 0) { // all boxes that are narrower than a pixel are drawn as one
            const from = (n.kids[wide].x - top.x) * scale, to = x + w - n.self * scale;
            g.fillStyle = ink.rule;
            g.fillRect(from, (row + 1) * FLAME_ROW, Math.max(to - from, 0), FLAME_ROW - 1);
        }
    }
    for (const row of chart.boxes) row.sort((a, b) => a.x - b.x);
    const n = chart.selected;
    if (!n || !inside(n, top)) return;
    g.strokeStyle = ink.ink;
    g.lineWidth = 2;
    g.strokeRect((n.x - top.x) * scale + 1, (n.depth - top.depth) * FLAME_ROW + 1, Math.max(n.size * scale - 2, 1), FLAME_ROW - 3);
    g.lineWidth = 1;
}

function drawBox(g, chart, n, x, y, w) {
    const faint = chart.found && !chart.found.has(n);
    g.globalAlpha = faint ? 0.25 : 1;
    g.fillStyle = flameColour(chart, n);
    g.fillRect(x, y, Math.max(w - (w > 3 ? 1 : 0), 0.5), FLAME_ROW - 1);
    if (chart.found && !faint) g.fillStyle = ink.accent, g.fillRect(x, y + FLAME_ROW - 4, Math.max(w - 1, 1), 3);
    g.globalAlpha = faint ? 0.6 : 1;
    if (w > 24) write(g, ink.ink, fitted(n.name, w - 8), x + 4, y + FLAME_ROW / 2);
    g.globalAlpha = 1;
}

const inside = (n, top) => n === top || !!n.up && inside(n.up, top);

function boxAt(chart, x, y) {
    const row = chart.boxes[Math.floor(y / FLAME_ROW)] || [], at = chart.top.x + x / chart.width * chart.top.size;
    return row.find(n => n.x <= at && at < n.x + n.size) || null;
}

// -- what is said of a box --

const inFull = n => Math.abs(n) < 1024 ? exact(Math.round(n)) : `${bytes(n)} (${exact(Math.round(n))})`;

function flameFacts(chart, n) {
    const name = MEASURES[chart.measure], all = chart.tree.nodes[0], list = [], exactly = chart.exactly();
    if (chart.both) {
        const by = n.now - n.was;
        list.push([name, inFull(n.now)], ['before', n.seen & 1 ? inFull(n.was) : 'not there'],
            ['change', (by > 0 ? '+' : by < 0 ? '−' : '') + inFull(Math.abs(by))]);
        if (n.seen !== 3) list.push(['', n.seen & 1 ? 'gone' : 'new']);
        if (n.size > Math.abs(by)) list.push(['in both directions', inFull(n.size)]);
    } else {
        list.push([name + (exactly ? '' : ', estimate'), inFull(n.size)], ['of all', percent(n.size / all.size)]);
        if (chart.top !== all && inside(n, chart.top)) list.push(['of what is shown', percent(n.size / chart.top.size)]);
        if (n.self && n.kids.length) list.push(['in itself', inFull(n.self)]);
        if (n.calls) list.push(['allocs' + (exactly ? '' : ', estimate'), count(Math.round(n.calls))]);
    }
    if (n.doubt && !chart.measure) list.push(['standard error', '± ' + bytes(Math.round(Math.sqrt(n.doubt)))]);
    if (n.place && n.place !== n.name) list.push(['place', n.place]);
    return list;
}

function pickBox(chart, n, aloud) {
    chart.selected = n;
    redraw();
    if (!n) return hideTip();
    const row = n.depth - chart.top.depth, x = (n.x - chart.top.x) / (chart.top.size || 1) * chart.width;
    const pairs = flameFacts(chart, n);
    showTip(chart, clamp(x, 0, chart.width), (row + 1) * FLAME_ROW - 10, n.name, pairs);
    if (aloud) say(`${n.name}, level ${n.depth}: ` + pairs.map(q => q.join(' ')).join(', '));
}

/* Shows a box and the boxes under it in the full width, and those above it as a path. */
function zoomBox(chart, n) {
    chart.top = n;
    const path = [];
    for (let up = n; up; up = up.up) path.unshift(up);
    const crumb = up => up === n ? el('b', { title: up.name }, up.name) : button(up.name, () => {
        enterBox(chart, up);
        chart.canvas.focus({ preventScroll: true });
    }, { title: up.name });
    const middle = path.length > 6 ? path.slice(1, -4) : [];
    fill(chart.path, ...path.filter(up => !middle.includes(up) || up === middle[0]).map(up => el('li', up === middle[0] ? '…' : crumb(up))));
    chart.path.hidden = path.length < 2;
    hideTip();
    redraw();
}

/* Finds the boxes whose names have the words of the search. Bytes under two of them count once. */
function searchFlame(chart, words) {
    const all = chart.tree.nodes[0];
    words = words.trim().toLowerCase();
    chart.found = words ? new Set(chart.tree.nodes.filter(n => n.up && n.size > 0 && (n.name + '\n' + n.place).toLowerCase().includes(words))) : null;
    const under = new Set(); // the nodes at or below one that was found; a parent comes before its children
    let share = 0;
    for (const n of words ? chart.tree.nodes : []) {
        if (under.has(n.up)) under.add(n);
        else if (chart.found.has(n)) under.add(n), share += n.size;
    }
    const what = chart.both ? 'of the changes' : 'of all';
    chart.says.textContent = !words ? '' : chart.found.size ? `${many(chart.found.size, 'frame')}: ${bytes(share)}, ${percent(share / all.size)} ${what}`
        : `none of ${count(chart.tree.nodes.length - 1)} match “${text(words, 40)}”`;
    redraw();
}

// -- what is done to it --

/* Returns the box that an arrow key leads to. Boxes beside each other are ordered by size. */
function neighbour(n, key, top) {
    if (key === 'ArrowDown') return n.kids[0];
    if (n === top) return null;
    if (key === 'ArrowUp') return n.up;
    return n.up.kids[n.up.kids.indexOf(n) + (key === 'ArrowLeft' ? -1 : 1)];
}

/* Returns the sites of all frames with a name, and of the frames that are called by these. */
function sitesUnder(p, name) {
    const sites = new Set(), stacks = stacksOf(p.raw);
    for (const { path } of stacks ? stacks.list : []) {
        const from = path.findIndex(frame => frame.name === name);
        if (from >= 0) path.slice(from).forEach(frame => sites.add(frame.site));
    }
    return new Set([...sites].map(siteKey));
}

/* Zooms into a box, and makes it the choice of the page. */
function enterBox(chart, n) {
    zoomBox(chart, n);
    if (!n.pick && !chart.chose) return;
    chart.chose = !!n.pick;
    choose(n.pick);
}

function flameKey(chart, event) {
    const now = chart.selected && inside(chart.selected, chart.top) ? chart.selected : null, key = event.key;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^Arrow/.test(key)) {
        const next = now ? neighbour(now, key, chart.top) : chart.top;
        if (next) pickBox(chart, next, true);
    } else if (key === 'Enter') {
        if (now) enterBox(chart, now), pickBox(chart, now, true);
    } else if (key === '0' || key === 'Escape') {
        chart.selected = null;
        enterBox(chart, chart.tree.nodes[0]);
        say('all is shown');
    } else return;
    event.preventDefault();
}

function flameCanvas(chart) {
    let finger = false;
    const spot = e => {
        const r = chart.canvas.getBoundingClientRect();
        return [e.clientX - r.left, e.clientY - r.top];
    };
    return el('canvas', { tabindex: 0, role: 'application', 'aria-label': chart.label + '. Arrow keys walk from box to box, Enter zooms in, 0 shows all.',
        pointerdown: e => { finger = e.pointerType !== 'mouse'; },
        pointermove: e => {
            const n = finger ? null : boxAt(chart, ...spot(e));
            chart.canvas.style.cursor = n ? 'pointer' : '';
            if (n) showTip(chart, ...spot(e), n.name, flameFacts(chart, n));
            else if (!finger) hideTip();
        },
        pointerleave: () => finger || hideTip(),
        click: e => { // a finger cannot hover, so its first tap shows what a box is, and its second one zooms
            const n = boxAt(chart, ...spot(e)), told = chart.selected === n;
            pickBox(chart, n);
            if (n && (!finger || told)) enterBox(chart, n);
        },
        keydown: e => flameKey(chart, e), blur: hideTip });
}

const LISTED = 20; // the rows of the table below a flame graph

function flameTable(chart) {
    const upright = chart.tree.how.inverted ? chart.tree.again({ main: chart.tree.how.main }) : chart.tree;
    if (upright !== chart.tree) weigh(upright, chart.measure, chart.both);
    const all = flattened(upright), rows = all.slice(0, LISTED);
    return table([['Function', 'text', r => r.name, { keep: true }], ['Place', 'text', r => r.place === r.name ? '' : r.place, { mono: true }],
        ['Self', 'bytes', r => r.self, { share: true }], ['Total', 'bytes', r => r.total, { share: true }],
        ['Share', 'share', r => r.total / (chart.tree.nodes[0].size || 1)],
        ['Change', 'signed', r => chart.both ? r.change : null, { tone: true }]], rows, { name: 'functions', sort: 'Self', of: all.length });
}

/* Returns sentences about what the picture does not show. */
function flameWords(chart, p) {
    const said = [], stacks = chart.tree.by === 'stacks' && stacksOf(p.raw), all = chart.tree.nodes[0], atPeak = chart.measure === 1 && chart.tree.atPeak;
    const holders = objs(p.raw.peak_holders), whole = atPeak ? sum(holders, h => zero(h.bytes)) : chart.measure ? null : num(p.total.allocated);
    if (chart.both) said.push('A box is as wide as the changes under it, in either direction: red grew, blue shrank.');
    else if (atPeak) said.push(holders.length > 1 ? `What was live at the peak of each device, not all at one moment: together ${bytes(whole)}.`
        : `What was live at the peak: noted at ${bytes(whole)} of ${bytes(zero(p.total.peak))}.`);
    else if (chart.measure === 1) said.push('Each one’s own peak: they were not all at one moment, and add up to more than the peak of a device.');
    if (stacks && stacks.mean !== 1)
        said.push(`Stacks are samples${stacks.mean ? ', one each ' + bytes(stacks.mean) + ' in the mean' : ''}: their bytes are estimates` +
            (all.doubt && !chart.measure ? `, of all with a standard error of ${bytes(Math.round(Math.sqrt(all.doubt)))}.` : '.'));
    else if (stacks && !chart.both && whole > all.size) said.push(`${bytes(whole - all.size)} of ${bytes(whole)} ${atPeak ? 'at the peak' : 'live'} have no stack.`);
    if (stacks && stacks.more) said.push(`${many(stacks.list.length, 'stack')} are listed, ${many(zero(stacks.more.stacks), 'smaller one')} are not.`);
    if (stacks && stacks.cut) said.push(`${many(stacks.cut, 'stack')} could not be unwound.`);
    if (chart.tree.depth >= FLAME_ROWS) said.push(`Only ${FLAME_ROWS} rows are shown: choose a box to see what is below it.`);
    return said.join(' ');
}

/* Returns the graph with its tools. `both` is set if the trees are of two profiles. */
function flameGraph(p, trees, both, measure) {
    const chart = { both, trees, tree: trees[0], measure: measure || 0, selected: null, found: null, label: both ? 'Flame graph of what changed' : 'Flame graph' };
    chart.exactly = () => { const s = chart.tree.by === 'stacks' && stacksOf(p.raw); return !s || s.mean === 1; };
    chart.draw = () => drawFlame(chart);
    chart.canvas = flameCanvas(chart);
    chart.path = el('ol.path', { 'aria-label': 'Path to what is shown' });
    chart.says = el('output');
    const words = el('p.keys'), rows = el('div'), note = el('details', { toggle: () => note.open && fill(rows, flameTable(chart)) },
        el('summary', `As a table: the first ${LISTED}`), rows);
    const find = el('input', { type: 'search', placeholder: 'Search', 'aria-label': 'Search the ' + chart.label.toLowerCase(), input: () => searchFlame(chart, find.value) });
    const by = trees.map(tree => button(tree.by[0].toUpperCase() + tree.by.slice(1), () => { chart.tree = tree; show(); }));
    const of = MEASURES.map((name, m) => button(name[0].toUpperCase() + name.slice(1), () => { chart.measure = m; show(); }));
    const how = { inverted: 'Inverted', main: 'Hide above main' }, views = Object.keys(how).map(key => button(how[key], () => {
        chart.tree = chart.tree.again(Object.assign({}, chart.tree.how, { [key]: !chart.tree.how[key] }));
        show();
    }));
    const tools = el('span.group', ...views);
    function show() {
        tools.hidden = chart.tree.by !== 'stacks';
        Object.keys(how).forEach((key, i) => views[i].setAttribute('aria-pressed', String(!!chart.tree.how[key])));
        if (!chart.tree.has[chart.measure]) chart.measure = 0;
        weigh(chart.tree, chart.measure, both);
        chart.selected = null;
        trees.forEach((tree, i) => by[i].setAttribute('aria-pressed', String(tree.by === chart.tree.by)));
        of.forEach((b, m) => {
            b.setAttribute('aria-pressed', String(m === chart.measure));
            b.disabled = !chart.tree.has[m];
            b.title = b.disabled ? `The profile has no ${MEASURES[m]} bytes by ${chart.tree.by.slice(0, -1)}` : '';
        });
        zoomBox(chart, chart.tree.nodes[0]);
        searchFlame(chart, find.value);
        words.textContent = chart.tree.nodes[0].size > 0 ? flameWords(chart, p) : both ? 'Nothing changed.' : `No ${MEASURES[chart.measure]} bytes.`;
        if (note.open) fill(rows, flameTable(chart));
    }
    show();
    view.charts.push(chart);
    chart.print = () => { note.open = true; fill(rows, flameTable(chart)); };
    return Object.assign(chart, { element: el('div', el('div.tools', el('span.group', ...by), el('span.group', ...of), tools, find, chart.says),
        chart.path, el('div.flame', chart.canvas), words, note) });
}

window.addEventListener('beforeprint', () => view.charts.forEach(chart => chart.print && chart.print()));

/* Returns the largest box of what the first sentence of the report speaks of: its site, or else its tag. Returns
   null if the graph has no such box. */
function spokenOf(p, tree) {
    const part = obj(objs(obj(objs(p.raw.verdicts)[0]).parts)[0]), site = siteKey(part.site), tag = text(part.tag);
    const is = pick => !!pick && (pick.kind === 'site' ? pick.value === site : pick.kind === 'tag' ? pick.value === tag : pick.value === text(obj(part.site).function));
    return site || tag ? tree.nodes.filter(n => n.size > 0 && is(n.pick)).reduce((a, n) => a && a.size >= n.size ? a : n, null) : null;
}

function showFlame(p, body) {
    const trees = growTrees([p]);
    if (!trees.length) return false;
    const chart = flameGraph(p, trees, false, objs(p.raw.verdicts).some(v => v.kind === 'peak') ? 1 : 0); // 1: the peak, because what is left at the end of a program tells little
    fill(body, chart.element);
    chart.selected = spokenOf(p, chart.tree);
    redraw();
    return true;
}

/* The comparison of two profiles has the rows, sums, names and doubts of src/tools/diff.c. Both pass the
   cases of tests/compare/. */
'use strict';

const DIFFS = { // by kind: the key of the list in a profile; the keys of live, peak and allocated bytes; the name of the row for what the list lacks of the total
    stack: ['stacks', 'live_bytes', 'peak_bytes', 'alloc_bytes'],
    site: ['sites', 'live_bytes', 'peak_bytes', 'alloc_bytes', '(no site)'],
    tag: ['tags', 'allocated', 'peak', '', '(untagged)'],
    scope: ['scopes', 'live_bytes', 'peak_bytes', '', '(no scope)'],
    device: ['devices', 'allocated', 'peak', 'total_allocated'],
    leak: ['leaks', 'bytes', '', '', '(not listed)'],
};
const NOWHERE = '(unknown)'; // the name of a site that is not known
const versus = { base: null, now: null, by: null };

/* Returns a base in which all places in the program have the file of the program of `now`. So a place is the same
   place when only the program's file was renamed or moved. */
function oneProgram(base, now) {
    const [was, is] = [base, now].map(raw => word(obj(raw.metadata).program)), last = path => path.replace(/^.*[\\/]/, '');
    const paths = objs(obj(now.stacks).modules).concat(objs(now.sites)).map(m => word(m.module)).filter(path => path && last(path) === is);
    const renamed = (key, x) => typeof x !== 'string' ? x : key === 'module' && last(x) === was ? paths[0] || is
        : key === 'file' && x.startsWith(was + '+0x') ? is + x.slice(was.length) : x;
    return was && is ? Object.assign({}, base, ...['sites', 'stacks', 'leaks'].filter(key => base[key]).map(key => ({ [key]: JSON.parse(JSON.stringify(base[key]), renamed) }))) : base;
}

// -- rows of a profile --

/* Returns a number of bytes that is exact, or NaN if it is not known. */
const solid = x => typeof x === 'number' && x >= 0 && x <= Number.MAX_SAFE_INTEGER && x % 1 === 0 ? x : NaN;
const word = x => typeof x === 'string' ? x : null;

/* Finds the places that cannot be compared. An offset is a place in one build of a module. So these are
   the places without a name in a build that only one side has, if both sides have the module. Returns for
   each side a map from the text of such a place to the name that stands for all of them in its module. */
function strangers(raws) {
    const modules = new Map(), found = raws.map(() => new Map()), runs = raws.map((raw, side) => [when(raw) || side, obj(raw.metadata).pid].join(' '));
    if (strangersOf.raws.every((raw, side) => raw === raws[side])) return strangersOf.found;
    const add = (side, site, at, of) => {
        const name = (word(of.module) || '').replace(/^.*[\\/]/, ''), known = word(of.build_id), build = known || runs[side];
        if (solid(at.offset) !== solid(at.offset) || !(word(site.file) || word(site.function))) return;
        if (!modules.has(name)) modules.set(name, { sides: 0, builds: new Map() });
        const module = modules.get(name);
        if (!module.builds.has(build)) module.builds.set(build, { sides: 0, unnamed: [], known });
        module.sides |= 1 << side;
        module.builds.get(build).sides |= 1 << side;
        if (bare(site)) module.builds.get(build).unnamed.push([side, site.file]);
    };
    raws.forEach((raw, side) => {
        const of = objs(obj(raw.stacks).modules);
        for (const s of objs(raw.sites)) add(side, obj(s.site), s, s);
        for (const f of objs(obj(raw.stacks).frames)) add(side, obj(f.site), f, obj(of[num(f.module)]));
    });
    for (const [name, { sides, builds }] of modules)
        for (const build of builds.values())
            for (const [side, file] of build.sides === sides ? [] : build.unnamed)
                found[side].set(file, build.known ? `(unnamed places of another build of ${name}: not compared)` : `(unnamed places of ${name}, without a build id: not compared)`);
    Object.assign(strangersOf, { raws, found });
    return found;
}
const strangersOf = { raws: [null, null], found: null }; // the last arguments and result, because each list asks again
const bare = site => !word(site.function) && !(solid(site.line) > 0) && (word(site.file) || '').includes('+0x');
const strangeName = (site, strange) => strange && bare(site) && strange.get(site.file) || '';

function diffSite(site, withLine, strange) {
    const file = word(site.file) || '', name = word(site.function) || '', all = strangeName(site, strange);
    if (all) return all;
    if (!file) return name || NOWHERE;
    return [name, name && !withLine ? file.replace(/\+0x.*/, '') : file].filter(Boolean).join(' ') + (withLine && solid(site.line) > 0 ? ':' + site.line : '');
}

/* Returns the name of a row, or null if it has none. */
function diffName(kind, item, withLine, strange) {
    const device = word(item.device), tag = word(item.tag), of = diffSite(obj(item.site), withLine, strange);
    if (kind === 'scope') return word(item.path);
    if (kind === 'leak') return typeof item.count !== 'number' ? null : of === NOWHERE && tag !== null ? `${of} [${tag}]` : of;
    if (device === null || kind === 'device') return device;
    if (kind === 'tag') return tag === null ? null : `${tag} on ${device}`;
    return `${kind === 'stack' ? item.path : of} on ${device}`;
}

/* Returns the stacks with their frames as a name, the innermost first, without lines. */
const diffStacks = (stacks, strange) => stacks.list.map(row => {
    const path = strangePath(row.path, strange).reverse(), brief = path.slice(0, 5).map(f => f.name).join(' ← ');
    return Object.assign({}, row, { path: path.map(f => f.key.replace('\n', ' ')).join(' < ') || '(no stack)', brief: brief + (path.length > 5 ? ' ← …' : ''),
        strange: path.length > 0 && path[0].strange, several: path.some(f => f.strange) });
});

/* Returns the leaks by site. In a profile of 0.4 these are groups of a site, tag, scope and device, and
   rows of one name are added up. */
const leaksOf = raw => Array.isArray(obj(raw.leaks).sites) ? raw.leaks.sites : obj(raw.leaks).by_site;
const rawList = (raw, kind) => kind === 'leak' ? leaksOf(raw) : raw[DIFFS[kind][0]];
const stacksListed = raw => Array.isArray(obj(raw.stacks).list), depthOf = raw => num(obj(raw.stacks).depth);
const stacksIn = raw => stacksOf(raw) || { list: [], more: null };
const hasList = (raw, kind) => kind === 'stack' ? stacksListed(raw) && depthOf(raw) > 0 : Array.isArray(rawList(raw, kind));
const diffList = (raw, kind, strange) => kind === 'stack' ? diffStacks(stacksIn(raw), strange) : objs(rawList(raw, kind));

const newRow = (name, stem, brief) => ({ name, stem, brief, sides: 0, strange: false, bytes: [[0, 0, 0], [0, 0, 0]], doubt: 0 });

/* Adds the rows that one profile has of one kind to `rows`, by name. */
function diffLoad(rows, kind, raw, side, strange) {
    const [, ...keys] = DIFFS[kind], rest = keys[3], total = obj(raw.total), lacks = [total.allocated, NaN, total.total_allocated].map(solid);
    if (kind === 'leak') lacks[0] = solid(obj(raw.leaks).bytes);
    const add = (name, stem, brief, values, doubt) => {
        const row = rows.get(name) || newRow(name, stem, brief);
        rows.set(name, row);
        row.sides |= 1 << side;
        values.forEach((x, m) => { row.bytes[side][m] += x; });
        if (!keys[1]) row.bytes[0][1] = row.bytes[1][1] = NaN;
        if (!keys[2]) row.bytes[0][2] = row.bytes[1][2] = NaN;
        row.doubt += Math.pow(zero(doubt), 2);
    };
    for (const item of diffList(raw, kind, strange)) {
        const name = diffName(kind, item, true, strange), from = kind === 'device' ? obj(item.stats) : item;
        const values = keys.slice(0, 3).map(key => key ? solid(from[key]) : NaN), several = item.several || !!strangeName(obj(item.site), strange);
        if (several) values[1] = NaN; // peaks cannot be added up
        if (name !== null) add(name, diffName(kind, item, false, strange), item.brief, values, item.error_bytes);
        if (item.strange || several && kind !== 'stack') rows.get(name).strange = true;
        values.forEach((x, m) => { lacks[m] -= x; });
    }
    const more = kind === 'stack' && stacksIn(raw).more;
    if (more) add('(not listed)', '(not listed)', '(not listed)', [solid(more.live_bytes), NaN, solid(more.alloc_bytes)]);
    if (rest && (lacks[0] > 0 || lacks[2] > 0)) add(rest, rest, rest, [lacks[0], NaN, keys[2] ? lacks[2] : NaN]);
}

/* Joins two rows that differ only in the line or offset, if one is gone, the other is new, and no third row
   has this stem. An edit above a site changes the site's line. */
function diffMoved(rows) {
    const by = new Map();
    for (const row of rows) by.set(row.stem, (by.get(row.stem) || []).concat(row));
    return [].concat(...[...by.values()].map(list => {
        const [a, b] = list;
        if (list.length !== 2 || (a.sides ^ b.sides) !== 3) return list;
        const [gone, kept] = a.sides === 1 ? [a, b] : [b, a];
        kept.sides = 3;
        kept.bytes = kept.bytes.map((side, i) => side.map((x, m) => x + gone.bytes[i][m]));
        kept.doubt += gone.doubt;
        return [kept];
    }));
}

const known = x => x === x ? x : null;
const changeOf = (row, m) => row.bytes[1][m] - row.bytes[0][m];
const changeSize = (row, m) => Math.abs(changeOf(row, m)) || 0;
const changed = row => row.sides !== 3 || row.strange || [0, 1, 2].some(m => changeSize(row, m) > 0);

/* Returns all rows of a kind, ordered by the measure that changed, the largest change first. Returns null
   if one of the two profiles has no such list. */
function diffRows(base, now, kind) {
    const rows = new Map(), strange = strangers([base, now]), first = measureOf({ base: { total: obj(base.total) }, now: { total: obj(now.total) } });
    if (!hasList(base, kind) || !hasList(now, kind)) return null;
    [base, now].forEach((raw, side) => diffLoad(rows, kind, raw, side, strange[side]));
    return diffMoved([...rows.values()]).sort((a, b) => changed(b) - changed(a) ||
        [first, 0, 1, 2].reduce((by, m) => by || changeSize(b, m) - changeSize(a, m), 0) || (a.name < b.name ? -1 : 1));
}

// -- what is said --

const when = raw => word(obj(raw.metadata).generated_at);

/* Returns sentences about what makes the comparison doubtful, in the words of src/tools/diff.c. */
function diffDoubts({ base, now }, rows) {
    const both = [base, now], said = [], labels = raw => text(obj(raw.metadata).labels), [was, is] = both.map(p => when(p.raw));
    const some = sides => ['tag', 'scope', 'site'].some(kind => (rows[kind] || []).some(r => r.sides === sides && r.name !== DIFFS[kind][4]));
    for (const p of both) if (!Array.isArray(p.raw.verdicts)) said.push(`${p.name}: ${older(p.raw)}`);
    for (const p of both) for (const kind of Object.keys(DIFFS))
        if (!(kind === 'stack' ? stacksListed(p.raw) : Array.isArray(rawList(p.raw, kind)))) said.push(`${p.name}: no key '${DIFFS[kind][0]}': not compared`);
    for (const p of both) {
        const held = objs(p.raw.devices).reduce((n, d) => n + solid(obj(d.stats).allocated), 0);
        if (Math.abs(held - solid(p.total.allocated)) > 0) said.push(`${p.name}: the devices do not add up to the total`);
    }
    if (labels(base.raw) !== labels(now.raw)) said.push(`the labels differ: '${labels(base.raw)}', now '${labels(now.raw)}': another machine or program?`);
    const [from, to] = both.map(p => word(obj(p.raw.metadata).program));
    if (from && to && from !== to) said.push(`the name of the program differs: '${text(from)}', now '${text(to)}': its places have the second name`);
    if (some(1) && some(2) && !some(3)) said.push('no tag, scope or site is in both: another program?');
    if (was && is && was > is) said.push(`${base.name} is newer than ${now.name}: the wrong way round?`);
    for (const p of both) if (zero(p.total.peak_error) > 0) said.push(`${p.name}: peaks are low by at most ${bytes(p.total.peak_error)}`);
    for (const p of both) {
        const more = solid(obj(p.raw.leaks).count) - objs(leaksOf(p.raw)).reduce((n, r) => n + solid(r.count), 0);
        if (more > 0) said.push(`${p.name}: leaks of ${more} blocks are not listed, and count as new or gone`);
    }
    return said.concat(stackDoubts(both));
}

function stackDoubts([base, now]) {
    const said = [], of = p => obj(p.raw.stacks), [was, is] = [base, now].map(p => depthOf(p.raw));
    if (![base, now].some(p => hasList(p.raw, 'stack'))) return said;
    for (const p of [base, now]) {
        const more = zero(obj(of(p).more).stacks);
        if (depthOf(p.raw) !== null && depthOf(p.raw) <= 0) said.push(`${p.name}: no stacks were taken: not compared`);
        if (more > 0) said.push(`${p.name}: ${more} stacks are not listed, and count as new or gone`);
        if (hasList(p.raw, 'stack') && of(p).bytes > 1) said.push(`${p.name}: stacks are samples, one each ${bytes(num(of(p).bytes))}: their bytes are estimates`);
    }
    if (was > 0 && is > 0 && was !== is) said.push(`stacks have at most ${was} frames, now ${is}`);
    for (const { module: path, build_id: id } of objs(of(now).modules))
        for (const m of objs(of(base).modules))
            if (word(path) !== null && m.module === path && m.build_id !== id) said.push(`${text(path)} is of another build: places in it without a name are not compared`);
    return said;
}

/* Returns where a profile is from. */
const since = p => {
    const meta = obj(p.raw.metadata), known = [text(meta.program, 60), num(meta.pid) && 'pid ' + meta.pid, text(meta.host, 60) && 'on ' + text(meta.host, 60), text(when(p.raw), 40), text(p.raw.version, 20) && 'MemLord ' + text(p.raw.version, 20)].filter(Boolean);
    return known.length ? ` (${known.join(', ')})` : '';
};
const signedFull = n => (n > 0 ? '+' : '') + bytes(n);
const parted = (by, of) => of > 0 ? ` (${plus(by)}${percent(by / of).replace('-', '−')})` : '';

function diffTotals({ base, now }) {
    const both = TOTALS.map(key => [base, now].map(p => solid(p.total[key])));
    return el('dl.figures', ...['Live', 'Peak', 'Allocated'].map((name, m) => {
        const [was, is] = both[m], by = is - was;
        return el('div', el('dt', name), el('dd', by !== by ? '–' : by ? sized(by, signedFull) : 'no change', el('small', was === was ? bytes(was) : '–',
            ' → ', is === is ? bytes(is) : '–', by === by && by ? parted(by, was) : '')));
    }));
}

/* The measure of a comparison is the first of live, peak and allocated bytes whose total has changed. */
const TOTALS = ['allocated', 'peak', 'total_allocated'];
const totalChange = ({ base, now }, m) => solid(now.total[TOTALS[m]]) - solid(base.total[TOTALS[m]]);
const measureOf = both => Math.max([0, 1, 2].findIndex(m => totalChange(both, m)), 0);

/* Returns how many seconds of one run lie between two profiles, or 0 if they are not of one run. */
function secondsBetween({ base, now }) {
    const [was, is] = [base, now].map(p => obj(p.raw.metadata));
    return word(is.started_at) && was.started_at === is.started_at && was.pid === is.pid ? Math.max((is.uptime_ns - was.uptime_ns) / 1e9, 0) : 0;
}

/* Returns the answer, which says by how much the total changed, in what time of one run, and which row changed most. */
function diffAnswer(both, rows) {
    const m = measureOf(both), by = totalChange(both, m), seconds = secondsBetween(both), name = ['Live bytes', 'The peak', 'Allocated bytes'][m];
    const said = by !== by ? 'How live bytes changed is not known.' : !by ? 'Live bytes are the same.'
        : `${m ? 'Live bytes are the same. ' : ''}${name} ${by > 0 ? 'grew' : 'shrank'} by ${bytes(Math.abs(by))}${seconds > 0 ? ` in ${seconds.toFixed(1)} s` : ''}.`;
    const compared = kind => (rows[kind] || []).filter(r => !r.strange && r.name !== (DIFFS[kind][4] || '(not listed)'));
    const largest = kind => compared(kind).reduce((a, b) => changeSize(b, m) > (a ? changeSize(a, m) : 0) ? b : a, null);
    const estimate = kind => kind === 'stack' && [both.base, both.now].some(p => obj(obj(p.raw).stacks).bytes > 1); // the bytes of sites are exact
    const kind = ['stack', 'site', 'tag', 'scope', 'device'].find(kind => largest(kind) && !(estimate(kind) && compared('site').length)), top = kind && largest(kind);
    if (!top) return said;
    return `${said} The largest change by ${kind}: ${text(top.brief || top.name, 200)}, ${signedFull(changeOf(top, m))}${estimate(kind) ? ', an estimate' : ''}.`;
}

const STATES = ['', 'gone', 'new', ''];

const CHANGES = ['Live change', 'Peak change', 'Allocated change'];

function diffTable(rows, kind, m) {
    const cell = (title, m, side) => [title, 'bytes', r => known(r.bytes[side][m])];
    const by = (title, m, more) => [title, 'signed', r => known(changeOf(r, m)), Object.assign({ tone: true }, more)];
    const shown = rows.filter(changed), n = rows.length - shown.length;
    if (!shown.length) return el('p.soft', `Nothing changed by ${kind}.`);
    const names = [[kind[0].toUpperCase() + kind.slice(1), 'text', r => text(r.name), { mono: kind !== 'tag' && kind !== 'device', brief: r => text(r.brief || r.name, 200) }],
        ['State', 'text', r => STATES[r.sides]]];
    const live = by(CHANGES[0], 0, { by: r => changeSize(r, 0), brief: r => signed(known(changeOf(r, 0))) + (r.doubt ? ' ± ' + bytes(Math.round(Math.sqrt(r.doubt))) : '') });
    return el('div', table([
        ...innerWidth < 600 ? [live, ...names] : [...names, live], // a phone shows the bytes first
        cell('Live', 0, 1), by(CHANGES[1], 1, { by: r => changeSize(r, 1) }), cell('Peak', 1, 1),
        by(CHANGES[2], 2, { by: r => changeSize(r, 2) }), cell('Allocated', 2, 1),
    ], shown, { name: 'changes by ' + kind, sort: CHANGES[DIFFS[kind][m + 1] ? m : 0] }), n > 0 && el('p.soft', `${many(n, 'other')} did not change.`));
}

// -- the section --

function showVersus() {
    const section = $('versus'), body = section.querySelector('.body'), { base, now } = versus, all = {};
    view.charts = view.charts.filter(chart => chart !== versus.chart);
    versus.chart = null;
    section.hidden = !base;
    $('nav').querySelectorAll('[href="#versus"]').forEach(a => a.remove());
    if (!base) return;
    $('nav').prepend(el('a', { href: '#versus' }, 'What changed'));
    for (const kind of Object.keys(DIFFS)) all[kind] = diffRows(base.raw, now.raw, kind);
    const kinds = Object.keys(DIFFS).filter(kind => all[kind] && all[kind].length), area = el('div');
    if (!kinds.includes(versus.by)) versus.by = kinds.find(kind => all[kind].some(changed)) || kinds[0];
    const pick = kinds.map(kind => button(kind[0].toUpperCase() + kind.slice(1) + 's', () => { versus.by = kind; render(); }));
    function render() {
        kinds.forEach((kind, i) => pick[i].setAttribute('aria-pressed', String(kind === versus.by)));
        fill(area, versus.by && diffTable(all[versus.by], versus.by, measureOf(versus)));
    }
    render();
    const trees = growTrees([base, now]), doubts = diffDoubts(versus, all);
    versus.chart = trees.length ? flameGraph(now, trees, true, measureOf(versus)) : null;
    fill(body, el('p', `From ${base.name}${since(base)} to ${now.name}${since(now)}. `, el('b', diffAnswer(versus, all))), doubts.length && el('ul.alarm', ...doubts.map(s => el('li', s.replace(/^(the|no|stacks) /, w => w[0].toUpperCase() + w.slice(1)) + (s.endsWith('?') ? '' : '.')))),
        diffTotals(versus), el('div.tools', button('Swap', () => compareNow(versus.now, versus.base)), button('Close', () => compareNow(null, null))),
        versus.chart && versus.chart.element, el('div.tools', el('span.group', ...pick)), area);
    redraw();
}

function compareNow(base, now) {
    Object.assign(versus, { base, now });
    Object.assign(strangersOf, { raws: [null, null], found: null });
    showVersus();
}

/* Returns the parts of a profile that a comparison needs. */
const side = (raw, name) => ({ raw, name, total: obj(raw.total), scopes: readScopes(raw.scopes) });

/* Compares the profile that is shown with another one, which is the base. */
function compareText(source, name, as) {
    const raw = parse(source, name);
    if (!raw || !view.profile) return;
    compareNow(side(oneProgram(raw, view.profile.raw), as || name), side(view.profile.raw, 'the profile shown'));
}

/* Reads a file that was dropped. If it was dropped on the field for comparing, the profile that is shown
   is compared with it. */
const dropped = e => readFile(e.dataTransfer.files[0], e.target.id === 'beside' ? compareChosen : load);

function compareChosen(source, name) {
    compareText(source, name);
    $('versus').scrollIntoView();
}

/* Ends the comparison, if there is one. The profile that was shown stays. */
function compareNone() {
    $('beside').hidden = $('compare').hidden = false;
    compareNow(null, null);
}

function startCompare() {
    const base = $('base');
    listen($('compare'), { click: () => $('second').click() });
    listen($('second'), { change: e => {
        readFile(e.target.files[0], compareChosen);
        e.target.value = '';
    } });
    if (!base) return;
    base.remove();
    compareText(base.textContent.trim(), 'The base in this page', 'the base');
}

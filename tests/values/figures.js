// figures.js PAGE...: opens report pages in Chromium and prints as JSON the figures that each shows.
'use strict';
const path = require('path');
const { chromium } = require('playwright-core');

/* Runs in the page. A figure is its words and, where it has one, its title: the exact number. */
function figures() {
    const words = e => e.textContent.replace(/\u00a0/g, ' ').replace(/^[▸▾] /, '');
    const all = (from, selector, get) => [...from.querySelectorAll(selector)].map(get);
    const figure = e => {
        const titled = e.title ? e : e.querySelector('[title]:not(a)');
        return [words(e), titled ? titled.title : ''];
    };
    const shown = id => !document.getElementById(id).hidden;
    const facts = from => all(from, '.facts > div', d => [words(d.querySelector('dt')), words(d.querySelector('dd')), d.title]);
    const table = of => ({
        heads: all(of, ':scope > thead > tr > th', words),
        rows: all(of, ':scope > tbody > tr', tr => all(tr, ':scope > td:not(.inner)', figure)).filter(row => row.length),
        foot: all(of, ':scope > tfoot > tr', tr => all(tr, 'td', figure)),
    });
    const card = c => ({
        name: words(c.querySelector('h3')), label: words(c.querySelector('header .soft')), live: figure(c.querySelector('header b')),
        legend: all(c, '.legend li', li => [...li.querySelectorAll('span')].map(s => figure(s))),
        bar: c.querySelector('.stack').getAttribute('aria-label'),
        sum: words(c.querySelector('.sum')), facts: facts(c),
        bars: all(c, '.bars', b => b.getAttribute('aria-label')), oom: all(c, '.bad', words),
    });
    const sections = ['scopes', 'tags', 'sites', 'blocks', 'leaks', 'mistakes', 'streams', 'accounts', 'moves', 'snapshots', 'threads'].filter(shown);
    document.querySelectorAll('.toggle').forEach(b => b.click());
    return {
        title: document.title,
        answers: all(document, '.answers li', words),
        figures: all(document, '#overview .figures > div', d => [words(d.querySelector('dt')),
            ...figure(d.querySelector('dd > span')), all(d, 'small', words).join()]),
        cards: all(document, '#devices .card', card),
        tables: Object.fromEntries(sections.map(id => [id, table(document.querySelector(`#${id} .body > div > .box > table`))])),
        inner: all(document, 'td.inner table', table), // sites by device, parts of blocks, leaks of a site
        leaks: shown('leaks') ? words(document.querySelector('#leaks .note')) : null,
        mistakes: shown('mistakes') ? all(document, '#mistakes .body > p', words).join() : null,
        about: facts(document.getElementById('about')),
    };
}

(async () => {
    const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: process.getuid() ? [] : ['--no-sandbox'] });
    const found = [];
    for (const name of process.argv.slice(2)) {
        const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
        await page.goto('file://' + path.resolve(name));
        await page.waitForFunction(() => performance.getEntriesByName('complete').length > 0);
        found.push(await page.evaluate(figures));
        await page.close();
    }
    console.log(JSON.stringify(found));
    await browser.close();
})().catch(error => {
    console.error(error);
    process.exit(1);
});

// pictures.js SAMPLE.html TWO.html DIR: pictures of a page of one profile and of a page of two, in
// both themes, in a window and on a phone.
'use strict';
const path = require('path');
const { chromium } = require('playwright-core');

const [sample, two, dir] = process.argv.slice(2);
const WINDOW = { width: 1200, height: 680 }, PHONE = { width: 390, height: 844 };

/* A section at the top of the window, `done` first. */
const shots = [
    ['report', sample, '#top'],
    ['memory', sample, '#memory'],
    ['flame', two, '#flame'],
    ['changes', two, '#versus'],
];

async function take(browser, [name, file, section, done], viewport, colorScheme) {
    const context = await browser.newContext({ viewport, colorScheme, deviceScaleFactor: 1, reducedMotion: 'reduce', locale: 'en-GB', timezoneId: 'UTC' });
    const page = await context.newPage();
    await context.setOffline(true);
    await page.goto('file://' + path.resolve(file));
    await page.waitForFunction(() => performance.getEntriesByName('complete').length > 0);
    if (done) await done(page);
    await page.$eval(section, e => e.id === 'top' ? scrollTo(0, 0) : e.scrollIntoView());
    await page.mouse.move(0, 0);
    await page.evaluate(() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r))));
    await page.screenshot({ path: path.join(dir, `${name}-${viewport === PHONE ? 'phone-' : ''}${colorScheme}.png`) });
    await context.close();
}

(async () => {
    const browser = await chromium.launch({ executablePath: process.env.CHROMIUM,
        args: ['--font-render-hinting=none', '--disable-lcd-text', ...process.getuid() ? [] : ['--no-sandbox']] });
    for (const shot of shots)
        for (const viewport of [WINDOW, PHONE])
            for (const theme of ['light', 'dark']) await take(browser, shot, viewport, theme);
    await browser.close();
})().catch(error => {
    console.error(error);
    process.exit(1);
});

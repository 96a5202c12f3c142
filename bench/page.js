// page.js FILE: how long the report page takes to answer, in Chromium: ms, a line for each of five openings.
'use strict';
const { chromium } = require('playwright-core');

(async () => {
    const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: process.getuid() ? [] : ['--no-sandbox'] });
    for (let k = 0; k < 5; k++) {
        const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, offline: true });
        await page.goto('file://' + process.argv[2]);
        await page.click('#theme'); // answered when all before it is done
        console.log(await page.evaluate(() => Math.round(performance.getEntriesByName('interactive')[0].startTime)));
        await page.close();
    }
    await browser.close();
})();

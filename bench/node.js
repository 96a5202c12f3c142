// node.js - what a program of node may do, to measure the interposer under it: a worker fills a map,
// and a child compresses text. `node.js buffers` allocates Buffers.
const { Worker } = require('worker_threads');
const { execFileSync } = require('child_process');
const zlib = require('zlib');

function fill() {
    const map = new Map();
    for (let i = 0; i < 300000; i++) map.set('key ' + i, [i]);
    require('worker_threads').parentPort.postMessage(map.size);
}
function compress() {
    let text = '';
    for (let i = 0; i < 20000; i++) text += JSON.stringify({ i, s: 'x'.repeat(i % 50) });
    return zlib.gunzipSync(zlib.gzipSync(text)).length;
}
function take(n) { return Buffer.allocUnsafeSlow(n); }
function hot() {
    const kept = [];
    for (let i = 0; i < 3000; i++) kept.push(take(20000));
    return kept.length;
}

switch (process.argv[2]) {
case 'compress': console.log(compress()); break;
case 'buffers': for (let i = 0; i < 20; i++) console.log(hot()); break;
default:
    new Worker(`(${fill})()`, { eval: true })
        .on('message', n => console.log(n, execFileSync(process.execPath, [__filename, 'compress']).length));
}

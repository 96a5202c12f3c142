/* Runs the page's script, which is compressed in an element of its own. */
document.currentScript.remove();
const packed = document.getElementById('packed'), script = document.createElement('script');
const bytes = Uint8Array.from(atob(packed.textContent), c => c.charCodeAt(0));
new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'))).text().then(text => {
    script.textContent = text;
    packed.replaceWith(script);
});

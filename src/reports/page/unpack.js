/* Unpacks the style, the sections and the script of the page, which are compressed in one element. */
document.currentScript.remove();
const packed = document.getElementById('packed');
const bytes = Uint8Array.from(atob(packed.textContent), c => c.charCodeAt(0));
new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'))).text().then(text => {
    const [css, sections, js] = text.split('\0');
    const style = document.createElement('style'), script = document.createElement('script');
    style.textContent = css;
    document.head.append(style);
    document.getElementById('report').innerHTML = sections;
    script.textContent = js;
    packed.replaceWith(script);
});

#!/usr/bin/env python3
"""Assembles the report page from report.html, sections.html, the styles and the scripts: report.js and its parts.

assemble.py page                  prints the page; @DATA@ stands where a profile goes, @TEXT@ where
                                  its figures for readers without scripts
assemble.py header                writes the page into src/reports/page.h
assemble.py check                 status 1 if src/reports/page.h holds another page than these files
assemble.py profile FILE.json [BASE.json]
                                  prints the page with that profile in it, compared with the other
assemble.py plain FILE.json [BASE.json]
                                  likewise, with script and style as they are written here

Where esbuild is installed, it minifies styles and scripts. All that a reader without scripts does not
see is compressed. `header` and `check` end with status 77 unless esbuild is installed in the version
that MINIFIER names. Status 2 means bad input: a file that is no profile, or of another schema.
"""
import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import zlib
from html import escape as entities

HERE = os.path.dirname(os.path.abspath(__file__))
HEADER = os.path.join(HERE, "..", "page.h")
MARK, TEXT = "@DATA@", "@TEXT@"
SCHEMA = "memlord/2"
SCRIPTS = ("bands.js", "flame.js", "compare.js", "report.js")  # report.js comes last, because it begins the work
MINIFIER = "0.17.0"  # the version of esbuild in Debian 12; another version may write another page
UNCOMPARED = ("events", "strings", "snapshots", "operation_allocations", "operation_summary", "moves", "threads",
              "largest_blocks", "peak_holders")  # the keys that a comparison does not read
PIECE = 3900  # the most characters of a literal, for which C99 promises only 4095
COLUMNS = 100



def source(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as f:
        return f.read()


def version():
    """Returns the version of esbuild, or None if it is not installed."""
    try:
        run = subprocess.run(["esbuild", "--version"], stdout=subprocess.PIPE, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return run.stdout.decode().strip()


def minify(text, *options):
    command = ["esbuild", "--minify", "--log-level=warning"] + list(options)
    run = subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, check=True)
    return run.stdout.decode().strip()


def ascii_js(text):
    units = lambda c: c.encode("utf-16-be").hex()
    return re.sub(r"[^\x00-\x7f]", lambda m: re.sub("(....)", r"\\u\1", units(m.group())), text)


def ascii_css(text):
    return re.sub(r"[^\x00-\x7f]", lambda m: "\\%x " % ord(m.group()), text)


def digest(text):
    return "'sha256-%s'" % base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def page(small):
    """Returns the page. The targets of the styles are the oldest browsers that know light-dark(). The
    script needs less than these browsers have."""
    first, css = source("first.css"), source("report.css")
    html, sections = source("report.html"), source("sections.html")
    js = "\n".join(source(name) for name in SCRIPTS)
    if small:
        first, css = (minify(text, "--loader=css", "--target=chrome123,firefox120,safari17.5") for text in (first, css))
        js = minify(js, "--loader=js", "--format=iife", "--target=es2018")
        html, sections = (
            "\n".join(line.strip() for line in text.split("\n") if line.strip()) for text in (html, sections))
    css, js = ascii_css(css), ascii_js(js)
    html, sections = (text.encode("ascii", "xmlcharrefreplace").decode() for text in (html, sections))
    if "</" in js or "<!--" in js or "</" in first + css or "\0" in css + sections + js:
        sys.exit("report.js or a style would end its own element, or its part of what is packed")
    styles, scripts = [digest(first), digest(css)], [digest(js)]
    style, packed = "<style>%s</style>\n" % css, ""
    if small:
        packed = '<script type="text/plain" id="packed">%s</script>\n' % base64.b64encode(
            zlib.compress("\0".join((css, sections, js)).encode(), 9)).decode()
        style = sections = ""
        js = minify(source("unpack.js"), "--loader=js", "--format=iife", "--target=es2018")
        scripts.append(digest(js))
    policy = "default-src 'none'; style-src %s; script-src %s; base-uri 'none'; form-action 'none'" % (
        " ".join(styles), " ".join(scripts))
    for mark, text in (("@CSP@", policy), ("@FIRST@", first), ("@STYLE@", style), ("@SECTIONS@", sections),
                       ("@PACKED@", packed), ("@JS@", js)):
        if html.count(mark) != 1:
            sys.exit("report.html: %s is not there once" % mark)
        html = html.replace(mark, text)
    for mark in (TEXT, MARK):
        if html.count(mark) != 1:
            sys.exit("%s is not there once" % mark)
    return html.rstrip("\n") + "\n"


def literal(text):
    """Returns an element of an array as adjacent literals, one on each line."""
    escape = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
    lines, line = [], ""
    previous = ""
    for c in text:
        out = escape.get(c, c)
        if c == "?" and previous == "?":
            out = "\\?"  # so that there are no trigraphs
        if len(line) + len(out) > COLUMNS - 7:
            lines.append(line)
            line = ""
        line += out
        previous = c
    lines.append(line)
    return "\n".join('    "%s"' % line for line in lines)


def array(name, text):
    """Returns an array of characters. An array of pointers would keep a linker from leaving it out."""
    size = -(-len(text) // -(-len(text) // PIECE))  # all elements are as long as the longest one
    pieces = [text[i:i + size] for i in range(0, len(text), size)]
    return "static const char mli_html_%s[][%d] = {\n%s};\n" % (
        name, size + 1, ",\n".join(literal(piece) for piece in pieces))


def words(name, data):
    """Returns an array of words that hold bytes, the first in the highest bits."""
    line = (COLUMNS - 4) // 19 * 8
    rows = [["0x" + data[j:j + 8].ljust(8, b"\0").hex() for j in range(i, min(i + line, len(data)), 8)]
            for i in range(0, len(data), line)]
    return "#define MLI_HTML_%s %d /* the bytes that mli_html_%s holds */\nstatic const uint64_t mli_html_%s[] = {\n%s};\n" % (
        name.upper(), len(data), name, name, ",\n".join("    " + ",".join(row) for row in rows))


def section():
    head, rest = page(True).split(TEXT)
    middle, tail = rest.split(MARK)
    between, packed, tail = re.match('(.*id="packed">)([^<]*)(.*)$', tail, re.DOTALL).groups()
    return ("/* The HTML report around its data, made from src/reports/page by `make page`: change it there.\n"
            "   Minified by esbuild " + MINIFIER + ". */\n#ifndef MLI_REPORTS_PAGE_H\n#define MLI_REPORTS_PAGE_H\n#include \"api/api.h\"\n"
            "#if !defined(MEMLORD_NO_PAGE)\n\n" +
            "\n".join(array(*part) for part in
                      (("head", head), ("middle", middle), ("between", between), ("tail", tail))) + "\n" +
            words("packed", base64.b64decode(packed)) + "\n#endif\n\n#endif\n")


def header(write):
    if version() != MINIFIER:
        sys.stderr.write("esbuild %s is needed, and here is %s\n" % (MINIFIER, version() or "none"))
        sys.exit(77)
    new = section()
    if write:
        with open(HEADER, "w", encoding="utf-8", newline="") as f:
            f.write(new)
        return
    with open(HEADER, encoding="utf-8", newline="") as f:
        if f.read() != new:
            sys.exit("src/reports/page.h is another page than that of src/reports/page: make page")


def refuse(constant):
    raise ValueError("%s is not JSON" % constant)


def brief(data):
    """Removes from a profile what the page does not read, and shortens its events, as the library does in
    its own page."""
    for key in ("operation_allocations", "operation_summary"):
        data.pop(key, None)
    stacks = data.get("stacks")
    listed = stacks.get("list") if isinstance(stacks, dict) else None
    for stack in listed if isinstance(listed, list) else []:
        if isinstance(stack, dict):
            stack.pop("temporaries", None)
    events = data.get("events")
    rows = events.get("list") if isinstance(events, dict) else None
    kinds = events.get("kinds") if isinstance(events, dict) else None
    if not isinstance(rows, list) or not isinstance(kinds, list) or not all(
            isinstance(e, list) and len(e) == 9 and type(e[0]) is int and type(e[1]) is int for e in rows):
        return
    scopes = [i for i, kind in enumerate(kinds) if kind in ("scope_begin", "scope_end")]
    time = storage = 0
    for e in rows:
        e[0], time = e[0] - time, e[0]
        if e[1] in scopes:
            e[3:] = e[8:]
        elif isinstance(e[4], str) and re.match("0x[0-9a-f]{1,16}$", e[4]):
            low = int(e[4], 16) & (1 << 52) - 1
            e[4], storage = low - storage, low
        else:
            e[4] = 0
    events["brief"] = True


def size(n):
    """Returns bytes as text, as memlord_format_bytes does."""
    unit = 0
    while unit < 6 and n >= 1023.995:
        n, unit = n / 1024, unit + 1
    return ("%.2f" % n).rstrip("0").rstrip(".") + " " + ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")[unit]


def figures(data):
    """Returns the live bytes and the peak of each device, for readers without scripts."""
    lines = ["%-16s%12s%12s" % ("device", "live", "peak")]
    for device in data["devices"] if isinstance(data.get("devices"), list) else []:
        stats = device.get("stats") if isinstance(device, dict) else None
        known = [stats.get(key) for key in ("allocated", "peak")] if isinstance(stats, dict) else []
        if known and all(type(n) is int and n >= 0 for n in known):
            lines.append("%-16s%12s%12s" % (str(device.get("device"))[:60], size(known[0]), size(known[1])))
    text = entities("\n".join(lines), quote=False)
    return "".join(c if " " <= c <= "~" or c == "\n" else "&#%d;" % 0xfffd for c in text)


def bad_input(*words):
    sys.stderr.write(": ".join(words) + "\n")
    sys.exit(2)


def read(path):
    try:
        with open(path, encoding="utf-8", errors="surrogatepass") as f:
            data = json.load(f, parse_constant=refuse)
    except OSError as e:
        bad_input(path, e.strerror)
    except (ValueError, RecursionError) as e:
        bad_input(path, "not JSON", str(e))
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        bad_input(path, "not a profile that this page can read", "its schema is %s, not %s" % (
            ascii(schema) if schema else "missing", SCHEMA))
    if not isinstance(data.get("devices"), list):
        bad_input(path, "no list 'devices'", "no profile")
    return data


def embedded(data):
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # everything else is ASCII


def profile(path, base, small):
    """Prints the page of a profile. The base is in an element of its own, after the profile."""
    data = read(path)
    brief(data)
    text = embedded(data)
    if base is not None:
        older = read(base)
        for key in UNCOMPARED:
            older.pop(key, None)
        text += '</script>\n<script type="application/json" id="base">' + embedded(older)
    before, after = page(small).split(TEXT)
    sys.stdout.write(before + figures(data) + after.replace(MARK, text))


def main():
    commands = {("page",): lambda: sys.stdout.write(page(small)),
                ("header",): lambda: header(True), ("check",): lambda: header(False)}
    small = version() is not None
    if len(sys.argv) in (3, 4) and sys.argv[1] in ("profile", "plain"):
        base = sys.argv[3] if len(sys.argv) == 4 else None
        profile(sys.argv[2], base, small and sys.argv[1] == "profile")
    elif tuple(sys.argv[1:]) in commands:
        commands[tuple(sys.argv[1:])]()
    else:
        sys.stderr.write(__doc__)
        sys.exit(2)


if __name__ == "__main__":
    main()

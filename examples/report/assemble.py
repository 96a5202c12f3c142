#!/usr/bin/env python3
"""Assembles the report page from report.html, report.css and report.js.

assemble.py page                  prints the page; @DATA@ stands where a profile goes
assemble.py header                writes the page into memlord.h, section >>page
assemble.py check                 status 1 if memlord.h holds another page than these files
assemble.py profile FILE.json     prints the page with that profile in it
"""
import base64
import hashlib
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
HEADER = os.path.join(HERE, "..", "..", "memlord.h")
MARK = "@DATA@"
PIECE = 3900  # characters of a literal; C99 promises 4095
COLUMNS = 100

BANNER = "/* " + " >>page --\n".rjust(83, "-")
BEFORE = re.compile(r"/\* -+ >>formats --\n")  # where a header without the section takes it
END = "#endif /* >>page */\n\n"


def source(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as f:
        return f.read()


def squeeze(text):
    """Without indentation, blank lines, and comments that begin a line."""
    text = re.sub(r"^[ \t]*/\*(?:(?!\*/).)*\*/[ \t]*$", "", text, flags=re.M | re.S)
    lines = (line.strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line and not line.startswith("// "))


# What keeps its blanks: strings, templates, and a slash that stands where an operand does.
JS_WHOLE = re.compile(r"""('(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`
    |(?<=[(,=:])/(?![/*])(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\n\[])+/)""", re.X)


def squeeze_js(text):
    """Also without trailing comments, and blanks that part nothing. Statements end in
    semicolons, so a line that ends in one, or in the middle of something, needs no end."""
    parts = JS_WHOLE.split(squeeze(text))
    for i in range(0, len(parts), 2):
        part = re.sub(r"[ ]+// .*$", "", parts[i], flags=re.M)
        part = re.sub(r" ?([{}()\[\]=<>,;:?&|*!]) ?", r"\1", part)
        part = re.sub(r"(?<![+]) ?([+]) ?(?![+])|(?<!-) ?(-) ?(?!-)", r"\1\2", part)
        part = re.sub(r"(?<=[\w)]) / (?=[\w(])", "/", part).replace(";}", "}")
        parts[i] = re.sub(r"([{(\[,;:?&|=])\n|\n(?=[})\].?:&|=])", r"\1", part)
    return "".join(parts)


def squeeze_css(text):
    text = re.sub(r"\s*\n\s*", "\n", squeeze(text))
    text = re.sub(r"([{},;:])[ \n]+", r"\1", text)  # none of these ends a selector or a string here
    return re.sub(r";?\n?}", "}", re.sub(r" \{", "{", text))


def ascii_js(text):
    units = lambda c: c.encode("utf-16-be").hex()
    return re.sub(r"[^\x00-\x7f]", lambda m: re.sub("(....)", r"\\u\1", units(m.group())), text)


def ascii_css(text):
    return re.sub(r"[^\x00-\x7f]", lambda m: "\\%x " % ord(m.group()), text)


def digest(text):
    return "'sha256-%s'" % base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def page():
    css, js = ascii_css(squeeze_css(source("report.css"))), ascii_js(squeeze_js(source("report.js")))
    html = squeeze(source("report.html")).encode("ascii", "xmlcharrefreplace").decode()
    if "</" in js or "<!--" in js or "</" in css:
        sys.exit("report.js or report.css would end its own element")
    policy = "default-src 'none'; style-src %s; script-src %s; base-uri 'none'; form-action 'none'"
    for mark, text in (("@CSP@", policy % (digest(css), digest(js))), ("@CSS@", css), ("@JS@", js)):
        if html.count(mark) != 1:
            sys.exit("report.html: %s is not there once" % mark)
        html = html.replace(mark, text)
    if html.count(MARK) != 1:
        sys.exit("%s is not there once" % MARK)
    return html + "\n"


def literal(text):
    """One array element: adjacent literals, a line each."""
    escape = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
    lines, line = [], ""
    previous = ""
    for c in text:
        out = escape.get(c, c)
        if c == "?" and previous == "?":
            out = "\\?"  # no trigraphs
        if len(line) + len(out) > COLUMNS - 7:
            lines.append(line)
            line = ""
        line += out
        previous = c
    lines.append(line)
    return "\n".join('    "%s"' % line for line in lines)


def array(name, text):
    """Characters, not pointers to them: a linker can leave out what no program asks for."""
    size = -(-len(text) // -(-len(text) // PIECE))  # all as long as the longest needs to be
    pieces = [text[i:i + size] for i in range(0, len(text), size)]
    return "static const char memlord_i_page_%s[][%d] = {\n%s};\n" % (
        name, size + 1, ",\n".join(literal(piece) for piece in pieces))


def section():
    head, tail = page().split(MARK)
    return (BANNER + "   The HTML report around its data, generated from examples/report by assemble.py: change\n"
            "   it there. */\n#if !defined(MEMLORD_NO_REPORTS)\n\n" +
            array("head", head) + "\n" + array("tail", tail) + "\n" + END)


def header(write):
    with open(HEADER, encoding="utf-8", newline="") as f:
        text = f.read()
    if BANNER in text:
        start = text.index(BANNER)
        end = text.index(END, start) + len(END)
    else:
        start = end = BEFORE.search(text).start()
    new = text[:start] + section() + text[end:]
    if write:
        with open(HEADER, "w", encoding="utf-8", newline="") as f:
            f.write(new)
    elif new != text:
        sys.exit("memlord.h carries another report page than examples/report: "
                 "python3 examples/report/assemble.py header")


def refuse(constant):
    raise ValueError("%s is not JSON" % constant)


def profile(path):
    try:
        with open(path, encoding="utf-8", errors="surrogatepass") as f:
            data = json.load(f, parse_constant=refuse)
    except OSError as e:
        sys.exit("%s: %s" % (path, e.strerror))
    except (ValueError, RecursionError) as e:
        sys.exit("%s: not JSON: %s" % (path, e))
    if not isinstance(data, dict) or not str(data.get("schema", "")).startswith("memlord/"):
        sys.exit("%s: not a profile of MemLord: no schema memlord/1" % path)
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # all else is ASCII
    sys.stdout.write(page().replace(MARK, text))


def main():
    commands = {("page",): lambda: sys.stdout.write(page()), ("header",): lambda: header(True),
                ("check",): lambda: header(False)}
    if len(sys.argv) == 3 and sys.argv[1] == "profile":
        profile(sys.argv[2])
    elif tuple(sys.argv[1:]) in commands:
        commands[tuple(sys.argv[1:])]()
    else:
        sys.stderr.write(__doc__)
        sys.exit(2)


if __name__ == "__main__":
    main()

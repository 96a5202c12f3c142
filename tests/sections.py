"""The sections of a header: its modules, and what the banners of the API name (`/* ---- >>name --`)."""
import re

BANNER = re.compile(r'/\* -+ (?:>>|src/)([\w/]+)(?:\.[hc])? -')


def sections(text):
    """The name of the section of each line, that of a module is its path in src/; None before the
    first banner."""
    names, name = [], None
    for line in text.splitlines():
        banner = BANNER.match(line)
        if banner:
            name = banner.group(1)
        names.append(name)
    return names

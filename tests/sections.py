"""The sections of a header: what its banners name, `/* ---- >>name --`."""
import re


def sections(text):
    """The name of the section of each line; None before the first banner."""
    names, name = [], None
    for line in text.splitlines():
        banner = re.match(r'/\* -+ >>(\w+) -', line)
        if banner:
            name = banner.group(1)
        names.append(name)
    return names

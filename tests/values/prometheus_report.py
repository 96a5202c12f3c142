"""PROMETHEUS: reads the text exposition format 0.0.4."""
import re

NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")


def unescaped(text):
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text)


def read(data):
    """Returns {family: {"help", "type", "samples": {labels: number as it is written}}}. A family in
    two pieces, a series that comes twice and a sample outside its family raise ValueError."""
    families, family = {}, None
    text = data.decode()
    if not text.endswith("\n"):
        raise ValueError("the last line does not end")
    lines = iter(text[:-1].split("\n"))
    for line in lines:
        if line.startswith("# HELP "):
            _, _, family, help_text = line.split(" ", 3)
            mark, word, name, kind = next(lines).split(" ")
            if (mark, word, name) != ("#", "TYPE", family) or family in families:
                raise ValueError(line)
            families[family] = {"help": help_text, "type": kind, "samples": {}}
            continue
        sample = SAMPLE.fullmatch(line)
        if not sample or sample[1] != family:
            raise ValueError(line)
        labels = tuple((k, unescaped(v)) for k, v in re.findall(LABEL, sample[2] or ""))
        samples = families[family]["samples"]
        if labels in samples:
            raise ValueError(f"{line}: a series that comes twice")
        samples[labels] = sample[sample.lastindex]
    return families

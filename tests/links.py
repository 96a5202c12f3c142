"""Prints each link of a Markdown file that leads to no file of the tree, or to no heading of it."""
import os
import re
import sys


def anchors(path):
    with open(path, encoding="utf-8") as text:
        lines = re.sub(r"(?ms)^```.*?^```$", "", text.read()).splitlines()
    heads = [line.lstrip("#").strip() for line in lines if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


text = sys.argv[1]
with open(text, encoding="utf-8") as file:
    body = re.sub(r"(?ms)^```.*?^```$", "", file.read())
for link in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", body):
    link = link[0] or link[1]
    if re.match(r"[a-z]+:", link):
        continue
    name, _, anchor = link.partition("#")
    path = os.path.normpath(os.path.join(os.path.dirname(text), name)) if name else text
    if not os.path.exists(path):
        print(f"{text}: there is no {path}")
    elif anchor and anchor not in anchors(path):
        print(f"{text}: {path} has no heading for #{anchor}")

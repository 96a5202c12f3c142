"""tests/dashboard.py URL START END: runs each query of examples/fleet/dashboard.json on the Prometheus
at the URL, between two Unix times, as Grafana does. Prints how many series each has. Each must
have one, each variable must have values, and the panels must fit on one screen and not overlap. The
status is 1 if not. Needs promtool."""
import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request

SCREEN = 24, 24  # columns and rows of Grafana's grid on a screen of 1920 x 1080
VARIABLES = {"$__rate_interval": "10s", "$job": ".*", "$instance": ".*", "$device": ".*"}
url, start, end = sys.argv[1:]
dashboard = json.load(open("examples/fleet/dashboard.json"))
faults = 0


def say(fault, what):
    global faults
    faults += fault
    print("fault:" if fault else "", what)


def filled(query):
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def series_of(expr):
    """The series of a query, each as promtool writes its labels. A query that is wrong has none."""
    ran = subprocess.run(["promtool", "query", "range", f"--start={start}", f"--end={end}", "--step=1s", url, expr],
                         capture_output=True, text=True, timeout=30)
    print(ran.stderr, end="")
    return re.findall(r"^(\{.*\}|) =>$", ran.stdout, re.M)


def values_of(query):
    """The values of a variable: those of a label of the series that a selector finds."""
    selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
    address = f"{url}/api/v1/label/{label}/values?" + urllib.parse.urlencode({"match[]": filled(selector)})
    return json.load(urllib.request.urlopen(address, timeout=10))["data"]


for variable in dashboard["templating"]["list"]:
    if variable["type"] == "query":
        values = values_of(variable["query"])
        say(not values, f"variable {variable['name']}: {' '.join(values)}")

taken = set()
for panel in dashboard["panels"]:
    place = panel["gridPos"]
    cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
             for y in range(place["y"], place["y"] + place["h"])}
    if cells & taken or max(cells)[0] >= SCREEN[0] or max(y for _, y in cells) >= SCREEN[1]:
        say(1, f"{panel['title']}: does not fit")
    taken |= cells
    if panel["datasource"]["uid"] != "${datasource}" or not panel["fieldConfig"]["defaults"]["unit"]:
        say(1, f"{panel['title']}: no variable datasource, or no unit")
    for target in panel["targets"]:
        expr = filled(target["expr"])
        found = [] if "$" in expr else series_of(expr)
        say(not found, f"{panel['title']}: {len(found)} series: {expr}")
print(f"{faults} faults" if faults else "Each query has series.")
sys.exit(faults > 0)

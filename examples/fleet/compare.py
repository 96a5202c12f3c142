"""compare.py URL DIRECTORY NAME...: asks the Prometheus at the URL for the numbers of processes, and
prints them beside those of the processes' own reports. NAME is that of DIRECTORY/textfiles/NAME.prom,
which the process exported with the label rank=NAME, and of its report DIRECTORY/NAME.json. The
status is 1 if a number differs."""
import json
import sys
import time
import urllib.parse
import urllib.request

url, directory, names = sys.argv[1], sys.argv[2], sys.argv[3:]


def ask(query, *labels):
    """The samples of a query: the values of these labels, and the number."""
    answer = urllib.request.urlopen(
        url + "/api/v1/query?" + urllib.parse.urlencode({"query": query}), timeout=10)
    result = json.load(answer)["data"]["result"]
    return {tuple(s["metric"][l] for l in labels): float(s["value"][1]) for s in result}


def written(name):
    for line in open(f"{directory}/textfiles/{name}.prom"):
        if line.startswith("memlord_written_timestamp_seconds{"):
            return float(line.split()[-1])


# The samples of one scrape come together: those with the last file's time are the last.
last = {(name,): written(name) for name in names}
for _ in range(100):
    if ask("memlord_written_timestamp_seconds", "rank") == last:
        break
    time.sleep(0.1)
else:
    sys.exit("Prometheus has not read the last files")

totals, peaks, runs, rates = {}, {}, {}, {}
for name in names:
    report = json.load(open(f"{directory}/{name}.json"))
    assert report["metadata"]["labels"] == f"rank={name}", report["metadata"]
    for line in report["devices"]:
        device, stats = line["device"], line["stats"]
        totals[device,] = totals.get((device,), 0) + stats["allocated"]
        peaks[device, name] = stats["peak"]
        runs[device, name] = stats["gc_runs"]
        rates[device, name] = stats["gc_runs"] / (report["metadata"]["uptime_ns"] / 1e9)

differ = 0
print(f"{'':34} {'Prometheus':>14} {'the reports':>14}")


def compare(title, query, labels, reported, tolerance=0.0, digits=0):
    global differ
    found = ask(query, *labels)
    print(f"{title}: {query}")
    for key in sorted(found.keys() | reported.keys()):
        a, b = found.get(key, -1), reported.get(key, -1)
        same = abs(a - b) <= tolerance * b
        differ += not same
        print(f"{'  ' + ' rank '.join(key):34} {a:14.{digits}f} {b:14.{digits}f}"
              f"{'' if same else '  differs'}")


compare("live bytes of a device", "sum by (device) (memlord_live_bytes)", ["device"], totals)
compare("peak of a device and rank", "memlord_peak_bytes", ["device", "rank"], peaks)
compare("collections", "memlord_gc_runs_total", ["device", "rank"], runs)
# A report is written a moment after the last file, and tells its age then.
compare("collections a second", "memlord_gc_runs_total / ignoring (device) group_left () "
        "memlord_uptime_seconds", ["device", "rank"], rates, tolerance=0.2, digits=1)
rate = "sum by (device) (rate(memlord_gc_runs_total[10s]))"
print(f"and as a dashboard shows them: {rate}")
for key, value in sorted(ask(rate, "device").items()):
    print(f"  {key[0]:32} {value:14.1f}")
print(f"{differ} of them differ" if differ else "All numbers are those of the reports.")
sys.exit(differ > 0)

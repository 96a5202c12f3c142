"""watch.py URL PID: shows the workers of demo.sh once a second, by the Prometheus at the URL:
the live bytes of each, and the alerts that fire. When the alert on growth fires, kills the worker
PID, so that its file goes stale. Ends when that alert fires. The status is 1 if
an alert has not come within 25 seconds."""
import json
import os
import signal
import sys
import time
import urllib.parse
import urllib.request

url, leaking = sys.argv[1], int(sys.argv[2])
WAIT, COLUMNS, MIB_A_COLUMN = 25, 24, 1
RED, BOLD, PLAIN = ("\033[31;1m", "\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


def ask(query):
    answer = urllib.request.urlopen(url + "/api/v1/query?" + urllib.parse.urlencode({"query": query}), timeout=10)
    return [(s["metric"], float(s["value"][1])) for s in json.load(answer)["data"]["result"]]


def summary_of(name):
    """What an alert that fires says, or None."""
    alerts = json.load(urllib.request.urlopen(url + "/api/v1/alerts", timeout=10))["data"]["alerts"]
    return next((a["annotations"]["summary"] + f" (rank {a['labels']['rank']})" for a in alerts
                 if a["state"] == "firing" and a["labels"]["alertname"] == name), None)


def show(seconds):
    live = {m["rank"]: value / 2**20 for m, value in ask("memlord_live_bytes")}
    print(f"{seconds:4.0f} s  " + "   ".join(
        f"rank {rank} {mib:5.1f} MiB" for rank, mib in sorted(live.items()) if rank != "leak") +
        f"   leak {live.get('leak', 0):5.1f} MiB " +
        "#" * min(COLUMNS, round(live.get("leak", 0) / MIB_A_COLUMN)), flush=True)


def watch_for(name):
    """Shows the workers until an alert fires."""
    began = time.monotonic()
    while time.monotonic() - began < WAIT:
        show(time.monotonic() - start)
        text = summary_of(name)
        if text:
            print(f"        {RED}ALERT {name}: {text}{PLAIN}")
            return
        time.sleep(1)
    sys.exit(f"{name} has not fired within {WAIT} s")


def sum_of(metric):
    return sum(value for _, value in ask(f"sum({metric})")) / 2**20


start = time.monotonic()
watch_for("MemlordGrowthWithoutEnd")
os.kill(leaking, signal.SIGKILL)
print(f"{BOLD}-- its process is killed; its file stays{PLAIN}", flush=True)
watch_for("MemlordExportStale")
print(f"        sum(memlord_live_bytes) {sum_of('memlord_live_bytes'):.1f} MiB, with the dead process; "
      f"sum(memlord:live_bytes) {sum_of('memlord:live_bytes'):.1f} MiB, without it")

"""cases.py DIFF DIRECTORY: runs DIFF (src/tools/diff.c) on each case of cases.json, in DIRECTORY.
Prints what differs from the case; the status is 1 if anything does."""

import json
import os
import subprocess
import sys

KINDS = ("device", "tag", "scope", "site", "stack", "leak")


def found(diff, directory, common, case):
    """Returns the rows and the messages of DIFF."""
    for side in ("base", "now"):
        with open(os.path.join(directory, side + ".json"), "w") as f:
            json.dump({**common, **case[side]}, f)
    def ended(*options):
        return subprocess.run([os.path.abspath(diff), *options, "base.json", "now.json"], cwd=directory,
                              capture_output=True, timeout=20)
    run, table = ended("--json"), ended()
    rows = [json.loads(line) for line in run.stdout.decode().splitlines()]
    rows = [[r["kind"], None if r["kind"] == "stack" else r["name"], r["state"], r["live"], r["peak"], r["allocated"]]
            for r in rows if r["kind"] != "total"]
    said = [line.split("diff: ", 1)[1] for line in run.stderr.decode().splitlines()]
    return {"status": run.returncode, "rows": rows, "said": sorted(said), "answer": table.stdout.decode().split("\n")[2],
            "from": [line.split(".json: ", 1)[1] for line in table.stdout.decode().split("\n")[:2]]}


def main(diff, directory):
    with open(os.path.join(os.path.dirname(__file__), "cases.json")) as f:
        all_cases = json.load(f)
    failed = 0
    os.makedirs(directory, exist_ok=True)
    for case in all_cases["cases"]:
        rows = [row for kind in KINDS for row in case["rows"] if row[0] == kind]
        wanted = {"status": 0, "rows": rows, "said": sorted(case["said"]), "answer": case["answer"]}
        wanted.update({"from": case["from"]} if "from" in case else {})
        got = found(diff, directory, all_cases["common"], case)
        for key in wanted:
            if got[key] != wanted[key]:
                failed = 1
                print("%s: %s\n  wanted %s\n  found  %s" % (case["name"], key, wanted[key], got[key]))
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""check.py NAMED PROGRAM: the functions of the profile at each return address in the program are
those that addr2line -fi names at the address of the call. What is not so is printed, and then how
many addresses there were."""
import json
import os
import subprocess
import sys


def function(name, file, line):
    """A function, and the file and line in it; a file is known where its line is."""
    return name, os.path.basename(file) if line else "", line


def functions(place):
    found = place.get("inlined") or [place["site"]]
    return [function(f["function"], f["file"], f["line"]) for f in found]


def places(path):
    """The functions at each return address, by module and offset."""
    stacks = json.load(open(path, encoding="utf-8"))["stacks"]
    return {(stacks["modules"][f["module"]]["module"], f["offset"]): functions(f)
            for f in stacks["frames"] if f["module"] is not None}


def addr2line(module, offsets):
    """What addr2line says of each offset; a line of 0 is not known."""
    said = subprocess.run(["addr2line", "-afiC", "-e", module], capture_output=True, text=True,
                          input="\n".join("0x%x" % o for o in offsets)).stdout.splitlines()
    found, name = {}, None
    for line in said:
        if line.startswith("0x") and name is None:
            at = found.setdefault(int(line, 16), [])
        elif name is None:
            name = line
        else:
            file, _, number = line.split(" (")[0].rpartition(":")
            at.append(function(name, file, int(number) if number.isdigit() else 0))
            name = None
    return found


def main(path, program):
    known = {offset: functions for (module, offset), functions in places(path).items()
             if module == program}
    for offset, wanted in addr2line(program, known).items():
        if known[offset] != wanted:
            print("0x%x: %s, and not %s" % (offset, known[offset], wanted))
    print(len(known), "compared")


if __name__ == "__main__":
    main(*sys.argv[1:])

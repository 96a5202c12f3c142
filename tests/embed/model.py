"""A random model and a tokenizer for examples/embed/run.c, and what that asks for to run them.

    model.py write DIRECTORY             writes model.bin and tokenizer.bin
    model.py check REPORT PROMPT [EXE]   a report must have exactly that; with the name of an
                                         executable: at its sites with a name in run.c
"""
import json, os, random, struct, subprocess, sys

dim, hidden, layers, heads, kv_heads, vocab, seq = shape = 48, 112, 3, 6, 2, 80, 24
kv = dim // heads * kv_heads
words = ["<s>", *"abcdefghijklmnopqrstuvwxyz ", *["token%d" % i for i in range(vocab - 28)]]
longest = max(map(len, words))
floats = vocab * dim + layers * (2 * dim + 2 * dim * dim + 2 * dim * kv + 3 * dim * hidden) + dim
model = 4 * (len(shape) + floats)

def write(out):
    random.seed(1)
    with open(out + "/model.bin", "wb") as f:
        f.write(struct.pack("7i", *shape))
        f.write(struct.pack("%df" % floats, *(random.gauss(0, .2) for i in range(floats))))
    with open(out + "/tokenizer.bin", "wb") as f:
        f.write(struct.pack("i", longest))
        for word in words:
            f.write(struct.pack("i", len(word)) + word.encode())

def blocks(prompt):
    """The sizes that run.c asks for, in C of 64 bits."""
    state = [4 * n for n in (dim, dim, dim, hidden, hidden, dim, heads * seq, vocab,
                             layers * seq * kv, layers * seq * kv)]
    tokenizer = [8 * vocab, 16 * vocab, longest + 1, *(len(word) + 1 for word in words)]
    return state + tokenizer + [4 * (len(prompt) + 1)]

def check(report, prompt, names=None):
    r = json.load(open(report))
    sizes = blocks(prompt)
    assert r["total"]["unknown_frees"] + r["total"]["implicit_frees"] == 0, r["total"]
    stats = {d["device"]: d["stats"] for d in r["devices"]}
    mapped = stats["mapped"]
    assert (mapped["allocs"], mapped["frees"], mapped["total_allocated"], mapped["allocated"]) == \
        (1, 1, model, 0), mapped
    ours = [s for s in r["sites"] if s["device"] == "cpu" and
            (not names or s["site"]["function"] in names)]
    sums = {key: sum(s[key] for s in ours) for key in ("allocs", "alloc_bytes", "live_bytes")}
    assert sums == {"allocs": len(sizes), "alloc_bytes": sum(sizes), "live_bytes": 0}, \
        (sums, len(sizes), sum(sizes))
    if not names: # then nothing else is counted
        cpu = stats["cpu"]
        assert (cpu["allocs"], cpu["frees"], cpu["total_allocated"], cpu["allocated"]) == \
            (len(sizes), len(sizes), sum(sizes), 0), cpu
        # all but the tokens' buffer is there at once
        assert sum(sizes) - longest - 1 <= cpu["peak"] <= sum(sizes), cpu
        assert all(s["site"]["file"].endswith("run.c") and s["site"]["line"] for s in ours), ours

def functions(exe):
    """The functions of run.c in an executable."""
    symbols = subprocess.run(["nm", exe], capture_output=True, text=True, check=True).stdout
    return {line.split()[2] for line in symbols.splitlines() if len(line.split()) == 3}

if sys.argv[1] == "write":
    write(sys.argv[2])
else:
    check(sys.argv[2], sys.argv[3], functions(sys.argv[4]) if sys.argv[4:] else None)

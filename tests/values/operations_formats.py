"""Scripts for what the formats for other tools have of their own: reports without stacks and without
events, and a device that runs full."""

from operations import (CPU, FLAGS, GPU, GPU1, KIB, KV, LOAD, MIB, ODD, PINNED, SITES, STEP, VULKAN,
                        WORK, begin, load_weights, moves, steps)
from script import Word


def sites():
    """No stacks and no events: sites stand for stacks, scopes for callers, and TRACE has the
    invocations. A reset leaves blocks that no later call has made."""
    s = begin(depth=0, events=0, labels="rank=3, __x=1,9=2,tag=t,rank=4,name=a\\\"b\n,bad")
    load_weights(s)
    s.reset()
    steps(s)
    moves(s)
    s.scope_begin("left open")
    s.tag_begin("=1+1;\"quoted\"")
    s.alloc(CPU, 0x7000, 123, ODD)
    s.describe(CPU, 0x7000, "@name", "'f16", None, 7, 3, 4)
    s.part_add(CPU, 0x7000, 0, 23, "a;b", None, "-tag", 0)
    s.part_add(CPU, 0x7000, 23, 100, None, None, None, 0, 25)
    s.tag_end()
    for i in range(40):
        s.tag_begin("many%d" % i)
        s.alloc(GPU1, 0x800000 + i, 1000 + 7 * i, WORK)
        s.tag_end()
    s.alloc(CPU, 0x7800, 0, LOAD)
    return s


SCRIPTS = (("sites", sites),)

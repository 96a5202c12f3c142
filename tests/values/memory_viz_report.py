"""MEMORY_VIZ: reads a pickle of plain data. A pickle that names a class, or has an opcode that the
writer does not write, raises ValueError."""
import io
import pickle
import pickletools

OPCODES = set("PROTO MARK STOP BININT BININT1 LONG1 BINUNICODE EMPTY_DICT EMPTY_LIST APPEND APPENDS "
              "SETITEM SETITEMS TUPLE2 BINGET LONG_BINGET BINPUT LONG_BINPUT NEWFALSE".split())


class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise ValueError(f"a pickle that names {module}.{name}")

    def persistent_load(self, pid):
        raise ValueError(f"a pickle that names {pid}")


def check_opcodes(data):
    """Numbers are in the shortest of the forms that the viewer reads."""
    for op, argument, at in pickletools.genops(data):
        if op.name not in OPCODES:
            raise ValueError(f"{op.name} at {at}")
        if op.name == "PROTO" and argument != 2:
            raise ValueError(f"protocol {argument}")
        if op.name == "BININT" and not 256 <= argument <= 0x7fffffff:
            raise ValueError(f"{argument} in four bytes")
        if op.name == "LONG1" and argument <= 0x7fffffff:
            raise ValueError(f"{argument} in a long number")
        if op.name == "STOP" and at + 1 != len(data):
            raise ValueError("more follows the snapshot")


def read(data):
    check_opcodes(data)
    return Plain(io.BytesIO(data)).load()

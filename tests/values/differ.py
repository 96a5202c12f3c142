"""Compares a value that a format has with the one that the model wants, down to what differs."""

MOST = 12  # differences that are told


def walk(wanted, found, at):
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in [*wanted, *(k for k in found if k not in wanted)]:
            here = f"{at}.{key}" if at else str(key)
            if key not in found:
                yield f"{here}: missing, wanted {wanted[key]!r}"
            elif key not in wanted:
                yield f"{here}: unknown, found {found[key]!r}"
            else:
                yield from walk(wanted[key], found[key], here)
    elif isinstance(wanted, (list, tuple)) and isinstance(found, (list, tuple)):
        if len(wanted) != len(found):
            yield f"{at}: {len(found)} entries, wanted {len(wanted)}"
        for i, (a, b) in enumerate(zip(wanted, found)):
            yield from walk(a, b, f"{at}[{i}]")
    elif type(wanted) is not type(found) or wanted != found:
        yield f"{at}: {found!r}, wanted {wanted!r}"


def differences(wanted, found, at=""):
    """Returns what differs, a line each; nothing: they are equal."""
    return list(walk(wanted, found, at))

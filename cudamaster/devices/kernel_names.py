"""Kernels by the names that tools print: the plain name in a mangled one, and the machine code that a GPU runs.

A candidate's kernels may have any name. The harness's kernels in the same process are recognised by their names, which
no candidate can have (guards).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cudamaster.guards.names import HARNESS_KERNELS

_NAME = re.compile(r"L?(\d+)")
_ARCHITECTURE = re.compile(r"sm_(\d+)(\d)([af]?)")


def plain_name(symbol: str) -> str:
    """Name of a kernel without namespaces, template arguments and parameters; the symbol where it is not mangled.

    It reads only the part of the mangling (Itanium C++ ABI) that kernels have: a function, perhaps in namespaces.
    """
    if not symbol.startswith("_Z"):
        return symbol
    nested = symbol.startswith("_ZN")
    at, name = 3 if nested else 2, ""
    while length := _NAME.match(symbol, at):
        at = length.end() + int(length[1])
        name = symbol[length.end() : at]
        if not nested:
            break  # the types of the parameters follow, which have names too
    return name or symbol


def printed_name(printed: str) -> str:
    """The plain name of a kernel that tools print as C++: `void ours::k<(int)4>(float *)`."""
    head, depth = "", 0
    for character in printed.replace("<unnamed>::", "").replace("(anonymous namespace)::", ""):
        if character == "(" and depth == 0:
            break
        depth += (character in "<(") - (character in ">)")
        head += character if depth == 0 and character != ">" else " "
    return (head.replace("::", " ").split() or [printed])[-1]


def is_of_harness(symbol: str) -> bool:
    """Whether a mangled name is that of a kernel of the harness itself."""
    return symbol.startswith(HARNESS_KERNELS)


def architecture_for(compute_capability: tuple[int, int], built: Iterable[str]) -> str | None:
    """The architecture, of those with machine code (such as "sm_90a"), that a GPU runs; None if it runs none.

    That is the newest of the GPU's generation that is not newer than the GPU. Code whose number ends in "a" runs only
    on that very architecture. Code that the driver compiles from PTX at load time does not count.
    """
    major, minor = compute_capability
    fitting = []
    for name in built:
        found = _ARCHITECTURE.fullmatch(name)
        if found is None or int(found[1]) != major:
            continue
        exact = int(found[2]) == minor
        if exact or (found[3] != "a" and int(found[2]) < minor):
            fitting.append((int(found[2]), found[3] == "a", name))
    return max(fitting)[2] if fitting else None

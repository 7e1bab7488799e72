"""Digests by which two builds of a kernel are told apart, here and on another machine.

nvcc writes the names of temporary files into what it builds, so no two of its objects have the same bytes. Where
cuobjdump is installed, the instructions that a GPU gets are compared in their place.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from cudamaster.devices import cuobjdump

OBJECT, INSTRUCTIONS = "object sha256", "instructions sha256"  # in the record of a build
_FATBIN = b".nv_fatbin"
# Of what cuobjdump prints: the target, a function's name, an instruction with its encoding. The rest names files.
_TELLING = re.compile(r"\s*(?:code for sm_|Function : |/\*[0-9a-f]{4,}\*/|/\* 0x[0-9a-f]{16} \*/)")
# Of the name of what is in an anonymous namespace or static: another one in each build.
_OF_BUILD = re.compile(r"(?<=_)[0-9a-f]{8}(?=_\d+_\w+_cu)")


def of_object(built: Path) -> Mapping[str, str]:
    """SHA-256 of an object file."""
    return {OBJECT: hashlib.sha256(built.read_bytes()).hexdigest()}


def of_instructions(built: Path) -> Mapping[str, str]:
    """SHA-256 of a GPU's instructions in an object file; none without any, or where cuobjdump cannot list them.

    That takes cuobjdump a good part of a second.
    """
    try:
        listed = instructions_in(cuobjdump.listing(built)) if _FATBIN in built.read_bytes() else ""
    except (OSError, cuobjdump.NotListed):
        return {}
    return {INSTRUCTIONS: hashlib.sha256(listed.encode()).hexdigest()} if listed else {}


def instructions_in(listing: str) -> str:
    """What of a listing by cuobjdump is the same wherever the same instructions were built, function by function."""
    lines = [_OF_BUILD.sub("", line.strip()) for line in listing.splitlines() if _TELLING.match(line)]
    head, *functions = "\n".join(lines).split("Function : ")
    return "Function : ".join([head, *sorted(functions)])

"""Libraries of headers that a task opens to its candidates: where they are, and which of them a candidate includes.

CUTLASS and its CuTe are in one folder: $CUTLASS_PATH/include, or that of the package nvidia-cutlass.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Sequence
from pathlib import Path

from cudamaster.core import resources
from cudamaster.core.errors import DeviceError
from cudamaster.guards.headers import library_of
from cudamaster.guards.symbols import OPENED_SYMBOLS

VARIABLE = "CUTLASS_PATH"
_PACKAGE = "cutlass_library"  # of nvidia-cutlass
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.MULTILINE)
_VERSION = Path("cutlass/version.h")


def included(code: str, libraries: Sequence[str]) -> list[str]:
    """The headers of these libraries that a candidate includes, as they are written."""
    return [name for name in _INCLUDE.findall(code) if library_of(name) in libraries] if libraries else []


def folders(code: str, libraries: Sequence[str]) -> tuple[Path, ...]:
    """The folders in which the compiler finds the headers of these libraries that a candidate includes.

    Raises DeviceError if there are such and the library is not on this machine.
    """
    names = included(code, libraries)
    if not names:
        return ()
    if (found := _cutlass()) is None:
        raise DeviceError(
            f"A candidate includes <{names[0]}>, and CUTLASS's headers are not on this machine.",
            f"Set {VARIABLE} to a checkout of CUTLASS, or install the package nvidia-cutlass beside this program.",
        )
    return (found,)


def flags(code: str, libraries: Sequence[str]) -> list[str]:
    """What the compiler needs to read a candidate that includes such headers; nothing if it includes none.

    Raises DeviceError as `folders`.
    """
    found = [f"-I{folder}" for folder in folders(code, libraries)]
    return [*found, "-include", str(resources.bench() / "include" / "mskb" / "no_iostream.h")] if found else []


def symbols(code: str, libraries: Sequence[str]) -> frozenset[str]:
    """Undefined symbols that an object may have since it includes such headers, as regular expressions."""
    return OPENED_SYMBOLS if included(code, libraries) else frozenset()


def versions(code: str, libraries: Sequence[str]) -> tuple[str, ...]:
    """What tells the libraries that a candidate includes from other versions of them; nothing if it includes none."""
    if not included(code, libraries) or (found := _cutlass()) is None:
        return ()
    return (str(found), (found / _VERSION).read_text(encoding="utf-8"))


def _cutlass() -> Path | None:
    if named := os.environ.get(VARIABLE):
        places = [Path(named) / "include", Path(named)]
    else:
        package = importlib.util.find_spec(_PACKAGE)
        roots = (package.submodule_search_locations or ()) if package is not None else ()
        places = [Path(root) / "source" / "include" for root in roots]
    return next((place.absolute() for place in places if (place / _VERSION).is_file()), None)

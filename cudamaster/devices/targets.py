"""Which of the targets that a compile command names a GPU runs.

nvcc builds them all, one after the other on few cores, but a driver takes one: machine code of the GPU's own major
capability, the nearest that is not above the GPU's, else PTX to translate. The rest is time without any use where the
GPU is known. Targets are left out only if it is certain that the driver would not take them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_GENCODE = re.compile(r"-gencode=arch=(\w+),code=\[?([\w,]+?)\]?")
_CODE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")  # the last digit is the minor capability


def for_gpu(arguments: Sequence[str], compute_capability: str) -> tuple[str, ...]:
    """`Flags.arguments` without the targets that a GPU, such as one of "9.0", does not run.

    They stay as they are if it can run none of them: what then fails, fails as it would with nvcc alone.
    """
    named = {code for flag in arguments if flag.startswith("-gencode=") for code in _codes(flag)}
    taken = _taken(named, compute_capability)
    if not taken:
        return tuple(arguments)
    return tuple(short for flag in arguments if (short := _shortened(flag, taken)) is not None)


def _codes(gencode: str) -> list[str]:
    found = _GENCODE.fullmatch(gencode)
    return found[2].split(",") if found else []


def _shortened(flag: str, taken: set[str]) -> str | None:
    """The flag with only those of its targets that are taken; None if there are none."""
    if not (found := _GENCODE.fullmatch(flag)):
        return flag
    kept = [code for code in found[2].split(",") if code in taken]
    if not kept:
        return None
    codes = kept[0] if len(kept) == 1 else f"[{','.join(kept)}]"
    return f"-gencode=arch={found[1]},code={codes}"


def _taken(named: set[str], compute_capability: str) -> set[str]:
    """The targets from which the driver takes one: several if it is not known which it takes.

    NVIDIA does not say which it takes of several for the same capability (sm_90 and sm_90a), or whether it prefers PTX
    for a capability nearer to the GPU's than that of any machine code.
    """
    runnable = [each for each in map(_CODE.fullmatch, named) if each is not None and _runs(each, compute_capability)]
    machine = max((_number(each) for each in runnable if each[1] == "sm"), default=0)
    nearer = [each for each in runnable if each[1] == "compute" and _number(each) > machine]
    ptx = max(map(_number, nearer), default=0)
    return {
        *(each[0] for each in runnable if each[1] == "sm" and _number(each) == machine),
        *(each[0] for each in nearer if _number(each) == ptx),
    }


def _runs(code: re.Match[str], compute_capability: str) -> bool:
    """Whether a GPU runs code for a target.

    Code for one GPU alone (sm_90a) runs on no other. Machine code, and code for a family (sm_100f), runs on later GPUs
    of the same major capability; PTX on all later ones.
    """
    major, minor = map(int, compute_capability.split("."))
    own = int(code[2]), int(code[3])
    if code[4] == "a":
        return own == (major, minor)
    if code[1] == "sm" or code[4] == "f":
        return own[0] == major and own[1] <= minor
    return own <= (major, minor)


def _number(code: re.Match[str]) -> int:
    return int(code[2] + code[3])

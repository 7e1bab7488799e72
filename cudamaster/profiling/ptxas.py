"""What ptxas says about each kernel in a compile log (`-Xptxas=-v`): registers, spills, stack, shared memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")


@dataclass(frozen=True)
class Usage:
    """Resources of one kernel on one architecture, as ptxas names them.

    Registers are per thread, shared memory is the static one of a block, stack and spills are bytes of local memory
    per thread; spills count the bytes that the code stores or loads, each instruction once. None: the log lacks it.
    """

    symbol: str
    architecture: str
    registers: int | None = None
    shared_bytes: int | None = None
    stack_bytes: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None


def parse(log: str) -> tuple[Usage, ...]:
    """The kernels of a compile log, in its order; everything else in the log is passed over."""
    kernels: list[Usage] = []
    about = ""  # the function that the next frame is of: device functions have frames too
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            kernels.append(Usage(symbol=entry[1], architecture=entry[2]))
        elif function := _FUNCTION.search(line):
            about = function[1]
        elif not kernels:
            continue
        elif (frame := _FRAME.search(line)) and about == kernels[-1].symbol:
            stack, stores, loads = map(int, frame.groups())
            kernels[-1] = replace(kernels[-1], stack_bytes=stack, spill_store_bytes=stores, spill_load_bytes=loads)
        elif used := _USED.search(line):
            shared = _SHARED.search(used[2])  # not printed where there is none
            kernels[-1] = replace(kernels[-1], registers=int(used[1]), shared_bytes=int(shared[1]) if shared else 0)
    return tuple(kernels)

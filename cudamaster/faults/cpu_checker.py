"""Turns what the CPU device's checker (devices/cpu/runtime/check) prints into findings at lines of the kernel region.

The checker prints one line of JSON for each fault, with an offset in the program instead of a line number. addr2line,
which comes with g++'s linker, finds the line; without it, a finding has none. Each finding is named after the
compute-sanitizer tool that would report it on a GPU.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cudamaster.core import keys
from cudamaster.faults.compute_sanitizer import Finding, SanitizerReport, Tool

MARK = "cuda device finding: "
# The one line that sums up, where the process did not end in another way.
_FOUND = re.compile(r"^cuda device fault: kernel .*: \d+ faults? found$", re.MULTILINE)
# By the name that the rewritten text says it has, or by that of the file that it is in; lines are those of the former.
_CANDIDATES = ("candidate.cu", "candidate.cpp")
_TOOLS = {
    "race": Tool.RACECHECK,
    "early": Tool.RACECHECK,
    "unfenced": Tool.RACECHECK,
    "unwritten": Tool.INITCHECK,
    "outside": Tool.MEMCHECK,
    "misaligned": Tool.MEMCHECK,
    "ended": Tool.RACECHECK,
    "unstarted": Tool.RACECHECK,
}
# What the checker can speak for. Of synccheck's it looks for nothing: a barrier that hangs ends the run, others pass.
TOOLS = tuple(tool for tool in Tool if tool in _TOOLS.values())
_LANES = 32
_Three = Annotated[tuple[int, ...], Field(min_length=3, max_length=3)]
# Static variables of functions: _ZZ <function> E <length> <name> _cm_key, as the rewriting names the key of each.
_KEY = re.compile(r"E\d+([A-Za-z_]\w*?)_cm_key(?:_\d+)?$")
_VARIABLE = re.compile(r"^(?:_ZL?\d+)?([A-Za-z]\w*)$")


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class _Memory(_Form):
    """`pointer` is which of the launch's pointers leads there, -1 for none; `symbol` a place in the program, or 0."""

    space: Literal["global", "variable", "static shared", "dynamic shared"]
    bytes: int
    offset: int
    pointer: int
    symbol: int


class _Party(_Form):
    """`late`: by a copy or a product that lasts until somebody waits for it."""

    late: bool = False
    access: str
    bytes: int
    place: int
    block: _Three
    thread: _Three


class _Event(_Form):
    kind: Literal["race", "early", "unfenced", "unwritten", "outside", "misaligned", "ended", "unstarted"]
    kernel: str
    block_dim: _Three
    memory: _Memory | None
    here: _Party
    other: _Party | None = None
    type: str = ""
    alignment: int = 0


def reports(output: str, worker: Path, code: str, tools: Sequence[Tool] = TOOLS) -> tuple[SanitizerReport, ...]:
    """What is in the output of a run of `worker`, the checked build of `code`, for each of the tools.

    What ended the run otherwise, a deadlock for one, is no finding of these. Lines that are no findings are passed
    over: a kernel may print.
    """
    event = [each for line in output.splitlines() if line.startswith(MARK) and (each := _read(line[len(MARK) :]))]
    if not event:
        return tuple(SanitizerReport(tool) for tool in tools)
    frames = _frames(worker, {party.place for each in event for party in (each.here, each.other) if party})
    names = _names(worker, {each.memory.symbol for each in event if each.memory and each.memory.symbol})
    found: dict[tuple[object, ...], tuple[Tool, Finding]] = {}
    # Of a pair of lines what two warps or blocks do comes before what two lanes do: a wider barrier is missing.
    for each in sorted(event, key=_is_of_lanes):
        finding = _finding(each, frames, names, code)
        what = "race" if each.kind == "race" else finding.what
        key = (what, finding.kernel, *sorted((finding.line or 0, finding.other_line or 0)))
        tool, known = found.get(key, (_TOOLS[each.kind], None))
        found[key] = (tool, finding if known is None else replace(known, count=known.count + 1))
    return tuple(
        SanitizerReport(tool, tuple(finding for of, finding in found.values() if of is tool)) for tool in tools
    )


def without_findings(output: str) -> str:
    """The output of a run without the checker's own lines."""
    rest = "\n".join(line for line in output.splitlines() if not line.startswith(MARK))
    return _FOUND.sub("", rest).strip()


def _read(text: str) -> _Event | None:
    try:
        return _Event.model_validate_json(text)
    except ValidationError:
        return None


def _finding(
    event: _Event, frames: Mapping[int, Sequence[tuple[str, int | None]]], names: Mapping[int, str], code: str
) -> Finding:
    """One event in words: what was done to which memory, where, by which thread, and after what else.

    Events of one access come first. Those of two (`other` is the earlier) name both lines. `frames` says which
    function and line a place in the program is, `names` what variable an address is.
    """
    kernel = re.match(r"[\w:]+", event.kernel)
    name = (kernel[0] if kernel else event.kernel).rpartition("::")[2]
    own = frames.get(event.here.place, ())
    if name == "kernel" and own:  # launched through its address: the launch does not know its name
        name = own[-1][0]
    line, here = _line(own), event.here
    where = _memory(event, name, names, code)
    if event.other is None:
        what, detail = {
            "unwritten": (f"{here.access} of {_of(where)} that nothing has written", _offset(event)),
            "outside": (f"{here.access} of {here.bytes} bytes outside of {_of(where)}", _offset(event)),
            "ended": (
                f"{here.access} of {_of(where)} of another block of the cluster, which may have ended: "
                "a barrier of the cluster is missing behind it",
                _offset(event),
            ),
            "unstarted": (
                f"{here.access} of {_of(where)} of another block of the cluster, which may not have begun: "
                "a barrier of the cluster is missing before it",
                _offset(event),
            ),
            "misaligned": (
                f"Misaligned access of {_of(where)}: {event.type} needs a multiple of {event.alignment} bytes",
                _offset(event),
            ),
        }[event.kind]
        return Finding(what[0].upper() + what[1:], name, line, _thread(here), detail)
    other = event.other
    other_line = _line(frames.get(other.place, ()))
    lanes = _is_of_lanes(event)
    place = "" if other_line is None else f" in line {other_line}"
    if event.kind == "early":
        flight = f"copy{place} to it" if other.access != "read" else f"read of it{place}"
        what = f"{here.access} of {_of(where)} before the asynchronous {flight} has been waited for"
        copier = f"copied by {_thread(other, block=False)}, {_offset(event)}"
        return Finding(what[0].upper() + what[1:], name, line, _thread(here), copier, other_line=other_line)
    if event.kind == "unfenced":
        what = f"asynchronous {here.access} of {_of(where)} without fence.proxy.async since the write{place}"
        writer = f"written by {_thread(other, block=False)}, {_offset(event)}"
        return Finding(what[0].upper() + what[1:], name, line, _thread(here), writer, other_line=other_line)
    between = "Race in a warp without __syncwarp between" if lanes else "Race without a barrier between"
    if here.block != other.block:
        between = "Race of two blocks, which nothing orders"
    earlier = f"asynchronous {other.access}{place}, which lasts until its wait" if other.late else other.access + place
    example = (
        f"{_thread(here, block=False)} and {_thread(other, block=False)} in block {_tuple(here.block)}"
        if here.block == other.block
        else f"{_thread(here)} and {_thread(other)}"
    )
    return Finding(
        f"{between}: {here.access} here, {earlier}",
        name,
        line,
        example,
        f"{where}, {_offset(event)}",
        other_line=other_line,
    )


def _of(where: str) -> str:
    return where or "any allocation"


def _tuple(numbers: Sequence[int]) -> str:
    return f"({','.join(map(str, numbers))})"


def _thread(party: _Party, *, block: bool = True) -> str:
    return f"thread {_tuple(party.thread)}" + (f" in block {_tuple(party.block)}" if block else "")


def _warp(event: _Event, party: _Party) -> int:
    (x, y, z), (width, height, _) = party.thread, event.block_dim
    return (x + width * (y + height * z)) // _LANES


def _is_of_lanes(event: _Event) -> bool:
    here, other = event.here, event.other
    return other is not None and here.block == other.block and _warp(event, here) == _warp(event, other)


def _offset(event: _Event) -> str:
    if event.memory is None or event.memory.space == "variable":
        return ""
    offset = event.memory.offset
    if offset < 0:
        return f"{-offset} bytes before its start"
    past = offset + event.here.bytes - event.memory.bytes
    return f"at byte {offset} of {event.memory.bytes}" + (f", {past} past its end" if past > 0 else "")


def _memory(event: _Event, kernel: str, names: Mapping[int, str], code: str) -> str:
    """The memory in words; empty where it is nobody's."""
    memory = event.memory
    if memory is None:
        return ""
    name = names.get(memory.symbol, "")
    if memory.space == "dynamic shared":
        return "dynamic shared memory"
    if memory.space == "static shared":
        found = _KEY.search(name)
        return f"the shared variable {found[1]}" if found else "a shared variable"
    if memory.space == "variable":
        found = _VARIABLE.match(name)
        return f"the device variable {found[1]}" if found else "a device variable"
    parameter = _pointer_parameter(code, kernel, memory.pointer) if memory.pointer >= 0 else None
    return f"the buffer of {parameter}" if parameter else "an allocation"


def _pointer_parameter(code: str, kernel: str, index: int) -> str | None:
    """Name of a kernel's parameter, the pointer with that number among its pointers."""
    found = re.search(rf"__global__[^;{{}}]*?\b{re.escape(kernel)}\s*\(([^{{;]*?)\)\s*[{{;]", code)
    pointers = [each for each in found[1].split(",") if "*" in each] if found else []
    name = re.search(r"(\w+)\s*$", pointers[index].partition("=")[0]) if index < len(pointers) else None
    return name[1] if name else None


def _line(frames: Sequence[tuple[str, int | None]]) -> int | None:
    return next((line for _, line in frames if line is not None), None)


def _frames(program: Path, places: Iterable[int]) -> dict[int, list[tuple[str, int | None]]]:
    """For offsets of return addresses the functions there, the innermost first, with lines of those of the region."""
    tool = shutil.which("addr2line")
    # The call is before the place that it returns to.
    addresses = {place - 1: place for place in places}
    if tool is None:
        return {}
    command = [tool, "-a", "-i", "-f", "-C", "-e", str(program), *(f"{address:#x}" for address in addresses)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=60, check=True, env=keys.for_tools()
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    frames: dict[int, list[tuple[str, int | None]]] = {}
    own: list[tuple[str, int | None]] = []
    lines = iter(done.stdout.splitlines())
    for line in lines:
        if line.startswith("0x"):
            own = frames.setdefault(addresses[int(line, 16)], [])
            continue
        file, _, number = next(lines, "").partition(":")
        digits = re.match(r"\d+", number)
        ours = Path(file).name in _CANDIDATES and digits is not None
        function = re.sub(r"[<(].*", "", line).split()
        own.append((function[-1].rpartition("::")[2] if function else "", int(digits[0]) if ours and digits else None))
    return frames


def _names(program: Path, places: Iterable[int]) -> dict[int, str]:
    """Symbols of the program that offsets lie in."""
    wanted = set(places)
    names: dict[int, str] = {}
    if not wanted:
        return {}
    try:
        with program.open("rb") as file:
            table = ELFFile(file).get_section_by_name(".symtab")
            for symbol in table.iter_symbols() if isinstance(table, SymbolTableSection) else ():
                start, size = symbol["st_value"], symbol["st_size"]
                if symbol["st_info"]["type"] == "STT_OBJECT":
                    names |= {place: symbol.name for place in wanted if start <= place < start + size}
    except (OSError, ELFError):
        return {}
    return names

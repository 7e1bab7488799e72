"""compute-sanitizer: the command line that puts a candidate's worker under one of its tools, and what its log says.

The tools look at all kernels but the harness's own, on a worker whose buffers are allocations of exactly their size.
What they say is mapped to lines of the region: candidates are compiled as candidate.cu, with line numbers.

Errors of calls of the CUDA runtime are no findings. They belong to no kernel, the worker makes such calls too, a
program may ask for something and go on when it is refused, and an error left behind is in the judge's report anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from cudamaster.devices import toolkit
from cudamaster.guards.names import HARNESS_KERNELS


class Tool(StrEnum):
    """A tool of compute-sanitizer."""

    MEMCHECK = "memcheck"
    RACECHECK = "racecheck"
    INITCHECK = "initcheck"
    SYNCCHECK = "synccheck"

    @property
    def finds(self) -> str:
        """What it finds, in a few words."""
        return _FINDS[self]


_FINDS = {
    Tool.MEMCHECK: "accesses out of bounds and misaligned ones",
    Tool.RACECHECK: "races of threads on shared memory",
    Tool.INITCHECK: "reads of global memory that nothing has written",
    Tool.SYNCCHECK: "barriers that not all threads reach, or reach with wrong masks",
}
# What a kernel has to pass to become the best one. The buffers of a call are filled before it, so initcheck looks at
# what the candidate allocates alone; what synccheck finds mostly shows as a kernel that hangs.
GATE = (Tool.MEMCHECK, Tool.RACECHECK)
NOT_INSTALLED = (
    f"compute-sanitizer is not installed; it comes with the CUDA toolkit, or with `{toolkit.EXTRA}`. Put it on the "
    "PATH, or set CUDAMASTER_COMPUTE_SANITIZER"
)
# In the package nvidia-cuda-sanitizer-api. Before 13.4 it had the program elsewhere, and lacked its launcher.
_PACKAGED = "compute-sanitizer/compute-sanitizer"

_PRINTED = 1000  # errors; enough for every line of a region, and little beside one per thread
# Allocations may lie end to end: an access that misses its own by less than this does not fall into the next.
_PADDING_BYTES = 64 << 10
_OPTIONS: dict[Tool, tuple[str, ...]] = {
    # What the candidate gives back is held to the harness's ledger, so leaks are not looked for.
    Tool.MEMCHECK: ("--leak-check", "no", "--report-api-errors", "no", "--padding", str(_PADDING_BYTES)),
    # One report per pair of lines, not one per byte.
    Tool.RACECHECK: ("--racecheck-report", "analysis", "--racecheck-detect-level", "warn"),
    Tool.INITCHECK: (),
    Tool.SYNCCHECK: (),
}
_CANDIDATE = "candidate.cu"
_SHOWN = 6  # findings, of at most three lines each
_SHOWN_COLUMNS = 110

_BANNER = "COMPUTE-SANITIZER"
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (?P<rest>.*)")
_COUNTS = re.compile(r"([\d,]+) (?:error|warning)s?\b")
_OF_THE_HOST = ("Program hit ", "Host API ")
_FRAME = re.compile(
    r"(?P<before>.*)(?:\bat|\bDevice Frame:)\s*(?P<function>\S.*?)\+0x[0-9a-f]+"
    r"(?: in (?P<file>[^:\[]+?)(?::(?P<line>\d+))?)?(?: \[(?P<hazards>[\d,]+) hazards?\])?"
)
_THREAD = re.compile(r"threads? (?:starting at )?\(\d+,\d+,\d+\)(?: in block \(\d+,\d+,\d+\))?", re.I)
_BLOCK = re.compile(r"in (block \(\d+,\d+,\d+\))")
_SEVERITY = re.compile(r"^(?:error|warning): *", re.I)
_RACE = re.compile(r"Race reported|Potential \w+ hazard detected")
_ACCESS = re.compile(r"\b(Read|Write|Atomic)\b", re.I)
_ADDRESS = re.compile(r" ?(?:to|at)? 0x[0-9a-f]+|^Address 0x[0-9a-f]+$")
_NO_DETAIL = ("Saved host backtrace", "Host Frame", "Current Value", "Sync mask", "Device Frame")


@dataclass(frozen=True)
class Finding:
    """What a tool found at one place.

    `line` is the region's; None where the tool does not know it. A race has two accesses, and `other_line` is that of
    the second. `example` names a thread, the first that was reported, or the two of a race. `count` is how often it was
    reported; for a race it is how many bytes or accesses were hit, as the tool counts hazards.
    """

    what: str
    kernel: str
    line: int | None
    example: str = ""
    detail: str = ""
    count: int = 1
    other_line: int | None = None


@dataclass(frozen=True)
class SanitizerReport:
    """What one tool said of one run.

    `findings` are held against the candidate. `warnings` are hazards between threads of one warp, which code from the
    time of warps in lockstep has on purpose: they are shown. `unprinted` errors were counted, but are in the log with
    their number alone. `failure` is why the tool cannot say that there is nothing, a clause.
    """

    tool: Tool
    findings: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    unprinted: int = 0
    failure: str | None = None

    @property
    def clean(self) -> bool:
        """The tool ran to its end and has nothing against the candidate."""
        return not self.findings and self.failure is None

    @property
    def summary(self) -> str:
        """One line: "clean", the first finding, or why nothing can be said."""
        if not self.findings:
            return "clean" if self.failure is None else f"not checked: {self.failure}"
        first, others = self.findings[0], len(self.findings) - 1
        return _place(first) + (f", and {others} more finding{'s' * (others > 1)}" if others else "")

    def explain(self, code: str) -> str:
        """For a Debug agent and a person: each finding with its lines of `code`, the text of the region."""
        source = code.splitlines()
        found = self.findings
        lines = [f"{self.tool.value}: {_number(len(found), 'finding') if found else self.summary}"]
        if found and self.unprinted:
            lines[0] += f"; {_number(self.unprinted, 'more error')} not printed"
        every = [*found, *(replace(warning, what=f"(warning) {warning.what}") for warning in self.warnings)]
        for each in every[:_SHOWN]:
            example = f", e.g. {each.example}" if each.example else ""
            detail = f": {each.detail}" if each.detail else ""
            lines.append(f"{each.count} x {_place(each)}{example}{detail}")
            places = dict.fromkeys((each.line, each.other_line))
            lines += [_quoted(source, line) for line in places if line is not None and 0 < line <= len(source)]
        if len(every) > _SHOWN:
            lines.append(f"and {len(every) - _SHOWN} more")
        return "\n".join(lines)


def find() -> Path | None:
    """compute-sanitizer of $CUDAMASTER_COMPUTE_SANITIZER, the PATH, a toolkit or its package, if any."""
    return toolkit.find("compute-sanitizer", "CUDAMASTER_COMPUTE_SANITIZER", [_PACKAGED])


def command(path: Path, tool: Tool, program: Sequence[str], log: Path) -> list[str]:
    """The command that runs `program`, a worker with its options, under `tool`, whose log goes to the file `log`."""
    return [
        str(path), "--tool", tool.value, "--log-file", str(log), "--print-limit", str(_PRINTED),
        "--kernel-name-exclude", f"kernel_substring={HARNESS_KERNELS}", "--show-backtrace", "device",
        "--target-processes", "application-only", "--launch-timeout", "60", "--check-exit-code", "no",
        *_OPTIONS[tool], *program,
    ]  # fmt: skip


def parse(text: str, tool: Tool) -> SanitizerReport:
    """What a tool wrote to its log, equal errors put together.

    A log that is empty or cut, and one in which the tool speaks of itself, is a failure, unless there are findings:
    what was found stands, whatever became of the tool.
    """
    findings: list[Finding] = []
    warnings: list[Finding] = []
    words: dict[str, None] = {}
    started = ended = counted = printed = 0
    for record in _records(text):
        title = record[0]
        if title == _BANNER:
            started += 1
        elif summary := _SUMMARY.fullmatch(title):
            numbers = [int(number.replace(",", "")) for number in _COUNTS.findall(summary["rest"])]
            # "... errors were not printed" repeats a part of the count; skipped ones are in no count.
            if "were skipped" in title:
                counted += sum(numbers)
            elif "were not printed" not in title:
                counted += sum(numbers)
                ended += 1
        elif found := _findings(record):
            printed += 1
            warned = title.lower().startswith("warning")
            (warnings if warned else findings).extend(found)
        elif title.startswith(_OF_THE_HOST):
            printed += 1
        else:
            words[_SEVERITY.sub("", title)] = None
    unprinted = max(counted - printed, 0)
    failure = None
    if not findings:
        failure = _failure(list(words), started, ended, unprinted)
    return SanitizerReport(tool, _together(findings), _together(warnings), unprinted, failure)


def _failure(words: Sequence[str], started: int, ended: int, unprinted: int) -> str | None:
    if words:
        return f"compute-sanitizer said: {'; '.join(words)}"
    if not started:
        return "compute-sanitizer wrote nothing"
    if ended < started:
        return "compute-sanitizer was stopped: its log has no summary"
    if unprinted:
        return f"compute-sanitizer counted {unprinted} errors that it did not print"
    return None


def _records(text: str) -> Iterator[list[str]]:
    """The log without its prefix, as records: a title, and the lines indented below it."""
    record: list[str] = []
    for line in text.splitlines():
        if not line.startswith("========="):
            continue  # the program's own output, where it is in the same text
        said = line.lstrip("=")
        indented = said.startswith("   ")
        if record and not indented:
            yield record
            record = []
        if said.strip():
            record.append(said.strip())
    if record:
        yield record


def _findings(record: Sequence[str]) -> list[Finding]:
    """One finding of a record, of a race one per access that races with the first; none without place and thread."""
    places: list[list[re.Match[str]]] = []  # places in the code, each with the functions that it was inlined from
    details: list[str] = []
    for line in record:
        frame = _FRAME.fullmatch(line)
        if frame and places and "Device Frame" in line:
            places[-1].append(frame)
        elif frame:
            places.append([frame])
        elif line is not record[0] and not line.startswith(_NO_DETAIL) and not line.startswith("by thread"):
            details.append(_ADDRESS.sub("", line).strip())
    thread = next((match[0] for line in record if (match := _THREAD.search(line))), "")
    if not places and not thread:
        return []
    title = _SEVERITY.sub("", record[0])
    if len(places) > 1 and _RACE.search(title):
        return _races(title, places)
    frame = _FRAME.fullmatch(title)
    # Some titles hold thread and place themselves: "Barrier called by threads starting at (0,0,0) in block ... at ...".
    what = re.sub(r" by threads starting .*", "", frame["before"].strip() if frame else title).rstrip(".")
    place = places[0] if places else []
    return [Finding(what, _kernel(place), _line(place), thread, " ".join(filter(None, details)))]


def _races(title: str, places: Sequence[list[re.Match[str]]]) -> list[Finding]:
    """A race report names an access and those that race with it; a hazard report two accesses with their threads."""
    first, *others = places
    block = _BLOCK.search(title)
    detail = ", ".join(re.findall(r"\(([A-Za-z][^()]*)\)", title.split(" between ")[0]))
    found = []
    for other in others:
        threads = [match[0] for place in (first, other) if (match := _THREAD.search(place[0]["before"]))]
        example = f"{' and '.join(threads)} in {block[1]}".lower() if block and len(threads) == 2 else ""
        line, other_line = _line(first), _line(other)
        where = "" if other_line is None else f" in line {other_line}"
        what = f"Race without a barrier between: {_access(first)} here, {_access(other)}{where}"
        count = int((other[0]["hazards"] or "1").replace(",", ""))
        found.append(Finding(what, _kernel(first), line, example, detail, count, other_line))
    return found


def _access(place: Sequence[re.Match[str]]) -> str:
    kinds: list[str] = _ACCESS.findall(place[0]["before"])
    return kinds[-1].lower() if kinds else "access"


def _line(place: Sequence[re.Match[str]]) -> int | None:
    """The line of the region that is nearest to the error; a header that was inlined there has lines of its own."""
    ours = [frame["line"] for frame in place if frame["line"] and Path(frame["file"]).name == _CANDIDATE]
    return int(ours[0]) if ours else None


def _kernel(place: Sequence[re.Match[str]]) -> str:
    """Name of the function that all others are called from, without return type, template arguments and parameters."""
    function: str = place[-1]["function"].replace("(anonymous namespace)::", "") if place else "an unknown kernel"
    named = re.search(r"(\w+)(?:<.*>)?\(", function)
    return named[1] if named else function


def _together(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Findings of the same kind, kernel and line as one, with the first example, in the order in which they came."""
    joined: dict[tuple[str, str, int | None], Finding] = {}
    for finding in found:
        key = (finding.what, finding.kernel, finding.line)
        known = joined.get(key)
        joined[key] = finding if known is None else replace(known, count=known.count + finding.count)
    return tuple(joined.values())


def _place(found: Finding) -> str:
    where = "" if found.line is None else f", line {found.line}"
    return f"{found.what} ({found.kernel}{where})"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _quoted(source: Sequence[str], line: int) -> str:
    text = source[line - 1].strip()
    return f"    {line} | {text if len(text) <= _SHOWN_COLUMNS else text[: _SHOWN_COLUMNS - 3] + '...'}"

"""Lines of the region that a log names, so that the Debug agent need not count lines.

Compilers, memory checkers and guards give the line as candidate.cu(7), candidate.cu:7 or "line 7". Lines that the log
itself quotes are not repeated.
"""

from __future__ import annotations

import re

_NAMED = re.compile(r"\bcandidate\.cu[(:](?P<compiled>\d+)|\bline (?P<said>\d+)\b")
# A line of intermediate code, which no agent has seen.
_OF_PTX = re.compile(r"\S*\.ptx\b.*?\bline \d+")
_SHOWN = 12


def named_lines(log: str, code: str) -> tuple[tuple[int, str], ...]:
    """At most the first 12 lines of `code` that `log` names and does not quote, by their numbers from 1, in order."""
    source = code.split("\n")
    quoted = {" ".join(line.split()) for line in log.split("\n")}
    found: dict[int, str] = {}
    for match in _NAMED.finditer(_OF_PTX.sub("", log)):
        number = int(match["compiled"] or match["said"])
        if 0 < number <= len(source) and (text := source[number - 1].rstrip()) and not _is_quoted(text, quoted):
            found[number] = text
        if len(found) == _SHOWN:
            break
    return tuple(sorted(found.items()))


def _is_quoted(text: str, quoted: set[str]) -> bool:
    """Whether a line of the log is this line of code, or ends in it: "7 | code", as sanitizers and g++ have it."""
    words = " ".join(text.split())
    return any(line == words or line.endswith(f"| {words}") for line in quoted)

"""Pages for tests of the report: of a hundred tasks, or hostile in every text, and read as tags and text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from html.parser import HTMLParser
from typing import Any

from made_up import CPU, authority, hundred, report, result

from cudamaster.core.values import Precision
from cudamaster.report.data import Missing, Problem, Report, RunProgress

HOSTILE = (
    "</pre></script><script>document.title='taken'</script><img src=x onerror=alert(1)> &amp; "
    "\x1b[31m\u202e\ud800 {{ 7*7 }}"
)
VOID = {"meta", "link", "br", "img", "input", "line", "circle", "use", "path", "rect", "polyline", "hr", "wbr"}


def hostile(value: Any) -> Any:
    """The same with HOSTILE in every text, however deep; names by which results are grouped stay different."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return f"{value}{HOSTILE}"
    if isinstance(value, Mapping):
        return {hostile(key): hostile(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(hostile(part) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{field.name: hostile(getattr(value, field.name)) for field in dataclasses.fields(value)}
        )
    return value


class Parsed(HTMLParser):
    """Tags with their attributes, the text outside of scripts and styles, and tags that were not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.unclosed: list[str] = []
        self.scripts: list[str] = []
        self._texts: list[str] = []
        self.feed(text)
        self.close()
        self.text = "".join(self._texts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """What is opened."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """What holds nothing."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """What is closed, in order or not."""
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.unclosed.append(tag)

    def handle_data(self, data: str) -> None:
        """Text, by where it stands."""
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif not self.open or self.open[-1] != "style":
            self._texts.append(data)


def full_report() -> Report:
    """A hundred measured results, some on the CPU device, a library, something missing and something damaged."""
    emulated = [result(task, hardware=CPU, model="playbook") for task in ("spmv_csr", "fft")]
    measured = [one for one in hundred() if one.name != "relu_bf16"]
    measured[0] = replace(measured[0], progress=RunProgress.STOPPED, stopped_at="round 3", complete=False)
    return report(
        [*measured, *emulated],
        missing=[Missing("relu", Precision.BF16, "activation", "the suite did not get to it")],
        problems=[Problem("runs/broken", "verdict 12ab is damaged", "Restore it from a copy.")],
        authorities=[authority("fft", "cuFFT"), authority("sorting", "CUB", None)],
    )

"""Runs for tests of `cudamaster show`, a round of every kind among them, and the command with its page."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from click.testing import CliRunner, Result
from search_stand_ins import COMMAND, SPEED, ScriptedModel, ScriptedWorkbench, code, command, fix, kernel, plan

from cudamaster.cli import main
from cudamaster.core.values import Bottleneck, Candidate, Findings, Role, Seconds, Verdict
from cudamaster.runs.optimization import optimize
from cudamaster.runs.record import Settings
from cudamaster.strategies.cudamaster import ROLES

SECRET = "sk-proj-0123456789abcdef"
SETTINGS = Settings(
    "cudamaster",
    8,
    3,
    "cpu",
    dict.fromkeys(ROLES, "scripted"),
    f"http://me:{SECRET}@localhost:1/v1?key={SECRET}",
    seed=7,
)
NO_FIX = (Role.DEBUG, '{"diagnosis": "x", "fix": ""}')
# One round of each kind; the numbers in comments are those of the exchanges.
MENDED = [
    plan("Mended <script>alert(1)</script>"), code(kernel("compile_error", tag="a")), command(),  # 1 to 3
    fix("brace"), code(kernel("wrong", tag="b </pre>")), command(),  # 4 to 6
    fix("index"), code(kernel(score=2.0, tag="c")), command(COMMAND + " --use_fast_math"),  # 7 to 9
]  # fmt: skip
SLOW = [plan("Slow"), code(kernel(score=0.5, tag="d")), command()]  # 10 to 12
UNUSABLE = [
    (Role.PLANNER, "Well,"),
    plan("Asked twice"),
    (Role.CODER, "no \x1b[31mcode"),
    (Role.CODER, "none"),
]  # 13 to 16
UNMENDED = [plan("Unmended"), code(kernel("fault", tag="e")), command(), NO_FIX]  # 17 to 20
SAME = [plan("Slow again"), code(kernel(score=0.5, tag="d")), command()]  # 21 to 23
BEST = [plan("Best"), code(kernel(score=3.0, tag="f")), command()]  # 24 to 26
DONE = [(Role.PLANNER, '{"idea": "", "plan": ""}')]  # 27
SCRIPT = [*MENDED, *SLOW, *UNUSABLE, *UNMENDED, *SAME, *BEST, *DONE]


class Bench(ScriptedWorkbench):
    """With a speed, seconds, a long log, and a profile that moves with each new best."""

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """The scripted verdict, with more in it."""
        verdict = super().evaluate(candidate)
        log = "".join(f"prelude {i}\n" for i in range(20)) + f"candidate.cu(3): error: {verdict.log}\n"
        return replace(
            verdict,
            speed=replace(SPEED, speedup=verdict.score) if verdict.score else None,
            seconds=Seconds(1.0, 0.5, 0.25),
            notes=("NOTE of the device",),
            log=log if verdict.log else "",
        )

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        """DRAM Throughput is measured before it is shown."""
        self.profiled.append(candidate.id)
        first = len(self.profiled) == 1
        measured = {"L2 Hit Rate": 40.0 * len(self.profiled), "DRAM Throughput": 20.0 * len(self.profiled)}
        shown = {"L2 Hit Rate": measured["L2 Hit Rate"]} if first else measured
        moved = Bottleneck.LATENCY if first else Bottleneck.BANDWIDTH
        units = {"L2 Hit Rate": "% of lookups"}
        return Findings(candidate.id, "", moved, "some_kernel", 0.9, shown, measured, "paper", units)


def run_of(path: Path, script: list[tuple[Role, str]], bench: ScriptedWorkbench | None = None) -> Path:
    """A run over `script`; where that ends before the search, the run is left as a kill would leave it."""
    model = ScriptedModel(script)
    with contextlib.suppress(StopIteration):
        optimize(path, bench or Bench(), model.for_all(), SETTINGS)
    return path


def show(*arguments: str | Path) -> Result:
    """The command, plain and 80 columns wide."""
    return CliRunner().invoke(main, ["show", *map(str, arguments)], env={"COLUMNS": "80", "OPENAI_API_KEY": SECRET})


def page(run: Path, file: Path) -> str:
    result = show(run, "--html", file)
    assert result.exit_code == 0, result.output
    return file.read_text()


class Page(HTMLParser):
    """Tags that were opened and not closed, all tags with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """What is opened."""
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "rect", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """What holds nothing."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """What is closed, in order."""
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """All text, wherever it stands."""
        self.text += data

"""Holds reading.py and `cudamaster show` to telling what happened, all of it, safely, and without touching the run."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cudamaster.account import RunAccount, State
from cudamaster.cli import main
from cudamaster.errors import RunFolderError
from cudamaster.optimization import optimize
from cudamaster.reading import read
from cudamaster.runfolder import RunFolder
from cudamaster.runrecord import Settings
from cudamaster.strategies.cudamaster import ROLES
from cudamaster.telling import TELLING_LINES, difference, judgement, telling_part, without_secrets
from cudamaster.values import (
    Bottleneck,
    Candidate,
    CaseVerdict,
    Findings,
    OutputCheck,
    Role,
    Seconds,
    Status,
    Verdict,
)
from cudamaster.visible import visible

sys.path.insert(0, str(Path(__file__).parent / "search"))

from search_stand_ins import (
    COMMAND,
    SPEED,
    ScriptedModel,
    ScriptedWorkbench,
    code,
    command,
    fix,
    kernel,
    plan,
)

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


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a round of every kind; not to be changed."""
    return run_of(tmp_path_factory.mktemp("runs") / "run", SCRIPT)


@pytest.fixture
def finished(kept: Path, tmp_path: Path) -> Path:
    """A copy of that run, to be damaged."""
    shutil.copytree(kept, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def account(kept: Path) -> RunAccount:
    return read(kept)


def show(*arguments: str | Path) -> Result:
    """The command, plain and 80 columns wide."""
    return CliRunner().invoke(main, ["show", *map(str, arguments)], env={"COLUMNS": "80", "OPENAI_API_KEY": SECRET})


def page(run: Path, file: Path) -> str:
    result = show(run, "--html", file)
    assert result.exit_code == 0, result.output
    return file.read_text()


class _Page(HTMLParser):
    """Tags that were opened and not closed, all tags with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


# ---- what is told


def test_every_kind_of_round_is_told(account: RunAccount) -> None:
    """What came of each plan, and why: as the search itself decided it."""
    told = [(r.plan.idea if r.plan else None, r.status, r.accepted, r.best_score) for r in account.rounds]
    assert told == [
        ("Mended <script>alert(1)</script>", Status.CORRECT, True, 2.0),
        ("Slow", Status.CORRECT, False, 2.0),
        ("Asked twice", Status.REJECTED, False, 2.0),
        ("Unmended", Status.FAULT, False, 2.0),
        ("Slow again", Status.CORRECT, False, 2.0),
        ("Best", Status.CORRECT, True, 3.0),
        (None, None, None, 3.0),
    ]
    assert account.rounds[1].why == "speedup 0.500, where the best so far has 2.000"
    assert (account.state, account.stopped_at) == (State.FINISHED, None)
    assert account.note == "The planner has no further idea after 6 of 8 rounds."
    assert account.best is not None
    assert (account.best.score, account.best.improved) == (3.0, True)
    assert account.best.code == kernel(score=3.0, tag="f")


def test_each_attempt_says_what_it_came_from_and_changed(account: RunAccount) -> None:
    """The first is written from the best so far, a debug try from the failing one before it."""
    first, second, third = account.rounds[0].attempts
    assert first.written_from == account.baseline
    assert second.written_from == first.candidate
    assert third.written_from == second.candidate
    assert first.diff.split("\n")[1:3] == ["-// correct 1.01 baseline", "+// compile_error - a"]
    assert (first.lines_added, first.lines_removed) == (1, 1)
    assert [a.diagnosis.fix if a.diagnosis else None for a in (first, second, third)] == [
        None,
        "FIX brace",
        "FIX index",
    ]
    assert (third.flags_added, second.flags_added) == (("--use_fast_math",), ())
    slow = account.rounds[1].attempts[0]
    assert slow.written_from == third.candidate
    assert slow.flags_removed == ("--use_fast_math",)
    statuses = [a.judgement.status for a in (first, second, third) if a.judgement]
    assert statuses == [Status.COMPILE_ERROR, Status.WRONG, Status.CORRECT]


def test_the_telling_part_of_a_log_starts_at_its_error(account: RunAccount) -> None:
    told = account.rounds[0].attempts[0].judgement
    assert told is not None
    assert told.telling == "candidate.cu(3): error: LOG of a"
    assert told.log.startswith("prelude 0")


def test_a_candidate_that_came_twice_was_judged_once(account: RunAccount) -> None:
    """Its seconds count in the first of its rounds alone."""
    slow, again = account.rounds[1], account.rounds[4]
    assert slow.attempts[0].candidate == again.attempts[0].candidate
    assert [r.attempts[0].judged_before for r in (slow, again)] == [False, True]
    assert (slow.judging_s, again.judging_s) == (1.75, 0.0)


def test_refused_replies_are_told_with_the_reason(account: RunAccount) -> None:
    """Those that were asked again, and the one that ended the round."""
    refused = {c.number: (c.refused, c.reply) for r in account.rounds for c in r.calls if c.refused}
    assert sorted(refused) == [13, 15, 16]
    assert refused[13][1] == "Well,"
    assert refused[16] == ("there is no fenced code block in it.", "none")
    assert [r.gave_up for r in account.rounds] == [False, False, False, True, False, False, False]


def test_a_new_best_is_told_with_what_changed_in_the_hardware(account: RunAccount) -> None:
    """Before is the best before; a metric that was measured there, but not shown, has its value."""
    assert [r.number for r in account.rounds if r.profile] == [1, 6]
    profile = account.rounds[0].profile
    assert profile is not None
    assert (profile.bottleneck_before, profile.bottleneck) == (Bottleneck.LATENCY, Bottleneck.BANDWIDTH)
    told = [(m.name, m.before, m.after, m.relative) for m in profile.metrics]
    assert told == [("L2 Hit Rate", 40.0, 80.0, 1.0), ("DRAM Throughput", 20.0, 40.0, 1.0)]
    assert [metric.unit for metric in profile.metrics] == ["% of lookups", None]
    assert account.baseline_profile is not None
    assert [(m.before, m.after) for m in account.baseline_profile.metrics] == [(None, 40.0)]


def test_costs_are_those_of_the_calls(account: RunAccount) -> None:
    assert [r.usage.calls for r in account.rounds] == [9, 3, 4, 4, 3, 3, 1]
    assert (account.usage.calls, account.usage.prompt_tokens, account.usage.dollars) == (27, 270, 6.75)
    assert account.rounds[0].judging_s == 3 * 1.75


def test_the_terminal_shows_each_event(kept: Path) -> None:
    shown = show(kept)
    assert shown.exit_code == 0
    flat = " ".join(shown.stdout.split())
    for told in (
        "double_it (fp32): finished, best P = 3.00 (emulated)",
        "PLAN for Mended",
        "(+1 -1 lines)",
        "-// correct 1.01 baseline",
        "flags: + --use_fast_math",
        "compile_error: DETAIL a",
        "candidate.cu(3): error: LOG of a",
        "Debug try 1: CAUSE brace",
        "Fix: FIX index",
        "correct, P = 2.00 (emulated), faster",
        "memory latency bound → memory bandwidth bound, 90% of the time",
        "L2 Hit Rate: 40 → 80 % of lookups (+100%)",
        "DRAM Throughput: 20 → 40 (+100%)",
        "Accepted: the new best, P = 3.00 (emulated).",
        "Not kept: speedup 0.500, where the best so far has 2.000",
        "Reply 16, of the coder agent, was no use: there is no fenced code block in it.",
        "The Debug agent offered no fix. Not kept: it ends with fault",
        "(judged in an earlier attempt)",
        "note: NOTE of the device",
        "The planner has no further idea after 6 of 8 rounds.",
        "9 calls, 90 + 45 tokens, $2.2500, 0.9 s; judging 5.2 s",
    ):
        assert told in flat, told
    assert shown.stdout.splitlines()[-1].startswith("Next: ")
    assert f"evaluate double_it {kept}/best.cu --precision fp32 --device cpu" in shown.stdout.splitlines()[-1]


def test_the_terminal_wraps_at_its_width(kept: Path) -> None:
    """All but what is there to be copied: paths and commands."""
    wide = [line for line in show(kept).stdout.splitlines() if len(line.rstrip()) > 80]
    assert [line for line in wide if not line.startswith(("Next:", "Run:"))] == []


def test_one_round_is_shown_in_full(kept: Path) -> None:
    shown = show(kept, "--round", "1").stdout
    assert "prelude 0" in shown
    assert "N=8" in shown
    assert "Slow" not in shown
    assert "prelude 0" not in show(kept).stdout


def test_a_long_difference_is_cut_unless_asked_for(tmp_path: Path) -> None:
    long = kernel(score=2.0, tag="long") + "".join(f"// line {i}\n" for i in range(50))
    run = run_of(tmp_path / "run", [plan("Long"), code(long), command(), *DONE])
    assert "// line 49" not in show(run).stdout
    assert "lines of difference: --round 1)" in show(run).stdout
    assert "// line 49" in show(run, "--round", "1").stdout
    assert "// line 1" not in show(run, "--no-diff").stdout


def test_json_is_the_whole_account(kept: Path) -> None:
    told = json.loads(show(kept, "--json").stdout)
    assert told["state"] == "finished"
    assert [r["best_score"] for r in told["rounds"]] == [2.0, 2.0, 2.0, 2.0, 2.0, 3.0, 3.0]
    assert told["rounds"][0]["attempts"][2]["judgement"]["speed"]["change"] == "faster"
    assert [r["number"] for r in json.loads(show(kept, "--json", "--round", "4").stdout)["rounds"]] == [4]


def test_a_round_that_is_not_there_is_a_usage_error(kept: Path) -> None:
    result = show(kept, "--round", "8")
    assert result.exit_code == 2
    assert "has no round 8, it has 7" in result.stderr


# ---- runs that did not end


@pytest.mark.parametrize(
    ("script", "stopped_at", "attempts"),
    [
        ([], "asking the planner agent (scripted)", []),
        (MENDED[:1], "asking the coder agent (scripted)", [0]),
        (MENDED[:2], "asking the compiler agent (scripted)", [0]),
        (MENDED[:3], "asking the debug agent (scripted)", [1]),
        (MENDED, "asking the planner agent (scripted)", [3, 0]),
    ],
)  # fmt: skip
def test_a_stopped_run_is_shown_as_far_as_it_got(
    tmp_path: Path, script: list[tuple[Role, str]], stopped_at: str, attempts: list[int]
) -> None:
    run = run_of(tmp_path / "run", script)
    account = read(run)
    # The script of the stand-in ran out there, which is how its session ended.
    assert (account.state, account.stopped_at) == (State.STOPPED, f"{stopped_at}; StopIteration")
    assert [len(r.attempts) for r in account.rounds] == (attempts or [0])
    assert account.rounds[-1].accepted is None
    shown = show(run).stdout
    assert "Not finished: this is a run as far as it got." in shown
    assert shown.splitlines()[-1].endswith(f"optimize --resume {run}")
    text = _Page(page(run, tmp_path / "page.html")).text
    assert "Not finished" in text
    assert stopped_at in text


class _Killed(Exception):
    pass


@pytest.mark.parametrize("when", ["evaluate", "findings", "baseline"])
def test_a_run_that_was_killed_over_a_candidate_says_so(tmp_path: Path, when: str) -> None:
    """While it was judged: there is code and no verdict. While it was profiled: a verdict, and no round's end."""

    class Dies(Bench):
        def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
            if when == "baseline" or (when == "evaluate" and candidate.id != self.baseline.id):
                raise _Killed
            return super().evaluate(candidate)

        def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
            if when == "findings" and candidate.id != self.baseline.id:
                raise _Killed
            return super().findings(candidate, verdict)

    with pytest.raises(_Killed):
        run_of(tmp_path / "run", BEST, Dies())
    account = read(tmp_path / "run")
    assert account.state is State.STOPPED
    assert account.stopped_at is not None
    if when == "baseline":
        assert account.rounds == ()
        assert (account.best, account.baseline_judgement) == (None, None)
    else:
        (attempt,) = account.rounds[0].attempts
        assert attempt.candidate in account.stopped_at
        assert (attempt.judgement is None) is (when == "evaluate")
        assert account.best is not None
        assert not account.best.improved
    assert show(tmp_path / "run").exit_code == 0
    assert "Not finished" in page(tmp_path / "run", tmp_path / "page.html")


def test_a_run_that_is_worked_on_is_said_to_run(tmp_path: Path) -> None:
    """Its lock is seen and left alone, and reading does not need it."""
    run = run_of(tmp_path / "run", MENDED)
    with RunFolder.open(run):
        assert read(run).state is State.RUNNING
        assert "--resume" not in show(run).stdout
    assert read(run).state is State.STOPPED
    RunFolder.open(run).close()


def test_a_baseline_that_fails_is_the_end_of_its_run(tmp_path: Path) -> None:
    bench = Bench()
    bench.baseline = replace(bench.baseline, code=kernel("fault", tag="baseline"))
    with pytest.raises(Exception, match="does not pass"):
        run_of(tmp_path / "run", [], bench)
    shown = show(tmp_path / "run").stdout
    assert "does not pass on" in " ".join(shown.split())
    assert "LOG of baseline" in shown
    assert shown.splitlines()[-1].endswith("doctor")


# ---- damage


def _first(folder: str, pattern: str) -> Callable[[Path], Path]:
    return lambda run: sorted((run / folder).glob(pattern))[0]


@pytest.mark.parametrize("remove", [False, True], ids=["cut", "removed"])
@pytest.mark.parametrize(
    "which",
    [
        lambda run: run / "run.json",
        _first("exchanges", "*.json"),
        _first("verdicts", "*.json"),
        _first("findings", "*.json"),
        _first("candidates", "*.cu"),
        _first("candidates", "*.command"),
    ],
    ids=["run.json", "exchange", "verdict", "findings", "candidate", "command"],
)
def test_a_damaged_run_is_named_with_its_file(finished: Path, which: Callable[[Path], Path], remove: bool) -> None:
    victim = which(finished)
    if remove:
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:-20])
    result = show(finished)
    assert result.exit_code == RunFolderError.exit_code
    assert (str(finished) if victim.name == "run.json" else victim.stem.split("_")[0].lstrip("0")) in result.stderr
    assert result.stdout == ""


def test_a_changed_result_is_found(finished: Path) -> None:
    """summary.json has no hash of its own; it is held against what the record comes to."""
    summary = json.loads((finished / "summary.json").read_text())
    (finished / "summary.json").write_text(json.dumps({**summary, "score": 30.0}))
    with pytest.raises(RunFolderError, match=r"summary\.json does not say what the run came to"):
        read(finished)


def test_a_record_cut_short_is_no_killed_run_when_it_has_a_summary(finished: Path) -> None:
    (finished / "exchanges" / "0027_planner.json").unlink()
    with pytest.raises(RunFolderError, match=r"0027_planner\.json is missing, though the run went on"):
        read(finished)
    (finished / "summary.json").unlink()
    assert read(finished).state is State.STOPPED


def test_no_run_is_said_plainly(finished: Path, tmp_path: Path) -> None:
    """A folder of runs names the latest."""
    result = show(tmp_path)
    assert result.exit_code == RunFolderError.exit_code
    assert f"show {finished}" in result.stderr
    assert "There is no run in" in show(tmp_path / "elsewhere").stderr


# ---- what must not happen


def _state(run: Path) -> dict[str, tuple[int, int, int]]:
    """Names, sizes and times of all files and folders, the folder itself included."""
    every = [run, *run.rglob("*")]
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns, p.stat().st_ino) for p in every}


@pytest.mark.parametrize("end", ["finished", "stopped"])
def test_reading_changes_nothing(tmp_path: Path, end: str) -> None:
    """Not even what a kill left half-written, which resuming would remove, and no lock appears."""
    run = run_of(tmp_path / "run", SCRIPT if end == "finished" else MENDED[:4])
    (run / "verdicts" / ".half.json.tmp").write_text("{")
    (run / "lock").unlink()
    before = _state(run)
    for arguments in ([], ["--round", "1"], ["--json"], ["--html", str(tmp_path / "page.html")]):
        assert show(run, *arguments).exit_code == 0
    assert _state(run) == before


@pytest.mark.parametrize("name", ["best.cu", "page.html", "exchanges/page.html"])
def test_a_page_is_not_written_into_the_run(finished: Path, name: str) -> None:
    before = _state(finished)
    result = show(finished, "--html", finished / name)
    assert result.exit_code == 2
    assert _state(finished) == before


def test_a_page_that_cannot_be_written_is_a_usage_error(kept: Path, tmp_path: Path) -> None:
    result = show(kept, "--html", tmp_path / "none" / "page.html")
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_what_models_write_stays_text_on_the_page(kept: Path, tmp_path: Path) -> None:
    """Tags in replies are escaped wherever they show: in plan, code, log. The page is well-formed and quiet."""
    text = page(kept, tmp_path / "page.html")
    parsed = _Page(text)
    assert parsed.open == []
    assert "Mended <script>alert(1)</script>" in parsed.text
    assert "// wrong - b </pre>" in parsed.text
    assert "&lt;script&gt;" in text
    assert "script" not in {tag for tag, _ in parsed.tags}
    addresses = [
        value for _, found in parsed.tags for name, value in found.items() if name in ("src", "href", "srcset")
    ]
    assert addresses == [f"#round-{n}" for n in range(1, 8)]
    assert "url(" not in text
    assert "@import" not in text
    assert [name for _, found in parsed.tags for name in found if name.startswith("on")] == []
    assert ("meta", "default-src 'none'; style-src 'unsafe-inline'") in [(t, a.get("content")) for t, a in parsed.tags]


def test_what_cannot_be_seen_is_spelt_out(kept: Path, tmp_path: Path) -> None:
    """A reply cannot drive the terminal, or turn the direction of code."""
    assert visible("a\x1b[2Jb\u202ec\r\n\td") == "a\\x1b[2Jb\\u202ec\\x0d\n\td"
    shown = show(kept, "--round", "3").stdout
    assert "no \\x1b[31mcode" in shown
    assert "\x1b" not in shown
    text = page(kept, tmp_path / "page.html")
    assert "no \\x1b[31mcode" in text
    assert "\x1b" not in text


def test_no_key_is_shown(kept: Path, tmp_path: Path) -> None:
    """Neither one of the environment nor one that stands in the address of a server, which the folder holds."""
    assert SECRET in (kept / "run.json").read_text(), "or this test would say nothing"
    outputs = [show(kept), show(kept, "--json"), show(kept, "--round", "1")]
    for text in (*(o.output for o in outputs), page(kept, tmp_path / "page.html")):
        assert SECRET not in text
    assert "http://localhost:1/v1" in outputs[0].stdout


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (None, None),
        ("https://user:key@[::1]:8000/v1?key=x#y", "https://[::1]:8000/v1"),
        ("https://host/v1", "https://host/v1"),
        ("key-without-scheme", "an address that cannot be read"),
        ("http://host:port/", "an address that cannot be read"),
    ],
)
def test_addresses_are_shown_without_secrets(url: str | None, shown: str | None) -> None:
    assert without_secrets(url) == shown


def test_an_error_that_is_no_number_is_the_worst() -> None:
    """A NaN beside an error within its bound does not hide behind that."""
    output = OutputCheck("out", 1, 1, 1, 0.5, 0.0, 1.0, "")
    case = CaseVerdict("N=8", True, 8.0, Status.WRONG, outputs=(output, replace(output, worst_error=math.nan)))
    told = judgement(Verdict("id", "cpu", True, Status.WRONG, "", cases=(case,)))
    assert told.cases[0].of_bound is not None
    assert math.isnan(told.cases[0].of_bound)


def test_a_log_without_an_error_is_told_from_its_start() -> None:
    log = "\n".join(f"line {i}" for i in range(30))
    assert telling_part(log).splitlines() == [f"line {i}" for i in range(TELLING_LINES)]


def test_the_same_code_has_no_difference() -> None:
    assert difference("a\nb\n", "a\nb\n") == ""
    assert difference("a\x0cb\n", "a\x0cc\n").split("\n")[1:3] == ["-a\x0cb", "+a\x0cc"]

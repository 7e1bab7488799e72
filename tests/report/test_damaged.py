"""For each damaged folder the report has a clear message, and it shows all the rest, whatever is on the disk."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from report_runs import kept_of, run, runs

from cudamaster.cli import main
from cudamaster.core.errors import RunFolderError
from cudamaster.report.export import as_csv, as_json
from cudamaster.report.headline import headline
from cudamaster.report.loading import load
from cudamaster.report.tables import classes, overview, tasks
from cudamaster.runs.record import hash_of


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound run, one to be damaged, and a kept folder; not to be changed."""
    folder = runs(tmp_path_factory.mktemp("pristine"), {"gelu": (2.0, "wrong"), "relu": (3.0, "wrong")})
    kept_of(run(folder.parent / "other", "selu"), folder / "kept", form=1)
    return folder


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    """A copy of those."""
    shutil.copytree(pristine, tmp_path / "runs")
    return tmp_path / "runs"


def said_of(folder: Path, broken: str) -> str:
    """What the report says of the one broken folder; the others are in it."""
    report = load([folder])
    left = {"gelu", "relu", "kept"} - {broken}
    assert {Path(result.origin).name for result in report.results} == left
    (problem,) = [problem for problem in report.problems if problem.serious]
    assert problem.path.endswith(broken)
    assert problem.fix
    return problem.what


def one(path: Path) -> Path:
    """The first file in a folder."""
    return min(path.iterdir())


@pytest.mark.parametrize(
    ("file", "damage", "words"),
    [
        ("run.json", lambda path: path.unlink(), "run.json is missing"),
        ("run.json", lambda path: path.write_text(""), "run.json is damaged"),
        ("run.json", lambda path: path.write_bytes(path.read_bytes()[:-40]), "run.json is damaged"),
        ("run.json", lambda path: path.write_bytes(b"\xff\xfe\x00"), "run.json is damaged"),
        ("run.json", lambda path: path.write_text("[]"), "is damaged"),
        ("run.json", lambda path: path.write_text("[" * 200_000), "is damaged"),
        ("run.json", lambda path: path.write_text(path.read_text().replace("gelu", "relu")), "was changed"),
        ("verdicts", lambda path: one(path).write_text("{}"), "was changed"),
        ("verdicts", lambda path: [file.unlink() for file in path.iterdir()], "is missing"),
        ("verdicts", lambda path: shutil.rmtree(path), "is missing"),
        ("exchanges", lambda path: one(path).unlink(), "Exchange 1 is missing"),
        ("candidates", lambda path: max(path.glob("*.cu")).write_text("int x;"), "was changed"),
        ("candidates", lambda path: max(path.glob("*.cu")).unlink(), "is missing"),
        ("findings", lambda path: one(path).write_text('{"candidate": 1}'), "was changed"),
        ("summary.json", lambda path: path.write_text('{"best": "x"}'), "does not say what the run came to"),
        ("sessions.json", lambda path: path.write_text("nonsense"), "is damaged"),
    ],
)  # fmt: skip
def test_a_damaged_run_is_named_with_what_is_wrong(folder: Path, file: str, damage: object, words: str) -> None:
    damage(folder / "gelu" / file)  # type: ignore[operator]
    assert words in said_of(folder, "gelu")


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("verdict.json", '"sweep"', '"swept"', "verdict.json is damaged at cases.0.sweep"),
        ("verdict.json", '"status": "correct"', '"status": "fine"', "verdict.json is damaged at status"),
        ("best.json", '"candidate": "', '"candidate": "0', "The verdict in"),
        ("best.json", '"score": ', '"score": "a lot", "x": ', "best.json is damaged at score"),
        ("findings.json", '"candidate": "', '"candidate": "0', "findings.json is of"),
        ("run.json", '"fp32"', '"fp64"', "run.json is damaged at precision"),
        ("run.json", '"baseline"', '"basis"', "run.json is damaged at baseline"),
    ],
)
def test_a_damaged_kept_folder_is_named(folder: Path, file: str, old: str, new: str, words: str) -> None:
    path = folder / "kept" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert words in said_of(folder, "kept")


@pytest.mark.parametrize("file", ["best.cu", "best.json", "verdict.json", "run.json"])
def test_a_kept_folder_that_lacks_a_file_is_named(folder: Path, file: str) -> None:
    (folder / "kept" / file).unlink()
    assert file in said_of(folder, "kept")


def test_kept_timings_that_do_not_pair_up_make_no_interval(folder: Path) -> None:
    """The kept score stays, without one."""
    path = folder / "kept" / "verdict.json"
    raw = json.loads(path.read_text())
    for case in raw["cases"]:
        if case["timing"]:
            case["timing"]["candidate_us"].pop()
    path.write_text(json.dumps(raw))
    (result,) = load([folder / "kept"]).results
    assert (result.speed, result.score) == (None, pytest.approx(3.0, rel=0.01))
    assert all(case.speedup is None for case in result.cases)


def test_a_folder_that_may_not_be_read_is_named(folder: Path) -> None:
    """A link that leads nowhere, and a folder without access where that can be had."""
    (folder / "gone").symlink_to(folder / "nowhere")
    assert len(load([folder]).results) == 3
    if os.geteuid() != 0:
        (folder / "gelu").chmod(0)
        try:
            assert "cannot be read" in said_of(folder, "gelu")
        finally:
            (folder / "gelu").chmod(0o755)


def test_a_file_in_place_of_a_folder_holds_no_results(folder: Path) -> None:
    report = load([folder, folder / "gelu" / "best.cu"])
    assert len(report.results) == 3
    assert "holds no results" in next(problem.what for problem in report.problems if problem.serious)


@pytest.mark.slow
def test_bits_that_flip_are_never_a_crash(folder: Path) -> None:
    """Seeded: in each of 40 tries a byte of a file is another. The report is made, and says so or is the same.

    Numbers of a run carry hashes: what is reported of it is what was measured, or nothing.
    """
    draw = random.Random(3)
    sound = {result.name: result.score for result in load([folder]).results}
    files = [file for file in sorted((folder / "gelu").rglob("*")) if file.is_file() and file.stat().st_size]
    files += sorted((folder / "kept").iterdir()) * 3
    for _ in range(40):
        file = draw.choice(files)
        whole = file.read_bytes()
        at = draw.randrange(len(whole))
        file.write_bytes(whole[:at] + bytes([draw.randrange(256)]) + whole[at + 1 :])
        report = load([folder])
        for result in report.results:
            if "kept" not in result.origin:
                assert result.score == sound[result.name]
        assert "relu_fp32" in {result.name for result in report.results}
        json.dumps(as_json(report), allow_nan=False)
        assert as_csv(report)
        assert headline(report)
        assert overview(report)
        assert tasks(report)
        classes(report)
        file.write_bytes(whole)


def test_the_command_reports_the_rest(folder: Path) -> None:
    """One line says what is wrong and what to do, the exit code is 0."""
    (folder / "gelu" / "run.json").unlink()
    ran = CliRunner().invoke(main, ["report", str(folder)])
    assert ran.exit_code == 0
    assert "run.json is missing. Restore it from a copy, or leave it out." in " ".join(ran.output.split())
    assert "relu_fp32" in ran.output
    left_out = json.loads(CliRunner().invoke(main, ["report", str(folder), "--json"]).output)["problems"]
    assert [problem["path"].rsplit("/", 1)[1] for problem in left_out if problem["serious"]] == ["gelu"]


def test_a_count_beyond_all_numbers_is_damage(tmp_path: Path) -> None:
    """JSON has whole numbers of any length; sums of tokens are floats."""
    path = run(tmp_path / "run")
    file = sorted((path / "exchanges").glob("*.json"))[0]
    record = json.loads(file.read_text())
    record.pop("hash")
    record["reply"]["usage"]["prompt_tokens"] = 10**400
    file.write_text(json.dumps({**record, "hash": hash_of(record)}))
    (problem,) = load([path]).problems
    assert file.name in problem.what
    assert "prompt_tokens: a number beyond 64 bits" in problem.what
    for command in ("show", "report"):
        done = CliRunner().invoke(main, [command, str(path)])
        assert done.exit_code == RunFolderError.exit_code
        assert isinstance(done.exception, SystemExit)

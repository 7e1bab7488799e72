"""benchmarks/gpu_model.py: times from run folders, the texts they belong to, and its errors for wrong arguments."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu_model_fitting import OF_GPU, OF_MODEL, Fit

from cudamaster.core.errors import UsageError
from cudamaster.core.values import Candidate, CaseVerdict, Hardware, Precision, Status, Timing, Verdict
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.modelling import constants, gpu, measured
from cudamaster.modelling.counts import CallCounts, Other
from cudamaster.modelling.measured import Time
from cudamaster.runs.folder import RunFolder
from cudamaster.runs.record import FORMAT, Manifest, Settings
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GPU = Hardware("NVIDIA H200", {}, emulated=False)
CASE = "N=1024"
WIDE = "1_wide_loads"


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Any:
    """benchmarks/gpu_model_times.py."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import gpu_model_times

    return gpu_model_times


@pytest.fixture
def validation(times: Any) -> Any:
    """benchmarks/gpu_model_validation.py."""
    import gpu_model_validation

    return gpu_model_validation


def kernels(task: str) -> dict[str, Candidate]:
    """Baseline and playbook in fp32 by their names."""
    import gpu_model_data

    return {kernel.name: kernel.candidate for kernel in gpu_model_data.kernels(task, "fp32")}


def run(path: Path, task: str, judged: list[tuple[Candidate, Verdict]], hardware: Hardware = GPU) -> Path:
    """A run folder with these verdicts."""
    manifest = Manifest(
        FORMAT, "2026-11-22T12:00:00+00:00", {}, task, Precision.FP32, "", kernels(task)["baseline"].id, hardware,
        Settings("cudamaster", 1, 0, "auto", {}),
    )  # fmt: skip
    with RunFolder.create(path, manifest) as folder:
        for candidate, verdict in judged:
            folder.save_candidate(candidate)
            folder.save_verdict(verdict)
    return path


def timed(candidate: Candidate, timing: Timing, status: Status = Status.CORRECT) -> tuple[Candidate, Verdict]:
    """A verdict with times at one case, and checks at another."""
    at_case = CaseVerdict(CASE, True, 1.0, status, timing=timing, empty_us=8.5)
    cases = (CaseVerdict("N=7", False, 1.0, Status.CORRECT), at_case)
    return candidate, Verdict(candidate.id, "cuda", False, status, "as a test wants it", cases=cases)


def counted(path: Path, task: str, event: str, code: str = "") -> Path:
    """A file of counts, packed, of one call in which that happens."""
    counts = CallCounts(version=1, case=CASE, events=(Other.model_validate({"event": event, "bytes": 8}),))
    line = {"task": task, "precision": "fp32", "kernel": "baseline", "code": code, "case": CASE}
    with gzip.open(path, "wt") as file:
        file.write(json.dumps({**line, "counts": counts.model_dump(mode="json")}) + "\n")
    return path


def by_kernel(table: Path) -> dict[str, Time]:
    return {time.kernel: time for time in measured.read(table)}


def test_medians_of_playbook_kernels_and_of_the_baseline_beside_them(times: Any, tmp_path: Path) -> None:
    """The search's brief look at its baseline, a wrong kernel and one that is not of the playbook add nothing."""
    relu = kernels("relu")
    unknown = replace(relu[WIDE], code=relu[WIDE].code + "// another")
    briefly = timed(relu["baseline"], Timing((99.0,), (99.0,), (99.0,), (99.0,)))
    whole = timed(relu[WIDE], Timing((30.0, 10.0, 11.0), (9.0, 20.0, 8.0004), (5.0, 6.0), (4.0,)))
    strange = timed(unknown, Timing((98.0,), (98.0,)))
    wrong = timed(kernels("elu")[WIDE], Timing((97.0,), (97.0,)), Status.WRONG)
    run(tmp_path / "runs" / "relu", "relu", [briefly, whole, strange])
    run(tmp_path / "runs" / "elu", "elu", [wrong])
    table = tmp_path / "times.csv"
    times.update([tmp_path / "runs"], table, tmp_path / "none")
    codes = times._texts("relu", "fp32")
    assert measured.read(table) == [
        Time("relu", "fp32", WIDE, CASE, 9.0, 4.0, 8.5, codes[WIDE]),
        Time("relu", "fp32", "baseline", CASE, 11.0, 5.5, 8.5, codes["baseline"]),
    ]


def test_a_table_keeps_what_it_has_of_todays_texts(times: Any, tmp_path: Path) -> None:
    """A row of another text goes, and the new time takes its place; one that names no text stays."""
    relu = kernels("relu")
    table = tmp_path / "times.csv"
    head = "task,precision,kernel,case,whole_us,device_us,code\n"
    table.write_text(head + f"relu,fp32,baseline,{CASE},50.5,,\nrelu,fp32,{WIDE},{CASE},40.5,3.5,c0ffee\n")
    run(tmp_path / "relu", "relu", [timed(relu[WIDE], Timing((10.0,), (9.0,)))])
    times.update([tmp_path / "relu"], table, tmp_path / "none")
    assert {name: time.whole_us for name, time in by_kernel(table).items()} == {"baseline": 50.5, WIDE: 9.0}
    before = table.read_text()
    faster = run(tmp_path / "again", "relu", [timed(relu[WIDE], Timing((10.0,), (1.0,)))])
    times.update([faster], table, tmp_path / "none")
    assert table.read_text() == before


@pytest.mark.parametrize(("event", "rows"), [("alloc", 0), ("memset", 2)])
def test_tasks_that_allocate_are_left_out(times: Any, tmp_path: Path, event: str, rows: int) -> None:
    run(tmp_path / "relu", "relu", [timed(kernels("relu")[WIDE], Timing((10.0,), (9.0,)))])
    table = tmp_path / "times.csv"
    times.update([tmp_path / "relu"], table, counted(tmp_path / "counts.jsonl.gz", "relu", event))
    assert len(measured.read(table)) == rows


def test_runs_of_one_gpu_make_a_table(times: Any, tmp_path: Path) -> None:
    table = tmp_path / "times.csv"
    with pytest.raises(UsageError, match="There is no run in"):
        times.update([tmp_path], table, tmp_path / "none")
    run(tmp_path / "1", "relu", [])
    run(tmp_path / "2", "relu", [], replace(GPU, name="NVIDIA L4"))
    with pytest.raises(UsageError, match="NVIDIA H200 and NVIDIA L4"):
        times.update([tmp_path], table, tmp_path / "none")
    emulated = run(tmp_path / "3", "relu", [], replace(GPU, emulated=True))
    with pytest.raises(UsageError, match="not on a GPU"):
        times.update([emulated], table, tmp_path / "none")
    assert not table.exists()


@pytest.mark.parametrize(("code", "used"), [("c0ffee", 1), ("", 1), ("another", 0)])
def test_a_time_of_another_text_than_the_counted_one_is_not_used(
    validation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, used: int
) -> None:
    counted(tmp_path / "counts.jsonl.gz", "relu", "memset", code="c0ffee")
    table = tmp_path / "times.csv"
    table.write_text(f"task,precision,kernel,case,whole_us,device_us,code\nrelu,fp32,baseline,{CASE},9,,{code}\n")
    for name, value in (
        ("FOLDER", tmp_path),
        ("TIMES", table),
        ("TABLES", tmp_path / "none"),
        ("MEASURED", tmp_path / "no.gz"),
    ):
        monkeypatch.setattr(validation, name, value)
    assert len(validation.examples()) == used


def test_what_was_fitted_is_what_is_validated_next(
    validation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`whole` fits and validates in one process: the second step must not go on with the constants of before."""
    before = constants.shipped()
    fitted = before.constants.model_copy(update={"block_cycles": 125.0})
    h200 = gpu.load("h200")
    for name, value in (
        ("examples", list),
        ("fit", lambda *given: Fit(fitted, h200, 1.0, 0.5)),
        ("_write_fitted", lambda *given: None),
    ):
        monkeypatch.setattr(validation, name, value)
    monkeypatch.setattr(constants, "place", lambda: tmp_path / "gpu_model.yaml")
    try:
        validation.run_fit("h200")
        assert constants.shipped().constants.block_cycles == 125
        assert constants.shipped().known_error is None
    finally:
        constants.shipped.cache_clear()


@pytest.mark.slow(but=["words0-Give TASK-PRECISION: relu-fp32 or relu-bf16."])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["relu-fp64"], "Give TASK-PRECISION: relu-fp32 or relu-bf16."),
        (["relu"], "Give TASK-PRECISION: relu-fp32 or relu-bf16."),
        (["relo-fp32"], "Unknown task 'relo'."),
        (["relu-fp32", "--case", "nosuch"], "relu has no case 'nosuch'. Choose heaviest, all or, as timed cases, one"),
        (["relu-fp32", "nosuch.cu"], "The kernel nosuch.cu cannot be read"),
    ],
)
def test_wrong_arguments_are_told_on_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, str(BENCHMARKS / "gpu_model.py"), "counts", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert told.returncode == 2
    assert told.stderr.startswith("error: ")
    assert said in told.stderr
    assert told.stderr.count("\n") == 1


def test_measuring_asks_for_one_gpu_and_only_for_what_no_table_has(
    times: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gpu_model_data
    import gpu_model_measuring as measuring

    monkeypatch.setattr(measuring, "find_gpus", lambda: ("a", "b"))
    with pytest.raises(UsageError, match="several GPUs"):
        measuring.measure(tmp_path / "times.csv", 1)
    bench = Workbench(cards.load("dot_product"), Precision.FP32, CpuDevice())
    names = [path.stem for path in gpu_model_data.playbook_files("dot_product", "fp32")]
    known = {("dot_product", "fp32", names[0]), ("dot_product", "bf16", names[1])}
    assert [name for _, name, _ in measuring.missing(bench, known)] == names[1:]


def test_a_measured_kernel_is_added_with_the_baseline_beside_it(times: Any, tmp_path: Path) -> None:
    """A baseline that the table has stays as it is; a wrong kernel adds nothing."""
    import gpu_model_measuring as measuring

    table = tmp_path / "times.csv"
    bench = Workbench(cards.load("relu"), Precision.FP32, CpuDevice())
    kernel = kernels("relu")[WIDE]
    measuring.add(table, bench, WIDE, replace(timed(kernel, Timing((10.0,), (9.0,)))[1], status=Status.WRONG))
    assert not table.exists()
    measuring.add(table, bench, WIDE, timed(kernel, Timing((10.0,), (9.0,)))[1])
    assert {name: time.whole_us for name, time in by_kernel(table).items()} == {"baseline": 10.0, WIDE: 9.0}
    rows = [row for row in table.read_text().splitlines(keepends=True) if WIDE not in row]
    table.write_text("".join(rows))
    measuring.add(table, bench, WIDE, timed(kernel, Timing((20.0,), (8.0,)))[1])
    assert {name: time.whole_us for name, time in by_kernel(table).items()} == {"baseline": 10.0, WIDE: 8.0}


def test_what_is_fitted_is_held_to_its_range() -> None:
    fitted = constants.shipped().sourced
    assert {name: fitted[name].range for name in OF_MODEL} == OF_MODEL
    assert {"block_cycles", "overlap"} <= set(OF_MODEL) <= set(constants.Constants.model_fields)
    assert set(OF_GPU) == {"small_alloc_us"}


def test_a_fitted_figure_of_a_gpu_is_written_in_its_place(
    validation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cudamaster.core import resources

    before = resources.profiles() / "gpus" / "h200.yaml"
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus" / "h200.yaml").write_text(before.read_text())
    monkeypatch.setattr(resources, "profiles", lambda: tmp_path)
    validation._write_fitted("h200", {"small_alloc_us": 3.21})
    found = gpu.load(str(tmp_path / "gpus" / "h200.yaml"))
    assert found.figures.small_alloc_us == 3.21
    assert found.sourced["small_alloc_us"].model_copy(update={"value": 0.0}) == gpu.load().sourced[
        "small_alloc_us"
    ].model_copy(update={"value": 0.0})


def test_an_object_names_the_compiler_that_has_made_it(tmp_path: Path) -> None:
    """The driver may find another one than its own."""
    import gpu_model_data

    from cudamaster.devices.cpu import toolchain

    made = tmp_path / "made.o"
    command = [toolchain.compiler(), "-x", "c++", "-c", "-", "-o", str(made)]
    subprocess.run(command, input="int made;", text=True, check=True)
    (compiler,) = gpu_model_data.compilers_of(made)
    number = subprocess.run(
        [toolchain.compiler(), "-dumpversion"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert number in compiler


def test_counts_of_one_compiler_are_packed_and_those_of_two_refused(
    times: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compilers make other code of a kernel, so counts of several do not compare."""
    import gpu_model_data

    monkeypatch.setattr(gpu_model_data.cards, "names", lambda: ["relu"])
    folder, packed = tmp_path / "counts", tmp_path / "counts.jsonl.gz"
    made_by: dict[str, str | None] = {"baseline": "GCC: 12.2.0", WIDE: "GCC: 12.2.0"}

    def pack() -> None:
        for kernel in gpu_model_data.kernels("relu", "fp32"):
            if kernel.name in made_by:
                head = {"task": "relu", "precision": "fp32", "kernel": kernel.name, "code": kernel.code}
                kernel.file(folder).parent.mkdir(parents=True, exist_ok=True)
                named = {"compilers": [by]} if (by := made_by[kernel.name]) else {}
                kept = {**head, **named, "cases": {CASE: "no counts", "N=1": "a call that nobody has measured"}}
                kernel.file(folder).write_text(json.dumps(kept))
        gpu_model_data.pack(folder, packed)

    pack()
    with gzip.open(packed, "rt") as file:
        lines = [json.loads(line) for line in file]
    assert {(line["kernel"], line["case"]) for line in lines} == {("baseline", CASE), (WIDE, CASE)}
    before = packed.read_bytes()
    for other, said in (
        ("GCC: 13.3.0", r"GCC: 12\.2\.0, GCC: 13\.3\.0"),
        (None, r"GCC: 12\.2\.0, one that is not named"),
    ):
        made_by[WIDE] = other
        with pytest.raises(SystemExit, match=said):
            pack()
    assert packed.read_bytes() == before

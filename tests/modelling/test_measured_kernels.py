"""benchmarks/gpu_model.py: what is held out, variants of kernels, and the tables of what was measured of them."""

from __future__ import annotations

import difflib
import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cudamaster.build.building import Builder
from cudamaster.core.values import BENCHMARK_PRECISIONS, Candidate, Precision, content_hash
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.modelling import measured
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROFILER = """\
==PROF== Connected to process 1
"ID","Kernel Name","Grid Size","Block Size","gpu__time_duration.sum","smsp__inst_executed.sum"
"","","","","ns","inst"
"0","mskb_marker","(1, 1, 1)","(32, 1, 1)","1000","1"
"1","first","(2, 3, 1)","(64, 1, 1)","2,000","24"
"2","second","(2, 1, 1)","(64, 1, 1)","3000","12"
"3","mskb_marker","(4, 1, 1)","(32, 1, 1)","1000","4"
"4","first","(7, 1, 1)","(64, 2, 1)","2500","n/a"
"""


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


def test_a_fifth_of_the_tasks_is_held_out_and_one_of_every_category() -> None:
    categories = {name: cards.load(name).category for name in cards.names()}
    fitted, held_out = measured.split(categories)
    assert not fitted & held_out
    assert fitted | held_out == set(categories)
    assert len(held_out) == 10
    assert {categories[task] for task in held_out} == set(categories.values())


def test_the_tasks_that_are_held_out_are_these_for_ever() -> None:
    categories = {name: cards.load(name).category for name in cards.names()}
    named = "leaky_relu fft top_k matrix_vector_mul silu_and_mul hinge_loss softmax spmv_coo conv_2d matrix_copy"
    assert measured.split(categories)[1] == set(named.split())


@pytest.mark.parametrize("task", ["relu", "spmv_csr", "matrix_mul"])
@pytest.mark.parametrize("precision", BENCHMARK_PRECISIONS)
def test_a_variant_differs_from_its_kernel_in_one_number(task: str, precision: Any) -> None:
    import gpu_model_variants

    texts = {name: code for name, code, _ in gpu_model_variants.texts(task, precision)}
    found = list(gpu_model_variants.variants(task, precision))
    assert found
    assert len({variant.name for variant in found}) == len({variant.code for variant in found}) == len(found)
    for variant in found:
        before, after = texts[variant.kernel].splitlines(), variant.code.splitlines()
        changed = [line for line in difflib.ndiff(before, after) if line[:2] in ("- ", "+ ")]
        assert len(changed) == 2, variant.name
        assert variant.change.partition("=")[2] in changed[1]


def test_there_are_variants_enough() -> None:
    import gpu_model_variants

    kernels = [
        kernel
        for task in cards.names()
        for each in BENCHMARK_PRECISIONS
        for kernel in (*gpu_model_variants.texts(task, each), *gpu_model_variants.variants(task, each))
    ]
    assert len(kernels) >= 500


def test_launches_of_the_profiler_belong_to_the_marker_before_them() -> None:
    import gpu_model_collecting

    found = gpu_model_collecting.launches(PROFILER)
    assert [len(found[number]) for number in (0, 3)] == [2, 1]
    assert found[0][0]["function"] == "first"
    assert (found[0][0]["grid"], found[0][0]["block"]) == (6, 64)
    assert found[0][0]["gpu__time_duration.sum"] == 2000
    assert "smsp__inst_executed.sum" not in found[3][0]
    assert found[3][0]["block"] == 128


def test_tables_hold_the_right_kernels(tmp_path: Path) -> None:
    import gpu_model_tables
    import gpu_model_variants

    (_, _, _), (step, code, _), *_ = gpu_model_variants.texts("relu", "fp32")
    variant = next(iter(gpu_model_variants.variants("relu", "fp32")))
    case = max((case for case in cards.load("relu").cases if case.sweep), key=lambda case: case.weight).label
    (tmp_path / "kept").mkdir()
    times = [
        line(step, content_hash(code), "correct", {case: figures(10.0)}),
        line(variant.name, content_hash(variant.code), "correct", {case: figures(14.0)}),
        line("9_wrong", content_hash(code), "mismatch", {}),
        line(step, "0" * 16, "correct", {case: figures(1.0)}),  # another text
    ]
    counted = {"case": case, "launches": [{"function": "f", "grid": 2, "block": 64, "smsp__inst_executed.sum": 24.0}]}
    written(tmp_path / "kept" / "times.jsonl", times)
    written(tmp_path / "kept" / "counters.jsonl", [{**line(step, content_hash(code)), **counted}])
    gpu_model_tables.make([tmp_path], tmp_path / "measured.csv.gz", tmp_path / "counters.csv.gz")

    found = {time.kernel: time for time in measured.read(tmp_path / "measured.csv.gz")}
    assert {name: time.whole_us for name, time in found.items()} == {step: 10.0, variant.name: 14.0}
    with gzip.open(tmp_path / "counters.csv.gz", "rt") as file:
        head, row = file.read().splitlines()
    assert head.startswith("task,precision,kernel,case,code,launch,function,grid,block,")
    assert row.startswith(f"relu,fp32,{step},{case},{content_hash(code)},0,f,2,64,")


def test_the_kept_table_has_times_of_many_kernels() -> None:
    times = measured.read(BENCHMARKS.parent / "results" / "gpu_model" / "measured.csv.gz")
    kernels = {(time.task, time.precision, time.kernel) for time in times}
    assert len(kernels) >= 400
    assert sum(" " in name for _, _, name in kernels) >= 140
    assert all(time.code and time.empty_us and time.device_us for time in times)


def line(kernel: str, code: str, status: str = "", cases: object = None) -> dict[str, Any]:
    about = {"task": "relu", "precision": "fp32", "kernel": kernel, "code": code}
    return {**about, "status": status, "cases": cases} if status else about


def figures(us: float) -> dict[str, float]:
    beside = {"baseline_us": us + 10, "baseline_device_us": us, "calls": 20}
    return {"whole_us": us, "device_us": us - 5, "empty_us": 8.0, **beside}


def written(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))


def test_the_number_of_instructions_is_found_again() -> None:
    """Also where one launch of many is far off."""
    import gpu_model_instructions as instructions

    true = (1.7, 2.5, 9.0)
    shapes = [(100.0 * k, (300.0 * (k % 7 + 1), 40.0 * (k % 5 + 1), 8.0 * (k % 3 + 1))) for k in range(1, 40)]
    launches = [
        instructions.Executed(
            f"task {k % 5}", str(k), plain, of, plain + sum(a * b for a, b in zip(true, of, strict=True))
        )
        for k, (plain, of) in enumerate(shapes)
    ]
    assert instructions.fitted(launches) == pytest.approx(true, rel=0.02)
    launches.append(instructions.Executed("task 0", "odd", 100, (300, 40, 8), 100_000))
    assert instructions.fitted(launches)[0] == pytest.approx(1.7, rel=0.05)
    assert instructions.factors(launches[:1], true) == pytest.approx([1])


def test_the_builder_makes_an_object_of_our_own_text() -> None:
    """What `collect` links: of the kernel only the wrapper is visible."""
    card = cards.load("dot_product")
    builder = Builder(card, Precision.FP32, CpuDevice())
    kernel = Candidate(card.name, Precision.FP32, baseline_region(card, Precision.FP32), CpuDevice.default_command)
    made = builder.own_object(kernel)
    shown = subprocess.run(["nm", "-g", "--defined-only", str(made)], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in shown.stdout.splitlines()] == [card.wrapper(Precision.FP32, optimized=True)]
    with pytest.raises(ValueError, match="error"):
        builder.own_object(Candidate(card.name, Precision.FP32, "int", CpuDevice.default_command))

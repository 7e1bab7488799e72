"""Holds the reading of many results to what belongs together: each once, by search, GPU and driver, none emulated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import H200, run, runs
from search_stand_ins import HARDWARE

from cudamaster.core.errors import UsageError
from cudamaster.core.values import GpuModel, ProfileMode
from cudamaster.report.loading import load
from cudamaster.report.numbers import groups


def test_runs_of_one_search_are_repetitions_in_the_order_they_began(tmp_path: Path) -> None:
    """Other seeds repeat a search; another R, model, profile or GPU is another one."""
    for n, seed in enumerate((1, 2, 3)):
        run(tmp_path / f"{n}", search_seed=seed, seed=seed)
    others: list[dict[str, object]] = [
        {"outcomes": (2.0,)},
        {"model": "another"},
        {"profile": ProfileMode.NONE},
        {"jump_factor": 3.0},
        {"hardware": replace(H200, name="NVIDIA A100")},
    ]
    for n, other in enumerate(others):
        run(tmp_path / f"other{n}", **other)  # type: ignore[arg-type]
    report = load([tmp_path])
    assert sorted(group.repetitions for group in groups(report)) == [1] * len(others) + [3]
    repeated = [result for result in report.results if result.origin.rsplit("/", 1)[1] in "012"]
    assert [result.repetition for result in sorted(repeated, key=lambda one: one.started)] == [1, 2, 3]


def test_one_folder_is_read_once_however_often_it_is_named(tmp_path: Path) -> None:
    path = run(tmp_path / "all" / "run")
    (tmp_path / "all" / "link").symlink_to(tmp_path / "all")  # a loop
    assert len(load([path, path, tmp_path / "all", tmp_path]).results) == 1


def test_a_path_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no"):
        load([tmp_path / "nowhere"])


def test_emulated_results_make_no_speedup(tmp_path: Path) -> None:
    """They have a group of their own with success at 0 and nothing else, and change no number of the measured."""
    runs(tmp_path / "gpu", {"gelu": (2.0,), "relu": (4.0,)})
    before = groups(load([tmp_path / "gpu"]))
    runs(tmp_path / "cpu", {"gelu": (50.0,), "selu": (60.0,)}, hardware=HARDWARE)
    report = load([tmp_path])
    measured, emulated = groups(report)
    assert len(report.emulated) == 2
    assert (emulated.emulated, emulated.curve, emulated.spread) == (True, (), None)
    assert [(point.tau, point.share) for point in emulated.success] == [(0.0, 1.0)]
    assert (measured.success, measured.curve, measured.spread) == (before[0].success, before[0].curve, before[0].spread)
    assert measured.missing == ()
    assert any("emulated" in problem.what for problem in report.problems)


def test_modelled_results_make_no_speedup_either(tmp_path: Path) -> None:
    """Nor do they stand in a group with emulated ones of the same machine."""
    model = GpuModel("v1", "NVIDIA H200", 1.25)
    modelled = replace(HARDWARE, name=f"{HARDWARE.name} with a model", modelled=model)
    runs(tmp_path / "gpu", {"gelu": (2.0,)})
    before = groups(load([tmp_path / "gpu"]))
    runs(tmp_path / "model", {"gelu": (50.0,)}, hardware=modelled)
    runs(tmp_path / "cpu", {"gelu": (60.0,)}, hardware=HARDWARE)
    report = load([tmp_path])
    told = {group.hardware.mark: group for group in groups(report)}
    assert set(told) == {"", "modelled", "emulated"}
    assert (told[""].success, told[""].spread) == (before[0].success, before[0].spread)
    assert (told["modelled"].curve, told["modelled"].spread) == ((), None)
    (result,) = told["modelled"].results
    assert (result.mark, result.hardware.modelled) == ("modelled", model)
    assert result.score == pytest.approx(50.0, rel=0.01)


def test_two_gpus_are_told_and_kept_apart(tmp_path: Path) -> None:
    runs(tmp_path / "a", {"gelu": (2.0,)})
    runs(tmp_path / "b", {"gelu": (4.0,)}, hardware=replace(H200, name="NVIDIA A100"))
    report = load([tmp_path])
    assert any("2 GPUs" in problem.what for problem in report.problems)
    assert [(group.hardware.name, group.success[2].share) for group in groups(report)] == [
        ("NVIDIA A100", 1.0),
        ("NVIDIA H200", 0.0),
    ]


def test_another_driver_is_told(tmp_path: Path) -> None:
    runs(tmp_path / "a", {"gelu": (2.0,)})
    runs(tmp_path / "b", {"relu": (4.0,)}, hardware=replace(H200, figures={"driver": "590", "CUDA toolkit": "13.0"}))
    assert any("versions of driver: 580.1, 590" in problem.what for problem in load([tmp_path]).problems)

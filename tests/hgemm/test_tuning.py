"""Measuring and tuning with a scripted bench: which member wins, what is left out, what a process that dies costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from scripted_bench import ALGORITHMS, ScriptedBench, file_of, serve, serve_nothing

from cudamaster.cli import main
from cudamaster.core.errors import DeviceError
from cudamaster.devices import cuda
from cudamaster.families import model
from cudamaster.families.config import Config, Schedule
from cudamaster.hgemm import building, tuning
from cudamaster.hgemm.bench import Bench, BenchError
from cudamaster.hgemm.measuring import Job, measure
from cudamaster.hgemm.table import AUTHORITIES, Entry, Mode, read
from cudamaster.tasks.hgemm import Accumulate, Layout, Shape
from cudamaster.vendor import libraries

SMALL, LARGE = Shape(128, 128, 512), Shape(4096, 4096, 512)
Script = dict[str, dict[str, Any]]


def members(shape: Shape, layout: Layout = Layout.TN, number: int = 8) -> list[Config]:
    return model.ranked(layout, Accumulate.FP32, shape)[:number]


def stem(config: Config) -> str:
    return file_of(config).stem


def measured(tmp_path: Path, script: Script, shape: Shape = SMALL) -> tuple[Entry, ScriptedBench, list[Config]]:
    """What is measured of a product, the bench afterwards, and the members that were announced."""
    path = tmp_path / "script.json"
    path.write_text(json.dumps(script), encoding="utf-8")
    bench, announced = ScriptedBench(path), []
    candidates = {layout: [(each, file_of(each)) for each in members(shape, layout)] for layout in Layout}
    job = Job(shape, Accumulate.FP32, candidates, 10.0, 0.0, False, 1)
    return measure(cast(Bench, bench), job, announced.append), bench, announced


def test_the_fastest_wins_in_each_layout(tmp_path: Path) -> None:
    fastest = {layout: members(SMALL, layout)[5] for layout in Layout}
    entry, _, announced = measured(tmp_path, {stem(config): {"us": 15.0} for config in fastest.values()})
    assert entry.chosen == fastest
    assert entry.tried == dict.fromkeys(Layout, 8)
    assert entry.algorithms == dict.fromkeys(Layout, ALGORITHMS)
    assert announced == [*members(SMALL, Layout.NN), *members(SMALL, Layout.TN)]
    assert set(entry.times) == set(Mode)
    for mode in Mode:
        assert set(entry.ratios[mode]) == set(AUTHORITIES) - {"torch"}
        ratio = entry.ratio(mode, AUTHORITIES[-1], Layout.TN)
        assert ratio is not None
        assert ratio.geometric == pytest.approx(2.0, rel=0.01)
        assert ratio.verdict == 1
    assert all(check.passed for check in entry.checks)
    assert {check.contestant for check in entry.checks} >= {"ours_nn", "ours_tn"}


@pytest.mark.parametrize("fault", ["wrong", "inexact", "refuses"])
def test_a_member_that_cannot_do_it_is_left_out(tmp_path: Path, fault: str) -> None:
    """However fast it is."""
    bad, second = members(SMALL)[2:4]
    entry, bench, _ = measured(tmp_path, {stem(bad): {"us": 1.0, fault: True}, stem(second): {"us": 15.0}})
    assert entry.chosen[Layout.TN] == second
    assert entry.tried[Layout.TN] == 7
    assert (fault == "refuses") == (stem(bad) not in [name for name, _ in bench.kernels])


def test_nothing_that_is_right_is_an_error(tmp_path: Path) -> None:
    script = {stem(each): {"wrong": True} for each in members(SMALL, Layout.NN)}
    with pytest.raises(BenchError, match="no member of the family makes 128x128x512"):
        measured(tmp_path, script)
    with pytest.raises(BenchError, match="illegal memory access"):
        measured(tmp_path, {stem(members(SMALL)[0]): {"breaks": True}})


def test_wrong_results_of_zeros_and_ones_are_not_timed(tmp_path: Path) -> None:
    first = members(SMALL)[0]
    with pytest.raises(BenchError, match="not as exact"):
        measured(tmp_path, {stem(first): {"us": 15.0, "wrong_whole": True}})
    _, bench, _ = measured(tmp_path, {stem(first): {"us": 15.0}})
    assert bench.fills[-1] < 0  # general inputs again, before anything is timed


def test_wrong_sums_beyond_2048_are_not_timed(tmp_path: Path) -> None:
    """K has to be large for them; a library's are only noted, since cuBLAS may add up parts in fp16."""
    long = Shape(64, 64, 4096)
    with pytest.raises(BenchError, match="not as exact"):
        measured(tmp_path, {stem(members(long)[0]): {"us": 15.0, "wrong_beyond": True}}, long)
    entry, _, _ = measured(tmp_path, {"cublas_nn": {"wrong_beyond": True}}, long)
    noted = {check.contestant: check.wrong_from_2048 for check in entry.checks}
    assert noted["cublas_nn"] == 2
    assert noted["ours_nn"] == 0


def test_the_band_is_chosen(tmp_path: Path) -> None:
    """Of the fastest members, where there are more tiles than blocks."""
    config = members(LARGE)[1]
    script = {stem(config): {"us": 15.0, "bands": {"-4": 12.0, "16": 13.0}}}
    entry, bench, _ = measured(tmp_path, script, LARGE)
    assert entry.chosen[Layout.TN] == replace(config, band=-4)
    tried = {band for name, band in bench.kernels if name == stem(config)}
    assert tried == set(model.bands(config, LARGE))
    assert entry.tried[Layout.TN] * 2 == len(bench.kernels)
    small = members(SMALL)[0]
    _, bench, _ = measured(tmp_path, {stem(small): {"us": 15.0}})
    assert {band for _, band in bench.kernels} == {small.band}


class Told(tuning.Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.counts: list[tuple[int, int]] = []
        self.failures: list[str] = []

    def started(self, place: Path, about: object, left: int, there: int) -> None:
        """Keep the counts."""
        self.counts.append((left, there))

    def failed(self, shape: Shape, accumulate: Accumulate, why: str) -> None:
        """Keep the reason."""
        self.failures.append(why)

    def said(self, note: str) -> None:
        """Keep the sentence."""
        self.notes.append(note)


Tune = Callable[..., tuple[tuning.Outcome, Told]]


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tune:
    """Tunes shapes by a script, in a process of its own, and adds `built`: the members of each call."""

    def kernels(configs: Sequence[Config], built: Callable[[], None]) -> dict[Config, Path]:
        asked.append(list(configs))
        return {config: file_of(config) for config in configs}

    asked: list[list[Config]] = []
    script = tmp_path / "script.json"
    monkeypatch.setattr(building, "bench", lambda: script)
    monkeypatch.setattr(building, "torch", lambda: "it is not installed")
    monkeypatch.setattr(building, "kernels", kernels)

    def run(*shapes: Shape, told: Script | None = None, by: tuning.Serve = serve) -> tuple[tuning.Outcome, Told]:
        script.write_text(json.dumps(told or {}), encoding="utf-8")
        observer = Told()
        wanted = tuning.Wanted(shapes, [Accumulate.FP32], candidates=3, seconds=10.0)
        return tuning.tune(wanted, tmp_path / "table.jsonl", observer, by), observer

    run.built = asked  # type: ignore[attr-defined]
    return run


def test_what_is_in_the_table_is_left_out(tune: Tune) -> None:
    outcome, told = tune(SMALL)
    assert told.counts == [(1, 0)]
    assert told.notes == ["torch.matmul is left out: it is not installed."]
    assert outcome.seconds.keys() >= {"building", "tuning", "autotuning", "checks", "offline", "device", "server"}
    first = outcome.place.read_bytes()
    outcome, told = tune(SMALL, LARGE)
    assert told.counts == [(1, 1)]
    assert [entry.shape for entry in outcome.entries] == [LARGE]
    assert outcome.place.read_bytes().startswith(first)
    found = read(outcome.place)
    assert [entry.shape for entry in found.entries] == [SMALL, LARGE]
    assert found.header.versions == "driver 570.1, CUDA 12.9, cublas 12.9.1"
    assert set(tune.built[1]) == {each for layout in Layout for each in members(LARGE, layout, 3)}  # type: ignore[attr-defined]


@pytest.mark.parametrize("fault", ["kills", "breaks"])
def test_a_member_that_ends_the_process_is_named_and_left_out(tune: Tune, fault: str) -> None:
    """The process is another one afterwards; the product and those behind it are measured."""
    bad, good = members(SMALL, Layout.TN, 2)
    outcome, told = tune(SMALL, LARGE, told={stem(bad): {fault: True}, stem(good): {"us": 15.0}})
    assert [entry.shape for entry in outcome.entries] == [SMALL, LARGE]
    assert outcome.entries[0].chosen[Layout.TN] == good
    assert outcome.entries[0].tried[Layout.TN] == 2
    why = "the process ended" if fault == "kills" else "an illegal memory access was encountered"
    assert told.notes[1:] == [f"{SMALL}: {bad} is left out: {why}."]
    assert outcome.failures == []


def test_a_product_whose_members_all_fail_is_a_failure(tune: Tune) -> None:
    told = {stem(each): {"kills": True} for each in members(SMALL, Layout.NN, 3)}
    outcome, observer = tune(SMALL, LARGE, told=told)
    assert [entry.shape for entry in outcome.entries] == [LARGE]
    assert outcome.failures == [(SMALL, Accumulate.FP32, "all members failed; the last: the process ended")]
    assert observer.failures == ["all members failed; the last: the process ended"]


def test_a_library_that_fails_is_no_members_fault(tune: Tune) -> None:
    outcome, observer = tune(SMALL, told={"cublas_nn": {"breaks": True}})
    assert outcome.failures == [(SMALL, Accumulate.FP32, "cublas failed")]
    assert not any("left out: cublas" in note for note in observer.notes)


def test_a_process_that_does_not_start_is_said(tune: Tune) -> None:
    with pytest.raises(DeviceError, match="did not start"):
        tune(SMALL, by=serve_nothing)


def tune_command() -> str:
    """What the command says where it cannot begin."""
    found = CliRunner().invoke(main, ["hgemm", "tune", "--shapes", "64x64x64"])
    assert found.exit_code == 4, found.output
    return found.output


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cuda, "find_gpu", lambda: None)
    assert "There is no GPU here" in tune_command()
    monkeypatch.setattr(cuda, "find_gpu", object)
    monkeypatch.setattr(building, "find_nvcc", lambda: None)
    said = tune_command()
    assert "There is no nvcc" in said
    assert "Install the CUDA toolkit" in said
    monkeypatch.setattr(building, "find_nvcc", lambda: tmp_path / "bin/nvcc")
    monkeypatch.setattr(libraries, "find", lambda library, folders: f"{library.name} is not installed")
    said = tune_command()
    assert "cuBLAS is not installed" in said
    assert "nvidia-cublas" in said


def test_a_kernel_that_does_not_build_is_said_with_nvccs_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'kernel.cu(7): error: no such thing' >&2; exit 1\n", encoding="utf-8")
    nvcc.chmod(0o755)
    monkeypatch.setenv("CUDAMASTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(building, "find_nvcc", lambda: nvcc)
    config = Config(Layout.TN, Accumulate.FP32, Schedule.WARPS, 16, 32, 4, 1, 1, 1, 8)
    with pytest.raises(DeviceError, match="error: no such thing"):
        building.kernels([config])


@pytest.mark.gpu
def test_on_this_gpu(tmp_path: Path) -> None:
    """A small product and one of many tiles: all results are right, and the table says what was measured."""
    place = tmp_path / "table.jsonl"
    command = ["hgemm", "tune", "--shapes", "64x64x64", "--shapes", "2048x2048x512", "--seconds", "0.2"]
    found = CliRunner().invoke(main, [*command, "--candidates", "4", "--table", str(place)])
    assert found.exit_code == 0, found.output
    entries = read(place).entries
    assert len(entries) == 4
    for entry in entries:
        assert all(check.passed for check in entry.checks)
        assert set(entry.chosen) == set(Layout)
        assert all(entry.times[mode]["ours_tn"].median_us > 0 for mode in Mode)

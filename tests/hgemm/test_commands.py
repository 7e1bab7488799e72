"""`cudamaster hgemm kernel` and `cudamaster hgemm rank`: what is printed, and whose choice it is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from made_tables import entry, written

from cudamaster.cli import main
from cudamaster.families import model
from cudamaster.families.config import Config
from cudamaster.families.render import FLAGS, render
from cudamaster.tasks.hgemm import Accumulate, Layout, Shape

SHAPE = Shape(512, 256, 4096)


def cudamaster(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["hgemm", *arguments], env={"COLUMNS": "120"})


def members(layout: Layout, accumulate: Accumulate) -> list[Config]:
    return model.ranked(layout, accumulate, SHAPE)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table in runs/hgemm that chose the model's fourth and fifth member; and the working directory above it."""
    monkeypatch.chdir(tmp_path)
    chosen = {
        Layout.TN: replace(members(Layout.TN, Accumulate.FP32)[3], band=-4),
        Layout.NN: members(Layout.NN, Accumulate.FP32)[4],
    }
    path = tmp_path / "runs/hgemm/h200.jsonl"
    written(path, replace(entry(SHAPE), chosen=chosen))
    return path


@pytest.mark.parametrize("named", [True, False])
def test_the_kernel_is_the_one_that_was_measured(place: Path, named: bool) -> None:
    more = ["--table", str(place)] if named else []
    found = cudamaster("kernel", "512x256x4096", *more)
    assert found.exit_code == 0, found.output
    assert found.stdout == render(replace(members(Layout.TN, Accumulate.FP32)[3], band=-4))
    assert "hgemm_tn_fp32_512x256x4096: " in found.stderr
    assert "chosen by measurements on NVIDIA H200 of 2026-11-26" in found.stderr
    assert f"nvcc -std=c++17 {FLAGS} -c" in found.stderr
    found = cudamaster("kernel", "512x256x4096", "--b-layout", "row", *more)
    assert found.stdout == render(members(Layout.NN, Accumulate.FP32)[4])


def test_without_a_measurement_it_is_the_models_first(place: Path) -> None:
    found = cudamaster("kernel", "512x256x4096", "--accumulate", "fp16")
    assert found.stdout == render(members(Layout.TN, Accumulate.FP16)[0])
    assert "chosen by the model" in found.stderr
    assert "the shape is not in runs/hgemm" in found.stderr
    place.unlink()
    found = cudamaster("kernel", "512x256x4096")
    assert found.stdout == render(members(Layout.TN, Accumulate.FP32)[0])
    assert "there is no table in runs/hgemm" in found.stderr


def test_rank_is_the_models_order() -> None:
    found = cudamaster("rank", "512x256x4096", "--number", "6")
    assert found.exit_code == 0, found.output
    lines = [line for line in found.output.splitlines() if " tiles, " in line]
    assert max(map(len, lines)) <= 120
    for line, config in zip(lines, members(Layout.TN, Accumulate.FP32)[:6], strict=True):
        assert str(config) in line
        assert line.split()[0] == f"{model.microseconds(config, SHAPE):.2f}"
    told = json.loads(cudamaster("rank", "512x256x4096", "--accumulate", "fp16", "--number", "3", "--json").output)
    first = members(Layout.TN, Accumulate.FP16)[0]
    assert len(told) == 3
    assert told[0]["config"]["schedule"] == first.schedule
    assert told[0]["modelled"]["microseconds"] == model.microseconds(first, SHAPE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["kernel", "512x256"], "Write M, N and K as MxNxK"),
        (["kernel", "hgemm_nn_fp16_64x64x72"], "Write 64x64x72 --accumulate fp16 --b-layout row."),
        (["rank", "512x256x12"], "K of 512x256x12 is no multiple of 8"),
        (["kernel", "512x256x64", "--table", "/nothing/there.jsonl"], "cannot be read"),
        (["kernel", "512x256x64", "--accumulate", "bf16"], "fp32"),
    ],
)
def test_mistakes_are_said(arguments: list[str], said: str) -> None:
    found = cudamaster(*arguments)
    assert found.exit_code == 2
    assert said in found.output

"""Every figure of the model has a unit, a source and a range, and none stands in the formulas instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cudamaster.modelling as package
from cudamaster.core import resources, sourced
from cudamaster.core.errors import UsageError
from cudamaster.devices.cpu import counting
from cudamaster.modelling import constants, gpu

CONSTANTS = resources.profiles() / "gpu_model.yaml"
PARTS = ("unit", "range", "source", "by")
# Numbers that stand in the code: what no GPU and no measurement decides, or every GPU has alike.
IN_CODE = {
    "launch_time.py": {
        *("WARP", "_LINE_BYTES", "_MATRIX_OPERATIONS", "_HOPPER", "_US_OF_S", "_NS_OF_US"),
    },
    "memory.py": {"SECTOR_BYTES", "_HALVINGS", "_LONGEST"},
    "model.py": {"US_OF_S", "_LEAST_OF_KERNELS", "_SHOWN"},
    "eager.py": set(),
    "metrics.py": set(),
    "counts.py": {"_WAVEFRONT_BYTES"},
    "folding.py": {"VERSION"},
    "units.py": {
        *(
            "ONE_OF",
            "_MOST_TAKEN",
            "_LEAST_TAKEN",
            "_EVENTS_TAKEN",
            "_AS_MANY",
            "_FEWER",
            "_LEAST_UNITS",
            "_LEAST_KNOWN",
            "_OF_STEP",
            "_MOST_BEFORE",
        ),
        *("_MOST_OF_UNIT", "_MOST_UNSURE", "_HALVINGS", "_FIRST", "_LAST"),
    },
    "makeup.py": {"_LEAST"},
}
# Nothing, once, pairs and halves; percent, and nanoseconds of a microsecond where Nsight Compute gives those.
PLAIN_NUMBERS = {0, 1, 2, 100, 1000}


@pytest.mark.parametrize("part", PARTS)
def test_a_constant_without_a_unit_a_source_or_a_range_is_refused(part: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(without(part, "bulk_share", CONSTANTS.read_text()))
    with pytest.raises(UsageError, match=rf"wrong at constants.bulk_share.{part}: "):
        constants.load(tmp_path / "mine.yaml")


@pytest.mark.parametrize("part", PARTS)
def test_so_is_a_figure_of_a_gpu_that_ships(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own file may lack them: `cudamaster limits --gpu-file` measures once, and older versions wrote less."""
    (tmp_path / "gpus").mkdir()
    for key in gpu.known():
        text = (resources.profiles() / "gpus" / f"{key}.yaml").read_text()
        (tmp_path / "gpus" / f"{key}.yaml").write_text(without(part, "alloc_us", text) if key == "l4" else text)
    monkeypatch.setattr(resources, "profiles", lambda: tmp_path)
    assert gpu.load().figures.alloc_us > 0
    with pytest.raises(UsageError, match=rf"wrong at figures.alloc_us.{part}: "):
        gpu.load("l4")
    if part != "source":
        own = gpu.load(str(tmp_path / "gpus" / "l4.yaml"))
        assert own.figures.alloc_us > 0
        assert "alloc_us" not in own.sourced


def without(part: str, name: str, text: str) -> str:
    """A file whose figure of that name lacks something."""
    (entry,) = re.findall(rf"^  {name}: \{{.*?\}}\n", text, re.DOTALL | re.MULTILINE)
    value = {"range": r"\[[^]]*\]", "by": r'"[^"]*"'}.get(part, "[^,}]*")
    lacking, count = re.subn(rf",\s+{part}: {value}", "", entry)
    assert count == 1
    return text.replace(entry, lacking)


@pytest.mark.parametrize("key", gpu.known())
def test_all_figures_of_a_gpu_that_ships_have_them(key: str) -> None:
    """But for what a GPU without clusters has none of."""
    found = gpu.load(key)
    lacking = set(found.sources) - set(found.sourced)
    assert all(name.startswith(("cluster_", "remote_")) for name in lacking)
    assert not lacking or found.compute_capability < (9, 0)
    assert {each.unit for name, each in found.sourced.items() if name.endswith("_us")} <= {"us", "instructions a us"}


@pytest.mark.parametrize("key", gpu.known())
def test_pages_and_files_that_are_named_exist(key: str) -> None:
    every = [*gpu.load(key).sourced.values(), *constants.shipped().sourced.values()]
    root = resources.root()
    for each in every:
        for name in re.findall(r"[\w./]+\.(?:md|yaml|cu|csv\.gz)\b", each.by):
            places = (root / name, root / "results/gpu_model" / name, root / "benchmarks/microbenchmarks" / name)
            assert "AI_kernels" in each.by or any(place.exists() for place in places), each.by


def test_counting_is_told_what_ships() -> None:
    shipped = constants.shipped()
    assert shipped.counting == counting.shipped()
    assert set(shipped.sourced) == set(constants.Constants.model_fields) | set(counting.NAMES)
    told = shipped.counting.rules().split()
    assert told[:3] == ["4", "22", "8"]
    assert all(word.isdigit() for word in told)


def test_a_figure_of_counting_that_is_lacking_or_unknown_is_named(tmp_path: Path) -> None:
    text = CONSTANTS.read_text()
    for name, named in (("least_rome", "least_rome is no figure"), ("zoom", "least_room is missing")):
        (tmp_path / "mine.yaml").write_text(text.replace("  least_room:", f"  {name}:"))
        with pytest.raises(UsageError, match=f"wrong at counting: {named}"):
            constants.load(tmp_path / "mine.yaml")


def test_a_long_line_is_two() -> None:
    short = sourced.line("sms", 132.0, "SMs", "measured", (132, 132), "a counter")
    assert short == '  sms: {value: 132, unit: SMs, range: [132, 132], source: measured, by: "a counter"}'
    long = sourced.line("sms", 132.0, "SMs", "measured", (132, 132), 50 * "so ")
    assert long.count("\n") == 1
    assert sourced.line("x_per_s", 4e12, "bytes", "assumed", None, "") == (
        "  x_per_s: {value: 4.0e+12, unit: bytes, source: assumed}"
    )


@pytest.mark.parametrize("file", IN_CODE)
def test_the_formulas_hold_no_figures(file: str) -> None:
    """A new number in a formula belongs into profiles/, with a unit, a source and a range."""
    tree = ast.parse((Path(package.__file__).parent / file).read_text())
    assert set(named_numbers(tree)) == IN_CODE[file]
    places = {id(each.slice) for each in ast.walk(tree) if isinstance(each, ast.Subscript)}
    found = [
        (number.lineno, number.value)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for number in ast.walk(function)
        if isinstance(number, ast.Constant) and isinstance(number.value, int | float)
        if id(number) not in places and abs(number.value) not in PLAIN_NUMBERS
    ]
    assert not found


def named_numbers(tree: ast.Module) -> Iterator[str]:
    """Names of a module that are given numbers, or sums and products of them."""
    for line in tree.body:
        if isinstance(line, ast.Assign):
            numbers = [each for each in ast.walk(line.value) if isinstance(each, ast.Constant)]
            if numbers and all(isinstance(each.value, int | float) for each in numbers):
                yield from (name.id for name in ast.walk(line) if isinstance(name, ast.Name) and name.id.isupper())

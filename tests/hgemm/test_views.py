"""The page of a table and what the terminal shows of it: their figures are the table's."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from made_tables import H200, entry, grid, written

from cudamaster.cli import main
from cudamaster.core.errors import UsageError
from cudamaster.hgemm import bounds, page, statistics, words
from cudamaster.hgemm.statistics import Contest
from cudamaster.hgemm.table import (
    Check,
    Form,
    Mode,
    Table,
)
from cudamaster.tasks.hgemm import SIZES, Accumulate, Layout, Shape, parse_shape

MISSING = Shape(512, 512, 4096)
AUTOTUNED = Contest(Mode.OFFLINE, Accumulate.FP32, Layout.NN, "cublaslt_autotuned")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Table]:
    """A part of the grid in fp32, without one of its shapes, some won and some lost; one shape in fp16."""
    path = tmp_path_factory.mktemp("table") / "h200.jsonl"
    fp32 = [each for each in grid((64, 512, 4096)) if each.shape != MISSING and each.accumulate is Accumulate.FP32]
    return path, written(path, *fp32, entry(Shape(64, 64, 64), Accumulate.FP16))


@pytest.fixture(scope="module")
def text(measured: tuple[Path, Table]) -> str:
    return page.page(measured[1])


def rows(text: str, section: str) -> list[list[str]]:
    """The cells of all rows of a section's tables."""
    part = text.partition(f'<section id="{section}">')[2].partition("</section>")[0]
    found = re.findall(r"<tr>(.*?)</tr>", part, re.S)
    return [[html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.S)] for row in found]


def cudamaster(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["hgemm", *arguments], env={"COLUMNS": "120"})


def test_the_pages_statistics_are_the_tables(measured: tuple[Path, Table], text: str) -> None:
    found = [row for row in rows(text, "statistics") if len(row) == 12]
    every = statistics.statistics(measured[1].entries)
    assert len(found) == len(every) == 32
    for row, each in zip(found, every, strict=True):
        contest = each.contest
        assert row[:3] == [contest.accumulate.value, contest.layout.value, words.NAMES[contest.authority]]
        assert [int(row[at]) for at in (3, 7, 9, 10, 11)] == [
            each.shapes, each.wins, each.faster, each.slower, each.undecided
        ]  # fmt: skip
        if each.shapes == 1:
            assert (row[6], row[8]) == ("–", f"{each.geometric:.3f} (unknown)")
            continue
        figures = [float(cell.removesuffix(" %")) / 100 for cell in row[4:7]]
        assert figures == pytest.approx([each.speedup.mean, each.speedup.median, each.speedup.deviation], abs=0.0006)
        geometric = [float(number) for number in re.findall(r"[\d.]+", row[8])]
        assert geometric == pytest.approx([each.geometric, each.low, each.high], abs=0.0006)
    best = [row for row in rows(text, "statistics") if len(row) == 7]
    assert float(best[3][4].removesuffix(" %")) / 100 == pytest.approx(every[3].best.mean, abs=0.0006)


def test_the_headline_is_of_the_strongest_library(measured: tuple[Path, Table], text: str) -> None:
    each = statistics.statistic(AUTOTUNED, measured[1].entries)
    headline = re.findall(r'<p class="headline">(.*?)</p>', text, re.S)
    assert len(headline) == 1
    assert f"than autotuned cuBLASLt with B as nn at {each.faster} of 26 shapes" in headline[0]
    assert f"slower at {each.slower}" in headline[0]


def test_every_cell_of_the_maps_tells_its_ratio(measured: tuple[Path, Table], text: str) -> None:
    maps = re.findall(r'<svg [^>]*aria-label="Ratios over the grid.*?</svg>', text)
    assert len(maps) == 8  # modes, sums and layouts
    titles = [re.findall(r"<path [^>]*><title>(.*?)</title></path>", each) for each in maps]
    assert all(len(each) == len(SIZES) ** 3 for each in titles)
    told = {parse_shape(said.partition(":")[0]): said for said in titles[0]}
    assert len(told) == len(SIZES) ** 3
    assert told[MISSING] == "512x512x4096: not measured"
    told = {shape: said for shape, said in told.items() if not said.endswith(": not measured")}
    ratios = {each.shape: ratio for each, ratio in AUTOTUNED.ratios(measured[1].entries)}
    assert told.keys() == ratios.keys()
    for shape, said in told.items():
        assert said.startswith(f"{shape}: {words.ratio_text(ratios[shape].geometric)} (")


def test_losses_are_listed_with_what_bounds_them(measured: tuple[Path, Table], text: str) -> None:
    limits = bounds.limits_of("NVIDIA H200")
    lost = bounds.losses(measured[1].entries, Mode.OFFLINE, Accumulate.FP32, Layout.NN, limits)
    found = [row for row in rows(text, "losses") if row][: len(lost)]
    assert lost
    for row, loss in zip(found, lost, strict=True):
        assert row[0] == str(loss.entry.shape)
        assert row[1] == f"{words.NAMES[loss.authority]} tn"
        assert float(row[5]) == pytest.approx(loss.gap_us, abs=0.006)
        assert row[8] == loss.bound
        assert row[9] == str(loss.config)
    certain = sum(loss.certain for loss in lost)
    assert f"Offline, fp32 sums, ours nn: {certain} of 26 shapes certainly lost" in text


def test_a_page_of_an_unknown_gpu_says_so(tmp_path: Path) -> None:
    about = replace(H200, gpu="Some <b>GPU</b>", form=Form.OPEN)
    slow = replace(
        entry(Shape(100, 64, 64), ratios={"torch": 0.5}),
        checks=(Check("ours_nn", "all", 4096, 0.3, 0.2, 0, 0), Check("ours_tn", "all", 4096, 0.1, 0.2, 1, 0)),
    )
    text = page.page(written(tmp_path / "other.jsonl", slow, about=about))
    assert "limits of this GPU are not known" in text
    assert "<b>GPU" not in text
    assert "Open form" in text
    assert "No shape of the grid" in text
    assert text.count("fp32 sums, ours_") == 2  # both checks failed
    assert rows(text, "losses")[1][6] == "unknown"


def test_nothing_compared_is_no_page(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    with pytest.raises(UsageError, match="Nothing in the table"):
        page.page(written(path))
    shown = cudamaster("show", str(path))
    assert shown.exit_code == 0
    assert "Nothing was compared" in shown.output


def test_show_prints_the_statistics(measured: tuple[Path, Table]) -> None:
    shown = cudamaster("show", str(measured[0]))
    assert shown.exit_code == 0
    assert max(len(line) for line in shown.output.splitlines() if line.startswith(" ")) <= 120
    assert "NVIDIA H200, closed form: 26 shapes; driver 570.124" in shown.output
    each = statistics.statistic(AUTOTUNED, measured[1].entries)
    line = next(line for line in shown.output.splitlines() if re.match(r" fp32 +nn +autotuned cuBLASLt", line))
    assert line.split()[-3:] == [str(each.faster), str(each.slower), str(each.undecided)]
    assert f"{100 * each.speedup.mean:+.1f} %" in line


def test_show_prints_all_about_a_shape(measured: tuple[Path, Table]) -> None:
    shown = cudamaster("show", str(measured[0]), "--shape", "512x64x4096")
    assert shown.exit_code == 0
    of = measured[1].find(Shape(512, 64, 4096))
    ratio = of[0].ratio(Mode.OFFLINE, "cublas", Layout.NN)
    assert ratio is not None
    assert f"{ratio.geometric:.3f} ({ratio.low:.3f} to {ratio.high:.3f})" in shown.output
    assert f"ours_nn: {of[0].chosen[Layout.NN]}; the fastest of 60 configurations" in shown.output
    assert shown.output.count("autotuned cuBLASLt") == 4
    assert "ours_tn: passed" in shown.output
    assert "µs at 975 TFLOP/s of the tensor cores" in shown.output


def test_show_as_json(measured: tuple[Path, Table]) -> None:
    found = json.loads(cudamaster("show", str(measured[0]), "--json").output)
    assert found["headers"][0]["gpu"] == "NVIDIA H200"
    assert len(found["statistics"]) == 32
    assert found["statistics"][3]["contest"] == {
        "mode": "offline", "accumulate": "fp32", "layout": "nn", "authority": "cublaslt_autotuned"
    }  # fmt: skip
    of = json.loads(cudamaster("show", str(measured[0]), "--shape", "64x64x64", "--json").output)
    assert [each["accumulate"] for each in of["entries"]] == ["fp32", "fp16"]


def test_mistakes_are_said(measured: tuple[Path, Table], tmp_path: Path) -> None:
    path = str(measured[0])
    written(tmp_path / "open.jsonl", entry(MISSING), about=replace(H200, form=Form.OPEN))
    for arguments, what in (
        (["show", path, "--shape", "500x500x512"], "The nearest shape in it is 512x512x512"),
        (["show", path, "--shape", "12x12"], "Write M, N and K as MxNxK"),
        (["show", path, str(tmp_path)], "never put together"),
        (["show", str(tmp_path / "none")], "cannot be read"),
        (["report", path, "--html", "/proc/page.html"], "cannot be written"),
    ):
        found = cudamaster(*arguments)
        assert found.exit_code == 2, found.output
        assert what in found.output


def test_report_writes_the_page(measured: tuple[Path, Table], tmp_path: Path) -> None:
    """Whatever a killed writer left at its end is said."""
    path = tmp_path / "killed.jsonl"
    path.write_bytes(b"".join(measured[0].read_bytes().splitlines(keepends=True)[:3])[:-30])
    made = cudamaster("report", str(path), "--html", str(tmp_path / "page.html"))
    assert made.exit_code == 0, made.output
    assert "not written to its end" in made.output
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "not written to its end" in text
    assert "src=" not in text
    assert "http" not in text.replace("http-equiv", "")

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
from cudamaster.families.config import Config, Schedule
from cudamaster.hgemm import bounds, page, pictures, statistics, words
from cudamaster.hgemm.statistics import Contest
from cudamaster.hgemm.table import (
    Check,
    Form,
    Mode,
    Table,
    read,
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
    assert len(found) == len(every) == 48  # three modes, two layouts, four libraries, two ways to add up
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
    assert "On NVIDIA H200, offline, fp32 sums, ours beside autotuned cuBLASLt: with B as nn, " in headline[0]
    assert (
        f"{words.percent(each.speedup.mean)} mean speedup and {each.wins} of 26 shapes won as the paper" in headline[0]
    )
    assert f"mean of the ratio {each.geometric:.3f} ({each.low:.3f} to {each.high:.3f})" in headline[0]
    assert f"certainly faster at {each.faster} shapes and slower at {each.slower}; with B as tn" in headline[0]
    others = re.findall(r'<p class="lead">(.*?)</p>', text, re.S)
    assert [said.partition(" with B")[0] for said in others] == [
        f"{mode}, {sums} sums, ours beside autotuned cuBLASLt:"
        for mode, sums in (("Offline", "fp16"), ("Server", "fp32"), ("Server", "fp16"))
    ]


def test_the_mode_device_is_named_as_ours(measured: tuple[Path, Table], text: str) -> None:
    """It has statistics, and a table of what they are for; the rest is of the paper's modes."""
    assert "<h3>Device, a mode of ours and not the paper&#39;s: " in text
    found = [row for row in rows(text, "statistics") if len(row) == 6]
    shares = statistics.launch_and_kernel("cublaslt_autotuned", measured[1].entries)
    assert len(found) == len(shares) == 4
    for row, share in zip(found, shares, strict=True):
        assert row[:3] == [share.accumulate.value, share.layout.value, str(share.shapes)]
        assert [float(cell) for cell in row[3:]] == pytest.approx([share.offline, share.kernel, share.launch], abs=6e-4)
    for section in ("grid", "size", "losses", "chosen"):
        part = text.partition(f'<section id="{section}">')[2].partition("</section>")[0]
        assert "Offline, fp32 sums" in part or section == "chosen"
        assert not re.search(r"\bdevice\b", part, re.I)
    shown = cudamaster("show", str(measured[0])).output
    assert shown.count("a mode of ours and not the paper's") == 1
    assert "What of the gain over autotuned cuBLASLt is made on the GPU" in shown


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


def test_the_pictures_show_every_schedule() -> None:
    """With what a member has: those whose warps share K have no stages, and a band only where several were tried."""
    large, small = Shape(8192, 8192, 512), Shape(64, 64, 16384)
    tiled = Config(Layout.NN, Accumulate.FP32, Schedule.PINGPONG, 128, 256, 4, 2, 1, 1, -4)
    chosen = {
        large: tiled,
        Shape(64, 128, 512): replace(tiled, schedule=Schedule.WARPS, tile_m=16, tile_n=32, stages=16, cluster_m=1),
        Shape(64, 256, 4096): replace(tiled, schedule=Schedule.COOPERATIVE, split=8, cluster_m=1, band=8),
        small: replace(tiled, schedule=Schedule.THROUGH_L2, split=32, cluster_m=1, band=8),
    }
    made = [replace(entry(shape), chosen={Layout.NN: config}) for shape, config in chosen.items()]
    figure = pictures.choices(made)
    assert figure is not None
    labels = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]
    assert labels[2] == ["4"]  # stages
    assert labels[3] == ["-4"]  # bands
    assert labels[4] == ["1", "8", "32"]  # slices of K
    assert set(labels[5]) == {
        "pingpong\n2x1 cluster", "warps share K", "cooperative,\nK in a cluster", "cooperative,\nK through L2"
    }  # fmt: skip
    figure = pictures.choices(made[1:2])
    assert figure is not None
    assert [axes.get_title() for axes in figure.axes[2:4]] == ["no member that was chosen has any"] * 2


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
    assert (
        cudamaster("show", str(tmp_path / "other.jsonl")).output.count("Check failed: 100x64x64, fp32 sums, ours_") == 2
    )
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
    assert shown.output.count("autotuned cuBLASLt") == 2 * len(Mode)
    assert "fp32 sums, device (ours, not the paper's)" in shown.output
    assert "ours_tn: passed" in shown.output
    assert "µs at 975 TFLOP/s of the tensor cores" in shown.output


def test_show_as_json(measured: tuple[Path, Table]) -> None:
    found = json.loads(cudamaster("show", str(measured[0]), "--json").output)
    assert found["headers"][0]["gpu"] == "NVIDIA H200"
    assert len(found["statistics"]) == 48
    assert found["statistics"][3]["contest"] == {
        "mode": "offline", "accumulate": "fp32", "layout": "nn", "authority": "cublaslt_autotuned"
    }  # fmt: skip
    of = json.loads(cudamaster("show", str(measured[0]), "--shape", "64x64x64", "--json").output)
    assert [each["accumulate"] for each in of["entries"]] == ["fp32", "fp16"]


def test_mistakes_are_said(measured: tuple[Path, Table], tmp_path: Path) -> None:
    path = str(measured[0])
    written(tmp_path / "open.jsonl", entry(MISSING), about=replace(H200, form=Form.OPEN))
    bare = tmp_path / "table"
    written(bare, entry(MISSING))
    for arguments, what in (
        (["show", path, "--shape", "500x500x512"], "The nearest shape in it is 512x512x512"),
        (["show", path, "--shape", "12x12"], "Write M, N and K as MxNxK"),
        (["show", path, str(tmp_path)], "never put together"),
        (["show", str(tmp_path / "none")], "cannot be read"),
        (["report", path, "--html", "/proc/page.html"], "cannot be written"),
        (["report", path, "--html", path], "the name of a table, which the page would replace"),
        (["report", str(bare), "--html", str(bare)], "the name of a table"),
    ):
        found = cudamaster(*arguments)
        assert found.exit_code == 2, found.output
        assert what in found.output
    assert read(bare).entries


@pytest.mark.slow
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

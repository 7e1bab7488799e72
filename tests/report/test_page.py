"""The report's page can be sent to anybody and read anywhere, whatever models wrote into it."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import CPU, report, result
from parsed_pages import Parsed, full_report

from cudamaster.core import resources
from cudamaster.core.errors import UsageError
from cudamaster.core.speed import Change
from cudamaster.core.values import BENCHMARK_PRECISIONS, GpuModel, Precision
from cudamaster.report import page
from cudamaster.report.data import Missing, RunProgress


def test_a_page_is_one_file_that_points_nowhere(whole: Path, read: Parsed) -> None:
    """No address in it but its own places, no style that loads, no script but the one that its policy knows."""
    text = whole.read_text()
    assert read.unclosed == []
    assert read.open == []
    for tag, attributes in read.tags:
        for name in ("src", "href", "action", "srcset", "data", "poster"):
            if value := attributes.get(name):
                assert value.startswith("#") or value == "data:,", (tag, value)
        assert not [name for name in attributes if name.startswith("on")]
    assert not re.search(r"url\((?!#)|@import", text)
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {a["href"] for t, a in read.tags if t == "a"} <= {f"#{name}" for name in ids}
    [script] = read.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text


def test_a_hundred_tasks_take_a_few_megabytes(whole: Path) -> None:
    assert 1e6 < whole.stat().st_size < 8e6


def test_the_headline_comes_first_and_counts(read: Parsed) -> None:
    """In words, and before any number that is in a table."""
    results = full_report().measured
    for precision in BENCHMARK_PRECISIONS:
        speeds = [one.speed for one in results if one.precision is precision]
        sure = [speed is not None and speed.change is Change.FASTER for speed in speeds]
        said = f"{sum(sure)} of {len(sure)} {precision.value.upper()} tasks"
        assert 0 < read.text.index(said) < read.text.index("Pictures")
    assert read.text.index("certainly got faster on NVIDIA H200; the median speedup is") < read.text.index("Pictures")


@pytest.mark.slow
def test_a_task_has_all_that_is_known_of_it() -> None:
    """P with its interval, time over the floor, idea, classes, flags, maker, every size, the kernel and its diff."""
    one = result("fft")
    assert one.best is not None
    assert one.speed is not None
    text = " ".join(Parsed(page.page(report([one]))).text.split())
    for told in (
        one.idea, f"by {one.author}", one.best.command, "+ --use_fast_math", f"{one.speed.interval.low:.2f}",
        f"{one.cases[-1].speedup:.2f}", f"{one.cases[-1].over_floor:.1f}", one.origin, one.hardware.name,
        " → ".join(dict.fromkeys(view.bottleneck.value.removesuffix(" bound") for view in (one.before, one.after)
                                 if view and view.bottleneck)),
        "memcheck: clean", f"${one.cost.dollars:.4f}",
    ):  # fmt: skip
        assert told is not None
        assert " ".join(told.split()) in text
    assert " ".join(one.best.code.split()) in text


@pytest.mark.slow
def test_what_a_stopped_run_had_not_taken_yet_is_no_lost_kernel() -> None:
    """It was judged faster: the baseline stayed the best only where nothing was."""
    one = replace(result("fft"), improved=False)
    assert one.score is not None
    assert one.score > 1
    assert "the baseline stayed the best" in page.page(report([one]))
    assert "the baseline stayed the best" not in page.page(report([replace(one, progress=RunProgress.STOPPED)]))


def test_a_modelled_score_stands_within_the_fence_with_its_error() -> None:
    """In its row, before anything is opened, and in no number of what was measured."""
    one = result("fft", hardware=replace(CPU, modelled=GpuModel("v1", "NVIDIA H200", 1.25)))
    assert one.speed is not None
    before, fenced = page.page(report([one, result("softmax")])).split('<section id="emulated">')
    told = f"{one.speed.interval.low:.2f} to {one.speed.interval.high:.2f}"
    row = fenced.split('data-k="fft_fp32"')[1].split("<details>")[0]
    assert f"<strong>{one.score:.2f}</strong>" in row
    assert told in row
    assert f"P (modelled)</dt><dd>{one.score:.2f}, {told}: gpu-model v1 of an NVIDIA H200" in fenced
    assert "no GPU measured it" in fenced
    assert '<svg class="sizes' not in fenced
    assert "modelled" not in Parsed(before).text
    assert "a number or a picture of what was measured" in fenced


def test_a_page_of_the_cpu_device_alone_speaks_of_nothing_that_is_not_there() -> None:
    """No picture, no number of a GPU, no floor; and tasks of a model's P by that, the largest first."""
    model = replace(CPU, modelled=GpuModel("v1", "NVIDIA H200", 1.25))
    results = [replace(result(task, hardware=model), score=score) for task, score in (("fft", 1.5), ("relu", 2.5))]
    text = page.page(report(results))
    told = Parsed(text).text
    for word in ("picture", "Pictures", "The floor is", "say nothing about a GPU"):
        assert word not in told
    assert text.index('data-k="relu_fp32"') < text.index('data-k="fft_fp32"')


@pytest.mark.slow
def test_a_change_from_next_to_nothing_is_no_percentage() -> None:
    """Beside what it was and is, in plain figures: no +418010 %, no 8.2e-05, and no 1.02e+04."""
    one = result("fft")
    assert one.before is not None
    changes = tuple(replace(change, before=8.2e-5, after=10240.0, relative=4180.1) for change in one.changes)
    text = page.page(report([replace(one, changes=changes)]))
    assert '<td class="n">0.000082</td><td class="n">10,240</td><td class="n">&gt; 10 x</td>' in text
    assert "418010" not in text
    assert "close to nothing" in text


@pytest.mark.slow
def test_small_plots_say_what_they_are_of() -> None:
    """The whole name, which may break at its parts, and P in each precision; a key's line stays with its word."""
    results = [result("high_order_contraction", precision) for precision in BENCHMARK_PRECISIONS]
    text = page.page(report(results))
    (tile,) = re.findall(r'<li><a href="#[^"]+">(.*?)<svg', text)
    assert tile.startswith("<span>high_<wbr>order_<wbr>contraction</span>")
    for one in results:
        assert f"{one.precision.value.upper()} {one.score:.2f}" in tile
    assert len(re.findall(r'<span class="whole"><span class="key', text)) == 2


@pytest.mark.parametrize("sheet", ["report.css", "run.html.j2"])
def test_paper_is_light_and_holds_what_is_folded(sheet: str) -> None:
    """Whatever scheme the screen has; nothing is cut off that one scrolls to see there."""
    text = (resources.package() / "view/pages" / sheet).read_text()
    assert "@media screen and (prefers-color-scheme: dark)" in text
    assert not re.search(r"@media \(prefers-color-scheme", text)
    paper = text.split("@media print")[1]
    assert "::details-content { content-visibility: visible" in paper
    assert "white-space: pre-wrap" in paper
    assert ".wide { overflow: visible" in paper


def test_emulated_results_are_fenced_off() -> None:
    """They stand in a section of their own, which says what they are, and have no speedup, no time and no plot."""
    one = result("fft", hardware=CPU)
    text = page.page(report([one, result("softmax")]))
    before, fenced = text.split('<section id="emulated">')
    fenced = fenced.split('<section id="about">')[0]
    assert "say nothing about a GPU" in fenced
    assert one.idea is not None
    assert one.idea in fenced
    assert '<svg class="sizes' not in fenced
    assert "µs" not in re.sub(r"<pre.*?</pre>", "", fenced, flags=re.DOTALL)  # a kernel's own comments may have times
    for case in one.cases:
        assert f"{case.baseline_us:.1f}" not in fenced
    assert f"{one.score:.2f}" not in Parsed(fenced.split("<details>")[0]).text
    assert "fft" not in Parsed(before).text
    alone = page.page(report([replace(one, score=99.0), result("elu", hardware=CPU)]))
    assert alone.index('data-k="elu_fp32"') < alone.index('data-k="fft_fp32"')  # not in the order of P
    assert "nothing was timed on a GPU" in Parsed(alone).text
    assert "<h2>Pictures</h2>" not in alone
    assert 'id="measured-tasks"' not in alone


def test_what_is_missing_or_damaged_is_said(read: Parsed) -> None:
    text = read.text
    assert "the suite did not get to it" in text
    assert "verdict 12ab is damaged" in text
    assert "1 left something out" in text
    assert "stopped: round 3" in text


@pytest.mark.slow
def test_what_is_missing_stands_with_results_of_its_device() -> None:
    """A task that a suite of the CPU device did not get to is none that a GPU has lost; an unknown device is a GPU."""
    lost = [
        Missing(task, Precision.FP32, "activation", "not reached", emulated)
        for task, emulated in (("gelu", True), ("relu", False), ("selu", None))
    ]
    both = replace(report([result("fft"), result("softmax", hardware=CPU)]), missing=tuple(lost))
    before, fenced = page.page(both).split('<section id="emulated">')
    assert ["relu_fp32" in before, "selu_fp32" in before, "gelu_fp32" in before] == [True, True, False]
    assert 'data-k="gelu_fp32"' in fenced
    assert "1 missing" in fenced


@pytest.mark.slow
def test_what_one_search_of_several_lacks_is_named() -> None:
    """With the search's name, and among its tasks where one filters by it."""
    text = page.page(report([result("fft"), result("softmax"), result("fft", model="deepseek/chat")]))
    (row,) = re.findall(
        r'<tbody [^>]*data-outcome="missing"[^>]*data-setting="([^"]+)">\s*(.+?)</tbody>', text, re.DOTALL
    )
    assert 'data-k="softmax_fp32"' in row[1]
    assert f"({row[0]})" in row[1]
    assert "deepseek/chat" in row[0]


def test_nothing_at_all_is_a_page_too() -> None:
    assert "There are no results." in Parsed(page.page(report([]))).text


def test_what_models_write_is_text(attacked: Path) -> None:
    """In every field: no tag of it is in the page, and what cannot be seen is spelt out."""
    text = attacked.read_text()
    parsed = Parsed(text)
    assert parsed.unclosed == []
    assert len(parsed.scripts) == 1
    assert not [attributes for tag, attributes in parsed.tags if tag == "img" or "onerror" in attributes]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ufeff]", text)
    assert parsed.text.count("document.title='taken'") > 50
    assert "\\x1b[31m\\u202e\\ud800 {{ 7*7 }}" in parsed.text


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone/report.html.*--html"):
        page.write(report([]), tmp_path / "gone" / "report.html")


@pytest.mark.slow
def test_infinite_and_absent_numbers_have_a_place() -> None:
    """What is unknown is a dash or a word, and never a number."""
    one = result("fft")
    assert one.speed is not None
    wide = replace(one.speed, interval=replace(one.speed.interval, low=0.0, high=math.inf))
    bare = [replace(case, interval=None, floor_us=None, candidate_us=None, speedup=None) for case in one.cases]
    cost = replace(one.cost, dollars=None, gpu_seconds=None, minutes=None, prompt_tokens=None)
    text = Parsed(page.page(report([replace(one, speed=wide, cases=tuple(bare), cost=cost)]))).text
    assert "interval unknown" in text
    assert "dollars unknown" in text
    assert not re.search(r"\b(nan|inf|None)\b", text.split("How to read this")[1].split("The kernel")[0])

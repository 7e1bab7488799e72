"""Holds the report's page to what it is for: sent to anybody, read anywhere, whatever models wrote into it."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import browser
import pytest
from made_up import CPU, FULL, authority, hundred, report, result

from cudamaster import resources
from cudamaster.errors import UsageError
from cudamaster.report import drawing, highlighting, page, size_plots
from cudamaster.report.data import Configuration, Missing, Problem, Progress, Report
from cudamaster.speed import Change
from cudamaster.values import GpuModel, Precision, ProfileMode, Status

HOSTILE = (
    "</pre></script><script>document.title='taken'</script><img src=x onerror=alert(1)> &amp; "
    "\x1b[31m\u202e\ud800 {{ 7*7 }}"
)
VOID = {"meta", "link", "br", "img", "input", "line", "circle", "use", "path", "rect", "polyline", "hr"}
needs_browser = pytest.mark.skipif(browser.found() is None, reason="there is no Chromium here (CHROMIUM names one)")


def hostile(value: Any) -> Any:
    """The same with HOSTILE in every text, however deep; names by which results are grouped stay different."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return f"{value}{HOSTILE}"
    if isinstance(value, Mapping):
        return {hostile(key): hostile(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(hostile(part) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{field.name: hostile(getattr(value, field.name)) for field in dataclasses.fields(value)}
        )
    return value


class Parsed(HTMLParser):
    """Tags with their attributes, the text outside of scripts and styles, and tags that were not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.unclosed: list[str] = []
        self.scripts: list[str] = []
        self._texts: list[str] = []
        self.feed(text)
        self.close()
        self.text = "".join(self._texts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """What is opened."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """What holds nothing."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """What is closed, in order or not."""
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.unclosed.append(tag)

    def handle_data(self, data: str) -> None:
        """Text, by where it stands."""
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif not self.open or self.open[-1] != "style":
            self._texts.append(data)


def full_report() -> Report:
    """A hundred measured results, some on the CPU device, a library, something missing and something damaged."""
    emulated = [result(task, hardware=CPU, model="playbook") for task in ("spmv_csr", "fft")]
    measured = [one for one in hundred() if one.name != "relu_bf16"]
    measured[0] = replace(measured[0], progress=Progress.STOPPED, stopped_at="round 3", complete=False)
    return report(
        [*measured, *emulated],
        missing=[Missing("relu", Precision.BF16, "activation", "the suite did not get to it")],
        problems=[Problem("runs/broken", "verdict 12ab is damaged", "Restore it from a copy.")],
        authorities=[authority("fft", "cuFFT"), authority("sorting", "CUB", None)],
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a hundred tasks."""
    path = tmp_path_factory.mktemp("whole") / "report.html"
    page.write(full_report(), path)
    return path


@pytest.fixture(scope="module")
def read(whole: Path) -> Parsed:
    return Parsed(whole.read_text())


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with something hostile in every text that it is made of."""
    small = report(
        [result("fft"), result("softmax", outcome=Status.WRONG), result("fft", hardware=CPU)],
        missing=[Missing("relu", Precision.BF16, "activation", "never run")],
        problems=[Problem("runs/broken", "is damaged", "Restore it.")],
        authorities=[authority("fft", "cuFFT"), authority("sorting", "CUB", None)],
    )
    path = tmp_path_factory.mktemp("attacked") / "report.html"
    page.write(hostile(small), path)
    return path


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    program = browser.found()
    assert program is not None
    with browser.running(program, tmp_path_factory.mktemp("browser")) as running:
        yield running


def opened(
    chromium: browser.Browser, path: Path, width: int = 1400, scheme: str = "light", **kind: bool
) -> browser.Tab:
    tab = chromium.tab()
    tab.show(width, scheme, **kind)
    tab.open(path.as_uri())
    return tab


def shown(tab: browser.Tab) -> list[str]:
    """The names of the measured tasks that are in the table, in order."""
    found: list[str] = tab.ask(
        "[...document.querySelectorAll('#measured-tasks > tbody')].filter(body => !body.hidden)"
        ".map(body => body.rows[0].cells[0].dataset.k)"
    )
    return found


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
    assert 1e6 < whole.stat().st_size < 4e6


def test_the_headline_comes_first_and_counts(read: Parsed) -> None:
    """In words, and before any number that is in a table."""
    results = full_report().measured
    for precision in Precision:
        speeds = [one.speed for one in results if one.precision is precision]
        sure = [speed is not None and speed.change is Change.FASTER for speed in speeds]
        said = f"{sum(sure)} of {len(sure)} {precision.value.upper()} tasks"
        assert 0 < read.text.index(said) < read.text.index("Pictures")
    assert read.text.index("got surely faster on NVIDIA H200; the median speedup is") < read.text.index("Pictures")


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


def test_a_modelled_score_stands_within_the_fence_with_its_error() -> None:
    """And among the details of its task alone."""
    one = result("fft", hardware=replace(CPU, modelled=GpuModel("v1", "NVIDIA H200", 1.25)))
    before, fenced = page.page(report([one, result("softmax")])).split('<section id="emulated">')
    assert f"P (modelled)</dt><dd>{one.score:.2f}; gpu-model v1 of an NVIDIA H200" in fenced
    assert "no GPU measured it" in fenced
    assert '<svg class="sizes' not in fenced
    assert "modelled" not in Parsed(before).text


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
    assert "µs" not in fenced
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


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb or #rgb (WCAG 2)."""
    digits = colour.lstrip("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_a_light_page_has_the_colours_of_the_figures_on_paper() -> None:
    sheet = (resources.package() / "pages" / "report.css").read_text()
    colour = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6})", sheet.split("}")[0]))
    for name in ("ink", "quiet", "line", "blue", "orange", "green", "purple", "yellow", "sky"):
        assert colour[name] == getattr(drawing, name.upper()), name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_can_be_read(scheme: str) -> None:
    """Texts by WCAG's 4.5 on everything that they stand on, lines and marks by 3."""
    sheet = (resources.package() / "pages" / "report.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)[:2]
    colour = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6})", light if scheme == "light" else dark))
    for text in ("ink", "quiet", "link", "add", "del", "warn"):
        for ground in ("page", "pane", "warn-pane"):
            assert contrast(colour[text], colour[ground]) >= 4.5, (text, ground)
    for text in ("ink", "quiet", "word", "type", "number", "text", "directive"):
        for ground in ("page", "pane", "add-pane", "del-pane"):
            assert contrast(colour[text], colour[ground]) >= 4.5, (text, ground)
    for mark in ("blue", "orange", "green", "purple", "yellow", "sky"):
        assert contrast(colour[mark], colour["page"]) >= 3, mark
    for bar in ("blue", "orange", "green"):  # with a number on it
        assert contrast(colour[bar], colour["page"]) >= 4.5, bar


def test_code_keeps_every_character() -> None:
    """Colours add nothing and take nothing away, in code and in differences."""
    one = result("sorting")
    assert one.best is not None
    assert one.baseline is not None
    assert Parsed(str(highlighting.code(one.best.code))).text == one.best.code
    told = str(highlighting.difference(one.diff, one.baseline.code, one.best.code)).replace("</b>", "\n</b>")
    assert Parsed(told).text.rstrip("\n") == one.diff.rstrip("\n")


def test_a_line_of_a_comment_has_its_colour_in_a_difference() -> None:
    """Though the difference shows nothing of where the comment begins."""
    before = "/* one\n two\n three\n four\n five */\nint a;\n"
    diff = "@@ -4,3 +4,3 @@\n four\n- five */\n+ fife */\n int a;"
    told = highlighting.difference(diff, before, before.replace("five", "fife"))
    assert "<i class=c> fife */</i>" in told
    assert "<b> <i class=t>int " in told


def test_a_difference_of_other_texts_is_shown_without_colours() -> None:
    told = str(highlighting.difference("@@ -1 +1 @@\n-int <a>;\n+int b;", "other", "texts"))
    assert told == '<b class="at">@@ -1 +1 @@</b><b class="del">-int &lt;a&gt;;</b><b class="add">+int b;</b>'


def test_plots_of_sizes_are_logarithmic_and_hold_their_intervals() -> None:
    one = result("fft")
    reach = size_plots.Reach(0.5, 8.0)
    assert [reach.part(speedup) for speedup in (0.5, 1.0, 2.0, 8.0, 99.0)] == pytest.approx([0, 0.25, 0.5, 1, 1])
    plot = size_plots.large(one)
    assert plot is not None
    [line] = plot.lines
    assert len(line.dots) == len(one.cases)
    assert all(dot.low is not None and dot.high is not None and dot.high < dot.y < dot.low for dot in line.dots)
    steps = [later.x - dot.x for dot, later in zip(line.dots, line.dots[1:], strict=False)]
    assert steps == pytest.approx([steps[0]] * len(steps))  # sizes are powers of four
    faster = [case.speedup is not None and case.speedup > 1 for case in one.cases]
    assert [dot.y < plot.one for dot in line.dots] == faster
    assert size_plots.small([replace(one, cases=())], reach) is None


def test_one_huge_speedup_does_not_flatten_all_plots() -> None:
    """The common scale leaves the outermost out, and the page says that they lie beyond."""
    results = [result(task) for task in ("fft", "softmax", "spmv_csr", "relu", "gelu", "selu", "elu", "rope")]
    most = max(case.speedup or 0.0 for one in results for case in one.cases)
    [*cases, last] = results[0].cases
    huge = replace(results[0], cases=(*cases, replace(last, speedup=5000.0)))
    assert size_plots.common_reach(results).high <= 1.05 * most
    assert size_plots.common_reach([huge, *results[1:]]).high <= 1.05 * most
    assert size_plots.reach(huge).high > 5000
    beyond = "what lies beyond is drawn at the edge"
    assert beyond in page.page(report([huge, *results[1:]]))
    assert beyond not in page.page(report(results[:1]))


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1400])
def test_nothing_is_requested_and_nothing_overflows(
    chromium: browser.Browser, whole: Path, width: int, scheme: str
) -> None:
    """Neither at first nor with a task opened whole; the scheme is the reader's."""
    tab = opened(chromium, whole, width, scheme)
    assert tab.ask("document.documentElement.scrollWidth") <= width
    tab.ask("document.querySelectorAll('#measured-tasks > tbody:nth-of-type(-n+5) details, #emulated details')"
            ".forEach(details => details.open = true)")  # fmt: skip
    assert tab.ask("document.documentElement.scrollWidth") <= width
    beyond = tab.ask(
        "[...document.querySelectorAll('body *')].filter(it => it.checkVisibility() && !it.closest('.wide, pre, svg')"
        " && it.getBoundingClientRect().right > innerWidth + 0.5).map(it => it.outerHTML.slice(0, 80))"
    )
    assert beyond == []
    assert tab.requests == [whole.as_uri()]
    assert tab.complaints == []
    ground = tab.ask("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", ground))) < 60) == (scheme == "dark")
    label = tab.ask("getComputedStyle(document.querySelector('svg.figure text')).fill")
    assert label == tab.ask("getComputedStyle(document.body).color")


@needs_browser
def test_tables_sort(chromium: browser.Browser, whole: Path) -> None:
    """By a click and by the keyboard, both ways round; what has no value is last in both."""
    measured = full_report().measured
    tab = opened(chromium, whole)
    assert len(shown(tab)) == 100
    by_p = "#measured-tasks > thead th:nth-child(2) button"
    score = {one.name: one.score for one in measured if one.score is not None}
    tab.click(by_p)
    assert [score.get(name) for name in shown(tab)][: len(score)] == sorted(score.values(), reverse=True)
    tab.click(by_p)
    assert [score.get(name) for name in shown(tab)][: len(score)] == sorted(score.values())
    assert tab.ask(f"document.querySelector({json.dumps(by_p)}).parentNode.ariaSort") == "ascending"
    tab.ask("document.querySelector('#measured-tasks > thead th:first-child button').focus()")
    tab.press("Enter")
    assert shown(tab) == sorted(shown(tab))
    # A task's details went with it.
    idea = next(one.idea for one in measured if one.name == shown(tab)[0])
    assert tab.ask("document.querySelector('#measured-tasks > tbody summary').textContent").startswith(idea)
    tab.click("#numbers table th:nth-child(3) button")
    values = tab.ask(
        "[...document.querySelector('#numbers table').tBodies[0].rows].map(row => parseFloat(row.cells[2].textContent))"
    )
    assert values == sorted(values, reverse=True)


@needs_browser
def test_tables_filter(chromium: browser.Browser, whole: Path) -> None:
    """By words and by choices, all of which have to fit; the count says how many are left."""
    tab = opened(chromium, whole)
    tab.click("form.filter input")
    tab.write("spmv_ BF16")
    assert shown(tab)
    assert all(name.startswith("spmv_") and name.endswith("bf16") for name in shown(tab))
    assert tab.ask("document.querySelector('form.filter output').textContent") == f"{len(shown(tab))} of 100"
    tab.ask("document.querySelector('form.filter input').value = ''")
    for name, value in (("precision", "fp32"), ("category", "sparse")):
        tab.ask(
            f"(() => {{ const it = document.querySelector('form.filter select[name={name}]'); it.value = '{value}';"
            " it.dispatchEvent(new Event('input', {bubbles: true})); })()"
        )
    sparse = {one.name for one in full_report().measured if one.category == "sparse" and one.precision == "fp32"}
    assert set(shown(tab)) == sparse
    tab.ask(
        "(() => { for (const it of document.querySelectorAll('form.filter select')) it.value = '';"
        " const it = document.querySelector('select[name=outcome]'); it.value = 'missing';"
        " it.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    assert shown(tab) == ["relu_bf16"]


@needs_browser
def test_a_tile_leads_to_its_task_opened(chromium: browser.Browser, whole: Path) -> None:
    """Also where the filter had put that task out of sight."""
    tab = opened(chromium, whole)
    tab.click("form.filter input")
    tab.write("nothing is called this")
    assert shown(tab) == []
    tab.click(".tiles li:nth-child(7) a")
    tab.wait("document.querySelector('#measured-tasks > tbody:not([hidden])') !== null")
    [name] = shown(tab)
    assert name.startswith(tab.ask("document.querySelector('.tiles li:nth-child(7) span').textContent"))
    assert tab.ask("document.querySelector('#measured-tasks > tbody:not([hidden]) td.more > details').open")
    assert tab.requests[1:] in ([], [tab.ask("location.href")])  # going to a place in the page may be told as one


@needs_browser
def test_without_scripts_everything_is_there(chromium: browser.Browser, whole: Path) -> None:
    """Every task, and its kernel a click away; no filter that would do nothing."""
    tab = opened(chromium, whole, 360, "dark", script=False)
    assert len(shown(tab)) == 100
    assert tab.ask("document.querySelector('form.filter').checkVisibility()") is False
    assert tab.ask("document.querySelectorAll('th button').length") == 0
    tab.click("#measured-tasks td.more > details > summary")
    tab.click("#measured-tasks td.more details details > summary")
    assert tab.ask("document.querySelector('#measured-tasks td.more pre').checkVisibility()")


@needs_browser
def test_hostile_texts_do_nothing_in_a_browser(chromium: browser.Browser, attacked: Path) -> None:
    """And do not widen the page either, though they have no place to break."""
    tab = opened(chromium, attacked, 360)
    tab.ask("document.querySelectorAll('details').forEach(details => details.open = true)")
    assert tab.ask("document.title") != "taken"
    assert tab.ask("document.scripts.length") == 1
    assert tab.ask("document.images.length") == 0
    assert tab.requests == [attacked.as_uri()]
    assert tab.complaints == []
    assert tab.ask("document.documentElement.scrollWidth") <= 360


@needs_browser
def test_settings_can_be_told_apart(chromium: browser.Browser, tmp_path: Path) -> None:
    """Two models and two configurations: each task once in each, to be chosen by name."""
    other = Configuration("cudaforge", 10, 0, ProfileMode.FULL, "cudaforge, N = 10")
    results = [
        result(task, model=model, configuration=configuration)
        for task in ("fft", "softmax")
        for model in ("openai/o4-mini", "deepseek/deepseek-chat")
        for configuration in (FULL, other)
    ]
    page.write(report(results), tmp_path / "report.html")
    tab = opened(chromium, tmp_path / "report.html", 360)
    assert len(shown(tab)) == 8
    names = tab.ask("[...document.querySelectorAll('select[name=setting] option')].map(it => it.textContent)")
    assert len(names) == 5
    tab.ask(
        "(() => { const it = document.querySelector('select[name=setting]'); it.selectedIndex = 2;"
        " it.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    assert sorted(shown(tab)) == ["fft_fp32", "softmax_fp32"]
    assert tab.ask("document.documentElement.scrollWidth") <= 360
    assert tab.ask("document.querySelectorAll('.tiles').length") == 4

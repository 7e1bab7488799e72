"""The report's page in a real browser: it requests nothing, sorts, filters, and its layout holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
from made_up import FULL, report, result
from parsed_pages import full_report

from cudamaster.core.values import ProfileMode
from cudamaster.report import page
from cudamaster.report.data import Configuration

needs_browser = pytest.mark.skipif(browser.found() is None, reason="there is no Chromium here (CHROMIUM names one)")


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


@pytest.mark.slow(but=["360-dark"])
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


@pytest.mark.slow
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

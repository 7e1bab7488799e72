"""The page of kernels shows what the results say: every pair, and nothing that was not measured or written."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import browser
import pytest
from click.testing import CliRunner
from made_up import CPU, H200, benchmark, report, result
from markupsafe import escape
from test_page_in_browser import chromium, needs_browser, opened  # noqa: F401

from cudamaster.cli import main
from cudamaster.cli.report import _write_files
from cudamaster.core.errors import UsageError
from cudamaster.core.values import BENCHMARK_PRECISIONS, Precision, Role, Status
from cudamaster.models.playbook import PlaybookModel
from cudamaster.report import kernels
from cudamaster.report.data import Missing, Report
from cudamaster.report.headline import figure
from cudamaster.report.loading import load

ROOT = Path(__file__).parent.parent.parent
COMMITTED = ROOT / "results" / "h200" / "kernels.html"


@cache
def kept() -> Report:
    """What is committed."""
    return load([ROOT / "results" / "h200"])


def rows(page: str) -> dict[str, str]:
    """The part of each task and precision, by its name."""
    found = re.findall(r'<tbody id="([a-z0-9_]+)"(.*?)</tbody>', page, re.DOTALL)
    return dict(found)


def text(part: str) -> str:
    """A part without its tags, with single blanks."""
    plain = re.sub(r"<[^>]+>", "", part)
    for entity, sign in (("&lt;", "<"), ("&gt;", ">"), ("&#34;", '"'), ("&#39;", "'"), ("&amp;", "&")):
        plain = plain.replace(entity, sign)
    return " ".join(plain.split())


def unstyled(page: str) -> str:
    """What a page says, whatever its style sheet, script and the script's hash are."""
    page = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    return re.sub(r"sha256-[\w+/=]+", "", page)


@pytest.mark.slow
def test_the_committed_page_is_what_the_committed_results_give() -> None:
    """Else: cudamaster report results/h200 --kernels results/h200/kernels.html."""
    assert unstyled(COMMITTED.read_text()) == unstyled(kernels.page(kept()))
    assert COMMITTED.stat().st_size < 5_000_000


def test_every_pair_is_there_with_what_was_measured_of_it() -> None:
    """All hundred, each with P, its interval, both codes, its rounds and its class or that it has none."""
    told = rows(COMMITTED.read_text())
    assert sorted(told) == sorted(f"{task}_{each.value}" for task in benchmark() for each in BENCHMARK_PRECISIONS)
    best = kernels._best(kept())
    for name, part in told.items():
        task, _, precision = name.rpartition("_")
        one = best[task, Precision(precision)]
        said = text(part)
        assert one.score is not None
        assert one.speed is not None
        assert figure(one.score) in said
        assert f"{figure(one.speed.interval.low)} to {figure(one.speed.interval.high)}" in said
        for kernel in (one.baseline, one.best):
            assert kernel is not None
            assert " ".join(kernel.code.split()) in said
            assert kernel.command in said
        begun = [each for each in one.rounds if kernels.begun(each)]
        assert all(each.idea is not None and each.idea in said for each in begun)
        assert part.count("<li ") == len(begun) > 0
        profiled = one.before if one.kept_baseline else one.after
        assert profiled is not None
        assert profiled.bottleneck is not None
        assert profiled.bottleneck.value in said
        assert (kernels.NOT_PROFILED in said) == (one.after is None)


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    """A result with nothing but a kernel and a P, one without a kernel, one that is missing, one of no search."""
    bare = replace(
        result("gelu"), before=None, after=None, rounds=(), idea=None, baseline=None, speed=None, cases=(), notes=()
    )
    wrong = result("relu", outcome=Status.WRONG)
    lost = Missing("spmv_csr", Precision.FP32, "sparse", "its run is damaged", False)
    told = {name: text(part) for name, part in rows(kernels.page(report([bare, wrong], missing=[lost]))).items()}
    assert len(told) == 50
    for words in ("not profiled", "Its rounds are not recorded", "It is not recorded"):
        assert words in told["gelu_fp32"]
    assert " to " not in told["gelu_fp32"].partition("Both kernels")[0]
    assert "Whole call" not in told["gelu_fp32"]
    assert "The best kernel It is not recorded" in told["relu_fp32"]
    assert "its run is damaged" in told["spmv_csr_fp32"]
    assert "There is no result of it" in told["sorting_fp32"]
    assert "not profiled" in told["sorting_fp32"]


def test_reasons_are_the_playbooks_own_and_of_nobody_else() -> None:
    """An idea of the playbook's in a run of a model has no reason of a file's."""
    step = PlaybookModel().steps("gelu", "fp32")[0]
    ours = result("gelu", model="playbook")
    ours = replace(ours, rounds=(replace(ours.rounds[1], idea=step.idea),))
    theirs = replace(ours, models=dict.fromkeys(Role, "openai/x"))
    reason = f'<p class="quiet">{escape(step.why)}</p>'
    assert reason in kernels.page(report([ours]))
    assert reason not in kernels.page(report([theirs]))


def test_of_several_runs_the_fastest_is_shown_and_the_cpu_device_is_none() -> None:
    slow, fast = (replace(result("gelu", repetition=n), score=score) for n, score in ((1, 1.5), (2, 2.5)))
    emulated = replace(result("gelu", hardware=CPU), score=9.0)
    assert 'data-k="2.5"' in kernels.page(report([slow, fast, emulated]))
    with pytest.raises(UsageError, match="measured on a GPU"):
        kernels.page(report([emulated]))


def test_what_models_write_is_text() -> None:
    """Ideas and codes are escaped."""
    one = result("gelu")
    assert one.best is not None
    evil = "<script>alert(1)</script>"
    one = replace(one, idea=evil, best=replace(one.best, code=f"// {evil}\n"), rounds=())
    assert evil not in kernels.page(report([one]))


def test_numbers_are_written_as_people_write_them() -> None:
    assert kernels.plain("1.525e+04 µs in kernels, 2e+03 ones") == "15,250 µs in kernels, 2,000 ones"
    assert kernels.plain("x1e2 17.79 µs") == "x1e2 17.79 µs"
    assert "e+0" not in text(COMMITTED.read_text().partition("<table")[2].partition("<pre")[0])


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    """It writes the page, and says where; --compare has none."""
    place = tmp_path / "kernels.html"
    done = CliRunner().invoke(main, ["report", str(ROOT / "results" / "h200"), "--kernels", str(place)])
    assert done.exit_code == 0, done.output
    assert f"Wrote {place}" in done.output
    assert len(rows(place.read_text())) == 100
    with pytest.raises(UsageError):
        _write_files(
            report([replace(result("gelu", hardware=CPU), score=9.0)]),
            tmp_path / "a.html",
            place,
            None,
            None,
            quiet=True,
        )
    assert not (tmp_path / "a.html").exists(), "what is refused is refused before anything is written"
    refused = CliRunner().invoke(main, ["report", "a", "b", "--compare", "--kernels", str(place)])
    assert refused.exit_code == 2


@pytest.mark.slow(but=["360-dark"])
@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 480, 1400])
def test_it_is_whole_at_any_width(chromium: browser.Browser, width: int, scheme: str) -> None:  # noqa: F811
    """Nothing is asked for or overflows, with rows open too; codes stand side by side where there is room."""
    tab = opened(chromium, COMMITTED, width, scheme)
    tab.ask("document.querySelectorAll('tbody:nth-of-type(-n+6) details').forEach(details => details.open = true)")
    assert tab.ask("document.documentElement.scrollWidth") <= width
    beyond = tab.ask(
        "[...document.querySelectorAll('body *')].filter(it => it.checkVisibility() && !it.closest('.wide, pre')"
        " && it.getBoundingClientRect().right > innerWidth + 0.5).map(it => it.outerHTML.slice(0, 80))"
    )
    assert beyond == []
    assert tab.requests == [COMMITTED.as_uri()]
    assert tab.complaints == []
    tops = tab.ask(
        "[...document.querySelectorAll('.pair > div')].slice(0, 2).map(it => it.getBoundingClientRect().top)"
    )
    assert (tops[0] == tops[1]) == (width == 1400)
    tab.click("form.filter input")
    tab.write("sorting")
    assert tab.ask("document.querySelector('form.filter output').textContent") == "2 of 100"
    assert H200.name in tab.ask("document.title")

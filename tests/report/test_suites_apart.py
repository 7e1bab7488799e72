"""Results of the benchmark, of hgemm and of hgemm_open are in no table and no number together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from made_up import result

from cudamaster.core.values import Precision
from cudamaster.report import headline, page, settings, tables
from cudamaster.report.data import Report
from cudamaster.report.numbers import groups
from cudamaster.tasks import cards

SUITES = ("", "hgemm", "hgemm_open")


def made() -> Report:
    """One measured result of each."""
    of_fifty = result("gelu", Precision.BF16)
    products = [
        replace(
            of_fifty,
            task=f"{suite}_tn_fp32_64x64x64",
            category=cards.load(f"{suite}_tn_fp32_64x64x64").category,
            precision=Precision.FP16,
        )
        for suite in SUITES[1:]
    ]
    return Report("", {}, (), (of_fifty, *products), benchmark={"gelu": "activation"})


def test_each_suite_is_a_group() -> None:
    for pooled in (True, False):
        found = groups(made(), pooled=pooled)
        assert sorted((group.suite, group.tasks, group.of_benchmark) for group in found) == [
            (suite, 1, 1) for suite in SUITES
        ]
        assert not any(group.missing for group in found)
        assert len({settings.key(group) for group in found}) == 3


def test_each_suite_has_tables_and_a_sentence() -> None:
    whole = made()
    for found in (tables.overview(whole), tables.tasks(whole)):
        assert all(len(table.rows) == 1 for table in found)
        for ending in ("H200", "H200, hgemm", "H200, hgemm_open"):
            assert any(table.title.endswith(ending) for table in found)
    said = " ".join(headline.headline(whole))
    for suite in ("1 hgemm task ", "1 hgemm_open task ", "1 BF16 task "):
        assert f"of {suite}" in said


def test_the_page_has_all_three(tmp_path: Path) -> None:
    page.write(made(), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    for task in ("gelu", "hgemm_tn_fp32_64x64x64", "hgemm_open_tn_fp32_64x64x64"):
        assert task in text

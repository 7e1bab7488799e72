"""Results of the benchmark, of hgemm, of hgemm_open and of one's own suite are in no table and no number together."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import result

from cudamaster.core.errors import UsageError
from cudamaster.core.values import Precision
from cudamaster.report import export, headline, loading, one_suite, page, settings, tables
from cudamaster.report.data import Report
from cudamaster.report.numbers import groups
from cudamaster.tasks import cards

SUITES = ("", "hgemm", "hgemm_open", "mine")


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
        for suite in SUITES[1:3]
    ]
    # A task of the same name as one of the fifty, found by its path.
    own = replace(of_fifty, suite="mine")
    return Report("", {}, (), (of_fifty, *products, own), benchmark={"gelu": "activation"})


def test_each_suite_is_a_group() -> None:
    for pooled in (True, False):
        found = groups(made(), pooled=pooled)
        assert sorted((group.suite, group.tasks, group.of_benchmark) for group in found) == [
            (suite, 1, 1) for suite in SUITES
        ]
        assert not any(group.missing for group in found)
        assert len({settings.key(group) for group in found}) == 4


def test_each_suite_has_tables_and_a_sentence() -> None:
    whole = made()
    for found in (tables.overview(whole), tables.tasks(whole)):
        assert all(len(table.rows) == 1 for table in found)
        for ending in ("H200", "H200, hgemm", "H200, hgemm_open", "H200, mine"):
            assert any(table.title.endswith(ending) for table in found)
    said = " ".join(headline.headline(whole))
    for suite in SUITES[1:]:
        assert f"of 1 task of the suite {suite} " in said
    assert "of 1 BF16 task " in said


def test_the_page_has_all(tmp_path: Path) -> None:
    page.write(made(), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    for task in ("gelu", "hgemm_tn_fp32_64x64x64", "hgemm_open_tn_fp32_64x64x64"):
        assert task in text


def test_a_report_on_one_of_them() -> None:
    for suite in ("MSKernelBench", *SUITES[1:]):
        (group,) = groups(one_suite.only(made(), suite))
        assert group.suite == ("" if suite == "MSKernelBench" else suite)
    with pytest.raises(UsageError) as refused:
        one_suite.only(made(), "other")
    assert "MSKernelBench, hgemm, hgemm_open, mine" in refused.value.fix


def test_two_folders_whose_suites_have_one_name_are_apart(tmp_path: Path) -> None:
    """As any two suites are; each is found by its folder, or by what it is called then."""
    mine = made().results[-1]
    others = [replace(mine, suite="mine", folder=f"{tmp_path}/{name}") for name in ("one", "two")]
    for results, suites in ((others, [f"mine in {tmp_path}/one", f"mine in {tmp_path}/two"]), (others[:1], ["mine"])):
        file = tmp_path / "report.json"
        file.write_text(json.dumps(export.as_json(replace(made(), results=tuple(results)))))
        loaded = loading.load([file])
        assert [(group.suite, group.tasks, len(group.missing)) for group in groups(loaded)] == [
            (suite, 1, 0) for suite in suites
        ]
        (tmp_path / "one" / "tasks").mkdir(parents=True, exist_ok=True)
        (tmp_path / "one" / "suite.yaml").write_text("name: mine\n")
        for given in (str(tmp_path / "one"), suites[0]):
            (found,) = one_suite.only(loaded, given).results
            assert found.folder == f"{tmp_path}/one"

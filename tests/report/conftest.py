"""The pages that tests of the report look at."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_once import made_once
from made_up import CPU, authority, report, result
from parsed_pages import Parsed, full_report, hostile

from cudamaster.core.values import Precision, Status
from cudamaster.report import page
from cudamaster.report.data import Missing, Problem


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a hundred tasks."""
    folder = made_once(tmp_path_factory, "whole", lambda folder: page.write(full_report(), folder / "report.html"))
    return folder / "report.html"


@pytest.fixture(scope="session")
def read(whole: Path) -> Parsed:
    return Parsed(whole.read_text())


@pytest.fixture(scope="session")
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

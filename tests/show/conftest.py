"""The runs that tests of `cudamaster show` look at."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from show_runs import SCRIPT, run_of

from cudamaster.runs.reading import read
from cudamaster.runs.summary import RunSummary


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a round of every kind; not to be changed."""
    return run_of(tmp_path_factory.mktemp("runs") / "run", SCRIPT)


@pytest.fixture
def finished(kept: Path, tmp_path: Path) -> Path:
    """A copy of that run, to be damaged."""
    shutil.copytree(kept, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="session")
def summary(kept: Path) -> RunSummary:
    return read(kept)

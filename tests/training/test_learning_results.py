"""The page on learning says what the kept runs say."""

from __future__ import annotations

import shutil
from pathlib import Path

import learning_report

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "results" / "learning"
SEEDS = (0, 1, 2)


def test_tables_and_picture_are_those_of_the_kept_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "learning.md").read_text(encoding="utf-8")
    for made in (learning_report.table(KEPT, SEEDS), learning_report.choices(KEPT, SEEDS)):
        assert made in page
    assert (KEPT / "again.txt").read_text(encoding="utf-8") in page
    for seed in SEEDS:
        for run in ("", "faster"):
            at = Path(run) / f"contrastive_{seed}" / "steps.jsonl"
            (tmp_path / at).parent.mkdir(parents=True)
            shutil.copy(KEPT / at, tmp_path / at)
    learning_report.picture(tmp_path, SEEDS)
    assert (tmp_path / "learning.svg").read_bytes() == (KEPT / "learning.svg").read_bytes()

"""The table in results/hgemm, and what docs/hgemm.md says of it."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path

from cudamaster.hgemm.table import AUTHORITIES, Mode, Table, read
from cudamaster.tasks.hgemm import GRID, Accumulate, Layout

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/hgemm.md").read_text(encoding="utf-8")


@cache
def table() -> Table:
    """Read where a test needs it: each test process has this file."""
    return read(ROOT / "results/hgemm/nvidia_h100_80gb_hbm3_closed.jsonl")


def test_everything_in_it_is_right() -> None:
    assert all(check.passed for entry in table().entries for check in entry.checks)
    assert not any(check.wrong_from_2048 for entry in table().entries for check in entry.checks)
    assert {entry.shape for entry in table().entries} <= set(GRID)
    assert len({entry.shape for entry in table().entries}) >= 100


def geometric(mode: Mode, accumulate: Accumulate, authority: str) -> list[float]:
    found = [entry.ratio(mode, authority, Layout.TN) for entry in table().entries if entry.accumulate is accumulate]
    return [ratio.geometric for ratio in found if ratio is not None]


def test_the_page_says_what_it_holds() -> None:
    rows = re.findall(r"^\| (offline|server|device), (fp32|fp16) sums \|(.+)\|$", PAGE, re.MULTILINE)
    assert len(rows) == 6
    for mode, accumulate, rest in rows:
        cells = [cell.strip() for cell in rest.split("|")]
        for authority, cell in zip(AUTHORITIES, cells, strict=False):
            ratios = geometric(Mode(mode), Accumulate(accumulate), authority)
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            assert cell == f"{mean:.2f}", (mode, accumulate, authority)
        last = geometric(Mode(mode), Accumulate(accumulate), AUTHORITIES[-1])
        assert cells[-1] == f"{sum(ratio > 1 for ratio in last)} of {len(last)}"

"""Numbers as people write them."""

from __future__ import annotations

import math


def plain(value: float | None) -> str:
    """A number as people write it, to four digits: no exponent for a thousand or for a thousandth."""
    if value is None or not math.isfinite(value):
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 1e-4 or value == 0:
        return f"{value:.4g}"
    return f"{value:.{1 - math.floor(math.log10(abs(value)))}f}"

"""Counts what eager PyTorch does in a call of a problem at some sizes, without making the call on a device.

    python count.py RESULT WIRING CASES

WIRING is as for worker.py; CASES is a JSON list of sizes by name. RESULT gets a JSON list with the operators of each
case, or why there are none.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.extend(json.loads(sys.argv[2])["path"])

import torch
from counting import counted
from wiring import Wired, types


def main() -> None:
    """Count all cases: on the meta device, which has no memory, or where a module does not run there, on the CPU."""
    result, wiring, cases = sys.argv[1:]
    told: list[object] = []
    for sizes in json.loads(cases):
        why = ""
        for device in ("meta", "cpu"):
            try:
                told.append(_operators(json.loads(wiring), sizes, device))
                break
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
        else:
            told.append(why)
    Path(result).write_text(json.dumps(told), encoding="utf-8")


def _operators(wiring: dict[str, object], sizes: dict[str, float], device: str) -> list[dict[str, object]] | str:
    wired = Wired({**wiring, "device": device})
    wired.sizes = sizes
    wired.take({
        each["name"]: torch.ones(wired.shape(each), dtype=types(each), device=device)
        for each in wired.buffers
        if not each["output"]
    })  # fmt: skip
    found = counted(wired.model, wired.inputs)
    return found.unknown or [vars(each) for each in found.operators]


if __name__ == "__main__":
    main()

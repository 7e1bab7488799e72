"""benchmarks/torch_operators.py: the table of what was timed, and that what is kept is whole. PyTorch is not needed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch_operators
import torch_plot

from cudamaster.core.values import BENCHMARK_PRECISIONS
from cudamaster.tasks import cards

KEPT = Path(__file__).parents[2] / "results" / "h100" / "torch.json"


def timed(kind: str, device_us: float) -> dict[str, Any]:
    times = {"median": device_us, "low": device_us, "high": device_us}
    whole = {name: value + 10 for name, value in times.items()}
    return {"kind": kind, "error": 1e-7, "device_us": times, "whole_us": whole}


def test_the_table_sets_the_fastest_operator_that_does_the_task_beside_ours(tmp_path: Path) -> None:
    """What does another task, what is wrong and what was refused is no bar; libraries have columns of their own."""
    contenders = {
        "ours": timed("ours", 20.0),
        "cuBLAS": timed("library", 10.0),
        "cuBLASLt": {"kind": "library", "error": 0.5, "wrong": True},
        "slow": timed("torch", 50.0),
        "fast": timed("torch", 40.0),
        "causal": timed("note", 1.0),
        "wrong": {"kind": "torch", "error": 0.5, "wrong": True},
        "refused": {"kind": "torch", "refused": "No available kernel."},
    }
    case = {"task": "matrix_mul", "precision": "fp32", "case": "M=8", "contenders": contenders}
    about = {"device": "a GPU", "torch": "2", "date": "2026-11-24"}
    path = tmp_path / "torch.json"
    path.write_text(
        json.dumps({"about": about, "cases": [case, {**case, "contenders": {"slow": timed("torch", 5.0)}}]})
    )
    *_, row, bare = torch_operators.table(path).splitlines()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["matrix_mul fp32", "M=8", "20.0 (30.0)", "10.0 (20.0)", "wrong", "40.0 (50.0)", "fast",
                     "0.50", "-", "2.00"]  # fmt: skip
    assert bare.endswith("| - | - | - | 5.0 (15.0) | slow | - | - | - |")


def test_times_over_a_size_are_drawn(tmp_path: Path) -> None:
    """A panel for each task, precision and other size; a task without the size is named."""
    cases = [
        {"task": "top_k", "precision": "bf16", "case": f"N={n},k={k}", "contenders": {"ours": timed("ours", n / 100)}}
        for k in (32, 64)
        for n in (1024, 65536)
    ]
    (tmp_path / "sizes.json").write_text(json.dumps({"about": {}, "cases": cases}))
    torch_plot.plot(tmp_path / "sizes.json", tmp_path / "sizes.svg")
    drawn = (tmp_path / "sizes.svg").read_text("utf-8")
    assert all(text in drawn for text in ("top_k, bf16, k=32", "top_k, bf16, k=64", "2^10", "µs on the device"))
    (tmp_path / "sizes.json").write_text(json.dumps({"about": {}, "cases": [{**cases[0], "case": "M=8"}]}))
    with pytest.raises(SystemExit, match="top_k has no size N"):
        torch_plot.plot(tmp_path / "sizes.json", tmp_path / "sizes.svg")


def test_what_is_kept_has_our_kernel_and_an_operator_for_every_timed_case() -> None:
    """Ours is right in all of them, and so is at least one of PyTorch's operators."""
    saved = json.loads(KEPT.read_text("utf-8"))
    kept = {(one["task"], one["precision"], one["case"]): one for one in saved["cases"]}
    wanted = [
        (card.name, precision.value, case.label)
        for card in map(cards.load, torch_operators.TASKS)
        for precision in BENCHMARK_PRECISIONS
        for case in card.cases
        if case.sweep
    ]
    assert sorted(kept) == sorted(wanted)
    for case in kept.values():
        assert "device_us" in case["contenders"]["ours"], case
        assert torch_operators.fastest(case) is not None, case

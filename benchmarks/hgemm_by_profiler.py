"""A second way to the figures of `cudamaster hgemm tune`: kernels' times by the profiler of PyTorch (CUPTI).

    python benchmarks/hgemm_by_profiler.py results/hgemm/nvidia_h100_80gb_hbm3_closed.jsonl --shapes 12

Calls are made one at a time, with the GPU idle between them, so that neither the host's part of a call nor the overlap
of a launch with the one before counts. For each call two times are taken of what CUPTI reports: the sum of its kernels'
durations, and the span from the start of the first to the end of the last, which has the gaps between them. Prints for
some shapes of a table the time of torch.matmul over ours by both, and by the table's mode `device`. Needs a GPU of the
table's kind, nvcc and PyTorch.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import statistics
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from cudamaster.hgemm import building
from cudamaster.hgemm.table import AUTHORITIES, OURS, Accumulate, Entry, Layout, Mode, read

_CALLS = 20
_WAYS = ("sum", "span")
_TORCH = AUTHORITIES[0]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--shapes", type=int, default=12, help="how many, evenly over the table")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    given = parser.parse_args()
    ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    entries = [entry for entry in read(given.table).entries if entry.accumulate is Accumulate.FP32]
    step = max(len(entries) // given.shapes, 1)
    rows = []
    print(f"{'shape':>20} {'sum of kernels':>24} {'span of the call':>24} {'by the table':>13}")
    print(f"{'':>20} {'torch, ours (µs), ratio':>24} {'torch, ours (µs), ratio':>24} {'device, ratio':>13}")
    for entry in entries[step // 2 :: step]:
        theirs, ours = _by_profiler(entry)
        row: dict[str, str | float] = {"shape": str(entry.shape)}
        times = entry.times[Mode.DEVICE]
        table = times[f"{_TORCH}_tn"].median_us / times[f"{OURS}_tn"].median_us
        print(f"{entry.shape!s:>20}", end="")
        for way in _WAYS:
            ratio = theirs[way] / ours[way]
            row |= {f"torch_{way}_us": theirs[way], f"ours_{way}_us": ours[way], f"{way}_ratio": ratio}
            print(f" {theirs[way]:8.1f} {ours[way]:8.1f} {ratio:6.3f}", end="")
        rows.append(row | {"table_ratio": table})
        print(f" {table:13.3f}", flush=True)
    for way in (*_WAYS, "table"):
        logarithms = [math.log(float(row[f"{way}_ratio"])) for row in rows]
        print(f"geometric mean by the {way}: {math.exp(statistics.fmean(logarithms)):.3f}")
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _by_profiler(entry: Entry) -> tuple[dict[str, float], dict[str, float]]:
    """Median microseconds of a call of torch.matmul and of ours, B column-major, by each of `_WAYS`."""
    config = entry.chosen[Layout.TN]
    shape = entry.shape
    sizes = [getattr(shape, name) for name in ("m", "n", "k")]
    m, n, k = sizes
    a = torch.rand(m, k, device="cuda", dtype=torch.float16) * 2 - 1
    b = torch.rand(n, k, device="cuda", dtype=torch.float16) * 2 - 1
    c = torch.empty(m, n, device="cuda", dtype=torch.float16)
    library = ctypes.CDLL(str(building.kernels([config])[config]))
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, c)]

    def ours() -> None:
        if library.hgemm_with_band(*pointers, *sizes, config.band):
            raise RuntimeError(f"{config} refuses {shape}")

    def theirs() -> None:
        torch.matmul(a, b.t(), out=c)

    theirs()
    expected = c.clone()
    ours()
    torch.cuda.synchronize()
    torch.testing.assert_close(c, expected, rtol=2e-3, atol=0.13)
    return _median(theirs), _median(ours)


def _median(call: object) -> dict[str, float]:
    assert callable(call)
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(_CALLS):
            call()
            torch.cuda.synchronize()
    kernels = [event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    each = len(kernels) // _CALLS  # a call may launch several
    if not each or len(kernels) % _CALLS:
        raise RuntimeError(f"{len(kernels)} kernels of {_CALLS} calls")
    kernels.sort(key=lambda event: event.time_range.start)
    calls = [[event.time_range for event in kernels[i * each : (i + 1) * each]] for i in range(_CALLS)]
    return {
        "sum": statistics.median(sum(kernel.elapsed_us() for kernel in call) for call in calls),
        "span": statistics.median(call[-1].end - call[0].start for call in calls),
    }


if __name__ == "__main__":
    main()

"""How benchmarks/torch_operators.py checks and times all that can do a case. Without a GPU it only checks."""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch_contenders import (
    ALLOWED,
    DRAWN,
    NOTE,
    ORDERS,
    POWERS_ALLOWED,
    Contender,
    empty_kernel,
    error_of,
    inputs,
    operators,
    reference,
    shared_objects,
)

from cudamaster.core.values import Precision
from cudamaster.making import wishes
from cudamaster.tasks import cards
from cudamaster.tasks.cards import Case, TaskCard

WARMUPS = 3
BUSY_CYCLES = 600_000  # of the device while the host launches: 0.3 ms


class Clock:
    """Times of one call, in microseconds, with cold caches."""

    def __init__(self) -> None:
        cache = torch.cuda.get_device_properties(0).L2_cache_size
        self.scratch = torch.zeros(2 * cache // 4, dtype=torch.int32, device="cuda")
        self.sink = torch.zeros((), dtype=torch.int32, device="cuda")
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def flush(self) -> None:
        """Fill the L2 cache with other data, by reading it."""
        torch.amax(self.scratch, dim=0, out=self.sink)

    def whole(self, contender: Contender) -> float:
        """By the host's clock: the device is idle before, and when it stops."""
        idle, call = torch.cuda.synchronize, contender.call
        if contender.before is not None:
            contender.before()
        self.flush()
        idle()
        start = time.perf_counter_ns()
        call()
        idle()
        return (time.perf_counter_ns() - start) / 1e3

    def device(self, contender: Contender) -> float:
        """By events."""
        if contender.before is not None:
            contender.before()
        self.flush()
        torch.cuda._sleep(BUSY_CYCLES)
        self.begin.record()
        contender.call()
        self.end.record()
        torch.cuda.synchronize()
        return float(self.begin.elapsed_time(self.end)) * 1e3


def spread(times: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(times, n=4)
    return {"median": round(middle, 3), "low": round(low, 3), "high": round(high, 3)}


def timed(contenders: Sequence[Contender], clock: Clock, calls: int) -> dict[str, dict[str, Any]]:
    """Turns of all contenders."""
    whole: dict[str, list[float]] = {one.name: [] for one in contenders}
    device: dict[str, list[float]] = {one.name: [] for one in contenders}
    order = list(contenders)
    for turn in range(WARMUPS + calls):
        random.shuffle(order)
        for one in order:
            with one.chosen():
                by_host, by_events = clock.whole(one), clock.device(one)
            if turn >= WARMUPS:
                whole[one.name].append(by_host)
                device[one.name].append(by_events)
    return {
        one.name: {"whole_us": spread(whole[one.name]), "device_us": spread(device[one.name])} for one in contenders
    }


def one_case(
    folder: Path, card: TaskCard, precision: Precision, case: Case, clock: Clock | None, calls: int, order: str = DRAWN
) -> dict[str, Any]:
    """Check and time all that can do a case, and an empty kernel beside them."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = {name: int(value) for name, value in case.values.items()}
    tensors = inputs(card, precision, case, device, order)
    output = tensors[next(p.name for p in card.parameters if p.role in ("output", "inout"))]
    rows, expected = reference(card.name, tensors, sizes)
    allowed = (POWERS_ALLOWED if card.name == "matrix_power" else ALLOWED)[precision]
    found: dict[str, dict[str, Any]] = {}
    right = []
    # Contenders take a copy of what is sorted in place, before the check of the first poisons it.
    linked = shared_objects(folder, card, precision, tensors, sizes) if device == "cuda" else ()
    for contender in [*linked, *operators(card.name, tensors, sizes)]:
        try:
            error = error_of(contender, output, rows, expected)
        except (RuntimeError, TypeError, NotImplementedError) as refusal:
            found[contender.name] = {"kind": contender.kind, "refused": str(refusal).splitlines()[0][:200]}
            continue
        found[contender.name] = {"kind": contender.kind, "error": float(f"{error:.2e}")}
        if contender.kind == NOTE or error <= allowed:  # a NaN is not
            right.append(contender)
        else:
            found[contender.name]["wrong"] = True
    if clock is not None:
        empty = empty_kernel()
        found[empty.name] = {"kind": empty.kind}
        for name, times in timed([*right, empty], clock, calls).items():
            found[name].update(times)
    label = case.label if order == DRAWN else f"{case.label}, {order}"
    return {"task": card.name, "precision": precision.value, "case": label, "contenders": found}


def line(case: dict[str, Any]) -> str:
    """One case for a person: all that was timed, and what was not."""
    parts = []
    for name, one in case["contenders"].items():
        if "device_us" in one:
            parts.append(f"{name} {one['whole_us']['median']:.1f}/{one['device_us']['median']:.1f}")
        else:
            parts.append(f"{name} {'refused' if 'refused' in one else 'wrong' if 'wrong' in one else 'right'}")
    return f"{case['task']} {case['precision']} {case['case']}: " + "; ".join(parts)


def run(
    folder: Path,
    tasks: Sequence[str],
    precisions: Sequence[Precision],
    save: Path | None,
    calls: int,
    sizes: Sequence[str] = (),
    orders: Sequence[str] = (),
) -> None:
    """All timed cases, or those of `sizes`, in each order; the file is written after each task, whose others stay."""
    if unknown := set(orders) - ORDERS.keys():
        sys.exit(f"--order {min(unknown)} is not known. Known are {', '.join(ORDERS)}.")
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(int(time.time()))
    clock = Clock() if torch.cuda.is_available() else None
    about = {"device": torch.cuda.get_device_name() if clock else "CPU", "torch": torch.__version__,
             "cuDNN": torch.backends.cudnn.version(), "date": time.strftime("%Y-%m-%d"), "calls": calls}  # fmt: skip
    kept = json.loads(save.read_text("utf-8"))["cases"] if save is not None and save.exists() else []
    for task in tasks:
        card = cards.load(task)
        for precision in precisions:
            start = time.monotonic()
            cases = []
            for case in card.timed_at([wishes.case("--case", one) for one in sizes]).cases if sizes else card.cases:
                for order in (orders or [DRAWN]) if case.sweep else ():
                    cases.append(one_case(folder, card, precision, case, clock, calls, order))
                    print(line(cases[-1]), flush=True)
            print(f"  {task} {precision.value}: {time.monotonic() - start:.1f} s", flush=True)
            kept = [one for one in kept if (one["task"], one["precision"]) != (task, precision.value)] + cases
            if save is not None:
                save.write_text(json.dumps({"about": about, "cases": kept}, indent=1) + "\n", encoding="utf-8")

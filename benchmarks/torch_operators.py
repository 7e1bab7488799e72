"""PyTorch's operators, vendors' libraries and our kernels beside each other: one process, the same inputs, one clock.

    python benchmarks/torch_operators.py build FOLDER [TASK...]             our kernels and bench/vendor/ as libraries
    python benchmarks/torch_operators.py time FOLDER [TASK...] --save FILE  checks and times all; needs a GPU
    python benchmarks/torch_operators.py table FILE                         what was saved, as tables
    python benchmarks/torch_operators.py plot FILE --save FIGURE.svg        and as times over N

`build` compiles the playbook's last step of each task, and every file of bench/vendor/ that has a library here. `time`
takes turns: 3 warm-ups and 50 calls of each, in an order that is drawn for every turn, with a cold L2 cache. A turn has
two calls of each: one by the host's clock until the device is idle, one by events on the device, which has other work
while the host launches. Python's own time is part of the first, so the second is what to compare kernels by. Each
one's result is compared with fp64 on a sample first: what is wrong is listed, and not timed. Of two outputs only the
first is compared, the real parts of fft and the values of top_k: `cudamaster vendor` and `evaluate` check all.

TF32 is off. bf16 products are timed with sums in fp32, as the cards ask, and as PyTorch does it by default: slices of a
sum may be rounded. What is made outside a call is made outside here too: masks in the form that an operator wants,
handles, work space. An operator that writes where it is told is given the output. An empty kernel is timed beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cudamaster.core import resources
from cudamaster.core.values import BENCHMARK_PRECISIONS, Precision
from cudamaster.models.playbook import PlaybookModel, merged
from cudamaster.tasks import cards
from cudamaster.vendor import comparison, libraries

TASKS = ("matrix_mul", "square_matrix_mul", "matrix_power", "high_order_contraction", "matrix_vector_mul",
         "triangle_attention", "softmax_attention")  # fmt: skip
OTHERS = ("conv_1d", "conv_2d", "sorting", "top_k", "prefix_sum", "fft")
OURS, EMPTY = "ours", "empty kernel"
CALLS = 50
COMMAND = "nvcc -O2 -std=c++17 -shared -Xcompiler -fPIC"


def build(folder: Path, tasks: Sequence[str], architecture: str) -> None:
    """Compile all shared objects; what fails is told, and is then missing."""
    folder.mkdir(parents=True, exist_ok=True)
    bench = resources.bench()
    target = f"-arch={architecture}"
    jobs: list[tuple[str, list[str], str]] = []  # name, command, text
    loaded = [cards.load(task) for task in tasks]
    for card in loaded:
        for precision in BENCHMARK_PRECISIONS:
            step = PlaybookModel().steps(card.name, precision.value)[-1]
            command = shlex.split(merged(f"{COMMAND} {target}", step.flags))
            jobs.append((f"{card.wrapper(precision)}.{OURS}", command, step.code))
    for file in comparison.files(loaded, list(BENCHMARK_PRECISIONS)):
        found = [libraries.find(one, []) for one in libraries.called_by(file.text)]
        if missing := [where for where in found if isinstance(where, str)]:
            print(f"{file.path.stem}: {missing[0]}")
            continue
        command = [*COMMAND.split(), target, f"-I{bench}", f"-I{bench / 'include'}"]
        for where in found:
            assert not isinstance(where, str)
            command += [f"-I{where.include}", *([f"-Xlinker={where.shared}"] if where.shared else [])]
        jobs.append((f"{file.card.wrapper(file.precision)}.{file.library}", command, file.text))

    def compiled(job: tuple[str, list[str], str]) -> str:
        name, command, text = job
        source = folder / f"{name}.cu"
        source.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [*command, "-o", str(folder / f"{name}.so"), str(source)], capture_output=True, text=True, check=False
        )
        return "" if done.returncode == 0 else f"{name} does not build:\n{done.stderr[-2000:]}"

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        print("\n".join(filter(None, pool.map(compiled, jobs))) or f"Built {len(jobs)} shared objects.")


def fastest(case: dict[str, Any]) -> str | None:
    """The fastest of PyTorch's operators, by time on the device."""
    timed = {name: one for name, one in case["contenders"].items() if one["kind"] == "torch" and "device_us" in one}
    return min(timed, key=lambda name: timed[name]["device_us"]["median"], default=None)


def table(path: Path) -> str:
    """Markdown: for each case times on the device of ours, of the libraries and of the fastest of PyTorch's operators.

    A ratio is the other's time over ours: above 1, ours is faster. In brackets it is with the launch apart: the time
    of the empty kernel of the same turns is taken off both.
    """
    saved = json.loads(path.read_text("utf-8"))
    about = saved["about"]
    named = (name for case in saved["cases"] for name, one in case["contenders"].items() if one["kind"] == "library")
    vendors = sorted(set(named))
    lines = [f"{about['device']}, PyTorch {about['torch']}, {about['date']}. Microseconds on the device (whole calls "
             "from Python), medians; a ratio above 1: ours is faster on the device (in brackets: with the time of an "
             "empty kernel taken off both).", ""]  # fmt: skip
    head = ["task", "case", "ours", *vendors, "PyTorch", "its fastest", *(f"{one} / ours" for one in vendors)]
    lines += [f"| {' | '.join([*head, 'PyTorch / ours'])} |",
              f"|---|---|--:|{'--:|' * len(vendors)}--:|---|{'--:|' * len(vendors)}--:|"]  # fmt: skip

    def cell(one: dict[str, Any] | None) -> str:
        if one is None or "device_us" not in one:
            return "wrong" if one and "wrong" in one else "-"
        return f"{one['device_us']['median']:.1f} ({one['whole_us']['median']:.1f})"

    def ratio(one: dict[str, Any] | None, ours: dict[str, Any] | None, empty: dict[str, Any] | None) -> str:
        if not (one and ours and "device_us" in one and "device_us" in ours):
            return "-"
        times = one["device_us"]["median"], ours["device_us"]["median"]
        apart = [time - empty["device_us"]["median"] for time in times] if empty else []
        return f"{times[0] / times[1]:.2f}" + (f" ({apart[0] / apart[1]:.2f})" if apart and min(apart) > 0 else "")

    for case in saved["cases"]:
        found = case["contenders"]
        ours, best = found.get(OURS), fastest(case)
        others = [*(found.get(name) for name in vendors), found[best] if best else None]
        ratios = [ratio(other, ours, found.get(EMPTY)) for other in others]
        cells = [f"{case['task']} {case['precision']}", case["case"], cell(ours), *map(cell, others)]
        lines.append("| " + " | ".join([*cells, best or "-", *ratios]) + " |")
    return "\n".join(lines)


def main() -> None:
    """One of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("build", "time", "table", "plot"))
    parser.add_argument("place", type=Path, help="the folder of shared objects, or the file of `table` and `plot`")
    parser.add_argument(
        "tasks", nargs="*", default=TASKS, help=f"by default {', '.join(TASKS)}; it knows {', '.join(OTHERS)} too"
    )
    parser.add_argument("--precision", choices=[one.value for one in BENCHMARK_PRECISIONS], action="append")
    parser.add_argument("--arch", default="native", help="of the kernels that do not choose one themselves")
    parser.add_argument("--case", action="append", metavar="SIZES", help="time these, N=1024, in place of its own")
    parser.add_argument(
        "--order", action="append", help="of the numbers of each input, as ascending or equal; by default as drawn"
    )
    parser.add_argument("--save", type=Path)
    parser.add_argument("--calls", type=int, default=CALLS)
    options = parser.parse_args()
    precisions = [Precision(one) for one in options.precision or BENCHMARK_PRECISIONS]
    if options.command == "build":
        build(options.place, options.tasks, options.arch)
    elif options.command == "time":
        from torch_timing import run  # PyTorch is not needed to build

        cases, orders = options.case or (), options.order or ()
        run(options.place.resolve(), options.tasks, precisions, options.save, options.calls, cases, orders)
    elif options.command == "plot":
        from torch_plot import plot

        plot(options.place, options.save or options.place.with_suffix(".svg"))
    else:
        sys.stdout.write(table(options.place) + "\n")


if __name__ == "__main__":
    main()

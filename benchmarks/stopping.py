"""What ending the timing early does to speedups and to what is called faster: simulated, no GPU needed.

    python benchmarks/stopping.py [--evaluations 4000] [--seed 1] [--json]

Times of calls are drawn at random; each call is held up with a probability of 3 %, for two to five times what it takes.
The harness's own rule says when there are enough of them (bench/include/mskb/stopping.h), and the product's own code
what follows from them (cudamaster/core/speed.py). Everything is done twice: by the rule, and with the 50 turns that are
asked for, whatever they show. 4000 evaluations take about four minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from cudamaster.core.speed import Change, overall
from cudamaster.devices.cpu import toolchain

SOURCE = Path(__file__).resolve().with_suffix(".cpp")
HEADERS = SOURCE.parent.parent / "bench" / "include"
CASES = 5  # of several, with weights of 1 to 256
# How much the calls that a side makes in a series differ together, as a part of what single turns differ by. With these
# the error by the means of series (core/speed.py) is 1.2 times the other, as on a quiet GPU, and twice the other, as
# where another program keeps the driver busy.
QUIET, BUSY = 0.24, 0.95


@dataclass(frozen=True)
class Situation:
    """Kernels and a device. `settings` are those of stopping.cpp; `speed` is what P should be."""

    name: str
    settings: dict[str, float]
    weights: tuple[float, ...] = (1.0,)
    speed: float = 1.0


@dataclass(frozen=True)
class Found:
    """What came of many evaluations of one situation."""

    situation: str
    early: bool  # by the rule, and not with all turns
    turns: float  # a case, mean
    bias: float  # of log P from what it should be, mean
    bias_error: float  # standard error of it
    spread: float  # of log P, standard deviation
    covered: float  # part whose interval contains what P should be
    called: dict[str, float]  # parts, by change


def situations() -> Iterator[Situation]:
    """Those that docs/promises.md speaks of."""
    for noise in (0.01, 0.02, 0.05):
        yield Situation(f"equal, noise {noise * 100:.0f} %", {"noise": noise})
    yield Situation("equal, 12 µs, noise 5 %", {"us": 12, "noise": 0.05})
    yield Situation("equal, calls over 5 ms", {"us": 30000, "turn_seconds": 0.07, "long_calls": 1, "noise": 0.01})
    yield Situation("equal, buffers of 1 GB", {"us": 2500, "turn_seconds": 0.025, "slots": 3, "noise": 0.01})
    yield Situation(f"equal, {CASES} cases", {"noise": 0.05}, weights=tuple(4.0**k for k in range(CASES)))
    yield Situation("equal, as a quiet GPU", {"noise": 0.02, "shared": 0.02 * QUIET})
    yield Situation("equal, few turns, as a quiet GPU", {"noise": 0.02, "shared": 0.02 * QUIET, "turn_seconds": 0.03})
    yield Situation("equal, few turns, busy driver", {"noise": 0.02, "shared": 0.02 * BUSY, "turn_seconds": 0.03})
    yield Situation("3 % faster", {"noise": 0.05, "speed": 1.03}, speed=1.03)
    yield Situation("3 % faster, few turns", {"speed": 1.03, "turn_seconds": 0.03}, speed=1.03)
    for seconds, few in ((0.0015, ""), (0.03, ", few turns")):
        two = {"speed": 1.05, "noise": 0.01, "every": 1 / 0.35, "slow": 1.2, "drawn": 1, "turn_seconds": seconds}
        yield Situation(
            f"two speeds{few}", two
        )  # 5 % faster, and in 35 of 100 calls 14 % slower: the typical turn is equal
    for every, slow in ((5, 3), (8, 5), (12, 5), (24, 10)):
        for seconds, few in ((0.0015, ""), (0.03, ", few turns")):
            for drawn, which in ((0, "each"), (1, "drawn")):
                settings = {"speed": 1 / 0.9, "every": every, "slow": slow, "drawn": drawn, "turn_seconds": seconds}
                true = 1 / 0.9 / (1 + (slow - 1) / every)
                yield Situation(
                    f"10 % faster, {slow} times as slow in one of {every}, {which}{few}", settings, speed=true
                )


def main() -> None:
    """Simulate all, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    given = parser.parse_args()
    chosen = [(situation, early) for situation in situations() for early in (False, True)]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        for situation, early in track(chosen, "Simulating", console=Console(stderr=True), transient=True):
            found.append(simulate(program, situation, given.evaluations, given.seed, early=early))
    if given.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        Console(width=None if sys.stdout.isatty() else 140).print(_table(found))


def build(folder: Path) -> Path:
    """The program that draws times. Raises CalledProcessError where the compiler refuses it."""
    program = folder / "stopping"
    flags = ["-std=c++17", "-O2", "-DMSKB_CPU_DEVICE", "-isystem", str(toolchain.INCLUDE), f"-I{HEADERS}"]
    subprocess.run([toolchain.compiler(), *flags, str(SOURCE), "-o", str(program)], check=True)
    return program


def simulate(program: Path, situation: Situation, evaluations: int, seed: int, *, early: bool) -> Found:
    """So many evaluations of a situation."""
    total = math.fsum(situation.weights)
    parts = [math.sqrt(len(situation.weights)) * weight / total for weight in situation.weights]
    with ThreadPoolExecutor() as pool:
        cases = list(
            pool.map(
                lambda k: _case(
                    program,
                    situation.settings
                    | {"cases": evaluations, "seed": seed * 1000 + k, "part": parts[k], "by_precision": early},
                ),
                range(len(parts)),
            )
        )
    logs, turns, covered, called = [], [], 0, Counter[Change]()
    for evaluation in zip(*cases, strict=True):
        compared = overall([(w, *sides) for w, sides in zip(situation.weights, evaluation, strict=True)])
        logs.append(math.log(compared.speedup / situation.speed))
        turns += [len(baseline) for baseline, _ in evaluation]
        covered += compared.interval.low <= situation.speed <= compared.interval.high
        called[compared.change] += 1
    spread = statistics.stdev(logs)
    return Found(
        situation.name,
        early,
        statistics.fmean(turns),
        statistics.fmean(logs),
        spread / math.sqrt(evaluations),
        spread,
        covered / evaluations,
        {change.value: called[change] / evaluations for change in Change},
    )


def _case(program: Path, settings: dict[str, float]) -> Sequence[tuple[Sequence[float], Sequence[float]]]:
    """What the calls of a case took in each evaluation, both sides, in µs."""
    words = [f"{name}={float(value)!r}" for name, value in settings.items()]
    lines = subprocess.run([str(program), *words], check=True, capture_output=True, text=True).stdout.splitlines()
    evaluations = []
    for line in lines:
        calls = [float(word) for word in line.split()]
        evaluations.append((calls[: len(calls) // 2], calls[len(calls) // 2 :]))
    return evaluations


def _table(found: Sequence[Found]) -> Table:
    """Two rows for each situation: with all turns, and by the rule."""
    table = Table(box=None)
    table.add_column("kernels", no_wrap=True)
    for heading in ("turns", "P is off by", "spread", "covered", *(change.value for change in Change)):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found:
        table.add_row(
            "  by the rule" if one.early else one.situation,
            f"{one.turns:.1f}",
            f"{one.bias:+.2%} ± {one.bias_error:.2%}",
            f"{one.spread:.2%}",
            *(f"{part:.1%}" for part in (one.covered, *one.called.values())),
        )
    return table


if __name__ == "__main__":
    main()

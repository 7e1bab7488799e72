"""Intervals of modelled speedups, fitted and held against measured ones: part of benchmarks/gpu_model.py.

A pair is two kernels of one task at one case that were both counted and measured. On the tasks to fit on, four numbers
give the reach of its error (core/likelihood.py); the most likely ones are taken, if errors over their reach are spread
as Laplace's distribution has it. Then the share of the pairs that are within a multiple of the reach is read off, so
that nine of ten are within 1. Every task counts by the root of the number of its pairs.

`intervals` writes the section of profiles/gpu_model.yaml, and how many intervals hold what was measured, on the tasks
that were fitted on and on the others, to results/gpu_model/validation.md.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import gpu_model_validation as validation
import numpy as np
from gpu_model_accuracy import APART
from gpu_model_fitting import Example, whole_us

from cudamaster.core.likelihood import LEVEL, LIKELY, Errors, Makeup
from cudamaster.core.modelled import joined_reach, weighted_mean
from cudamaster.modelling import constants as fitting_constants
from cudamaster.modelling import gpu as gpus
from cudamaster.modelling.constants import Constants, Intervals
from cudamaster.modelling.gpu import Gpu
from cudamaster.modelling.makeup import makeup
from cudamaster.modelling.model import modelled
from cudamaster.tasks import cards

HEADING = "## Intervals of modelled speedups"
BY_LIMITS = validation.FOLDER / "h200_by_limits.yaml"
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_LEAST_REACH = 0.01
_FEWEST = 20  # pairs, of which a share says something
_FEWEST_TASKS = 3
_FEWEST_CASES = 2  # of a P: one alone is a pair at a single case
BASELINE = "baseline"


@dataclass(frozen=True)
class Call:
    """A kernel at one case: measured and modelled whole call in microseconds, and what the modelled one is made of."""

    task: str
    precision: str
    kernel: str
    case: str
    fitted: bool
    measured_us: float
    modelled_us: float
    bound: str
    makeup: Makeup


@dataclass(frozen=True)
class Pair:
    """Two kernels of one task at one case; `log_...` are natural logarithms of the speedup of the second."""

    first: Call
    second: Call
    log_modelled: float
    log_measured: float

    @property
    def error(self) -> float:
        """Logarithm of measured over modelled speedup."""
        return self.log_measured - self.log_modelled

    @property
    def makeups(self) -> tuple[Makeup, Makeup]:
        """Of both calls."""
        return self.first.makeup, self.second.makeup

    @property
    def apart(self) -> float:
        """The part of the longer call that differs: what Errors multiply by `of_difference`."""
        return Errors(0.0, 1.0, 0.0, (1.0,), (1.0,)).reach(*self.makeups)

    @property
    def other_means(self) -> frozenset[str]:
        """What one of the two uses and the other does not."""
        return frozenset({*self.first.makeup.means} ^ {*self.second.makeup.means})


def calls(examples: Sequence[Example], fitted: Sequence[Example], gpu: Gpu, constants: Constants) -> list[Call]:
    """Every example, modelled."""
    to_fit, found = {id(each) for each in fitted}, []
    for each in examples:
        time, call = each.time, modelled(each.counts, gpu, constants)
        if call.whole_us > 0:
            found.append(
                Call(time.task, time.precision, time.kernel, time.case, id(each) in to_fit, whole_us(time, gpu),
                     call.whole_us, call.bound, makeup(call, each.counts))
            )  # fmt: skip
    return found


def pairs(of: Sequence[Call]) -> list[Pair]:
    """All pairs at single cases; the second is the one that the model has faster."""
    alike: dict[tuple[str, str, str], list[Call]] = defaultdict(list)
    for each in of:
        alike[each.task, each.precision, each.case].append(each)
    return [
        Pair(one, other, math.log(one.modelled_us / other.modelled_us), math.log(one.measured_us / other.measured_us))
        for group in alike.values()
        for one, other in itertools.combinations(sorted(group, key=lambda each: -each.modelled_us), 2)
    ]


@dataclass(frozen=True)
class Scores:
    """Two kernels by their P, as a search compares them: the modelled ratio, the measured one, and the reach."""

    first: str
    second: str
    task: str
    fitted: bool
    log_modelled: float
    log_measured: float
    reach: float

    @property
    def error(self) -> float:
        """Logarithm of measured over modelled ratio."""
        return self.log_measured - self.log_modelled


def scores(of: Sequence[Call], errors: Errors) -> list[Scores]:
    """Pairs of kernels, the baseline among them, by the ratio of their P over the cases that they have in common."""
    by_kernel: dict[tuple[str, str], dict[str, dict[str, Call]]] = defaultdict(lambda: defaultdict(dict))
    for each in of:
        by_kernel[each.task, each.precision][each.kernel][each.case] = each
    found = []
    for (task, precision), kernels in by_kernel.items():
        timed = {case.label: case.weight for case in cards.load(task).cases if case.sweep}
        base = kernels.get(BASELINE, {})
        for one, other in itertools.combinations(sorted(kernels), 2):
            a, b = kernels[one], kernels[other]
            weights = {label: weight for label, weight in timed.items() if label in base and label in a and label in b}
            if len(weights) < _FEWEST_CASES:
                continue
            p_of_a, p_of_b = (_p(base, each, weights, "modelled_us") for each in (a, b))
            reach = joined_reach(
                [
                    (
                        weight,
                        base[label].modelled_us
                        * (1 / p_of_a / a[label].modelled_us + 1 / p_of_b / b[label].modelled_us),
                        errors.reach(a[label].makeup, b[label].makeup),
                    )
                    for label, weight in weights.items()
                ]
            )
            logs = [
                math.log(_p(base, b, weights, name) / _p(base, a, weights, name))
                for name in ("modelled_us", "measured_us")
            ]
            fitted = base[next(iter(weights))].fitted
            found.append(Scores(f"{precision} {one}", other, task, fitted, *logs, reach))
    return found


def _p(base: Mapping[str, Call], of: Mapping[str, Call], weights: Mapping[str, float], name: str) -> float:
    return weighted_mean([(w, getattr(base[k], name) / getattr(of[k], name)) for k, w in weights.items()])


def fit(of: Sequence[Pair]) -> tuple[Errors, np.ndarray]:
    """The errors of pairs: their reach, and shares of multiples of it. Also each pair's weight."""
    from scipy.optimize import minimize  # takes half a second

    apart, means = (
        np.array([each(pair) for pair in of]) for each in (lambda p: p.apart, lambda p: bool(p.other_means))
    )
    off, weights = np.abs([pair.error for pair in of]), _weights(of)

    def spread_of(at: np.ndarray) -> np.ndarray:
        floor, of_difference, of_means, bend = np.abs(at)
        return np.asarray(floor + _LEAST_REACH / 3 + of_difference * apart / (1 + bend * apart) + of_means * means)

    def cost(at: np.ndarray) -> float:
        spread = spread_of(at)
        return float(np.average(np.log(spread) + off / spread, weights=weights))

    best = min(
        (
            minimize(cost, start, method="Nelder-Mead", options={"maxiter": 6000, "xatol": 1e-5})
            for start in ((0.03, 0.1, 0.03, 0.1), (0.05, 0.5, 0.1, 2.0))
        ),
        key=lambda found: float(found.fun),
    )
    at, spread = np.abs(best.x), spread_of(best.x)
    quantiles = _quantiles(off / spread, weights, SHARES)
    nine = float(quantiles[SHARES.index(LEVEL)])
    errors = Errors(
        floor=nine * (float(at[0]) + _LEAST_REACH / 3),
        of_difference=nine * float(at[1]),
        of_means=nine * float(at[2]),
        shares=SHARES,
        reaches=tuple(float(each) / nine for each in quantiles),
        known_means=tuple(sorted({name for pair in of for each in pair.makeups for name in each.means})),
        half=1 / max(float(at[3]), 1e-3),
    )
    return dataclasses.replace(errors, more=more(of, errors)), weights


def more(of: Sequence[Pair], errors: Errors) -> dict[str, float]:
    """What is to be added to the reach where one of two kernels uses a means, so that nine of ten of such pairs are
    within it too. Only what at least three tasks say."""
    found = {}
    for name in errors.known_means:
        mine = [pair for pair in of if name in pair.other_means]
        if len(mine) < _FEWEST or len({pair.first.task for pair in mine}) < _FEWEST_TASKS:
            continue
        lacking = np.array([abs(pair.error) - errors.reach(*pair.makeups) for pair in mine])
        needed = float(_quantiles(lacking, np.ones(len(mine)), [LEVEL])[0])
        if needed > 0:
            found[name] = needed
    return found


def _weights(of: Sequence[Pair]) -> np.ndarray:
    counts = Counter(pair.first.task for pair in of)
    return np.array([1 / math.sqrt(counts[pair.first.task]) for pair in of])


def _quantiles(values: np.ndarray, weights: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    places = np.minimum(np.searchsorted(reached, shares), len(values) - 1)
    return np.asarray(np.maximum.accumulate(values[order][places]))


def unlike(of: Sequence[Pair]) -> tuple[float, str]:
    """How much further ratios are off for kernels with a means that no kernel of the fit has, and which is the worst.

    Each means is left out in turn: the reach of nine of ten of its pairs, where one of the two kernels has it, over
    what the fit to the others says.
    """
    worst, name = 1.0, ""
    for means in sorted({means for pair in of for each in pair.makeups for means in each.means}):
        without = [pair for pair in of if all(means not in each.means for each in pair.makeups)]
        with_it = [pair for pair in of if means in pair.other_means]
        if len(with_it) < _FEWEST or len(without) < _FEWEST:
            continue
        errors = dataclasses.replace(
            fit(without)[0], known_means=tuple({m for p in of for e in p.makeups for m in e.means})
        )
        factor = _reach_of_nine(with_it, errors)
        if factor > worst:
            worst, name = factor, means
    return worst, name


def by_data_sheet() -> Gpu:
    """The H200 as a GPU that nobody measured: its data sheet, and else the file of the H100, of which that holds."""
    sheet = gpus.load("h100")
    figures = dataclasses.replace(
        sheet.figures, clock_mhz=1980.0, l2_bytes=60 * 2.0**20, read_bytes_per_s=0.95 * 4.8e12,
        write_bytes_per_s=0.95 * 4.8e12, copy_bytes_per_s=0.89 * 4.8e12,
    )  # fmt: skip
    return dataclasses.replace(sheet, figures=figures)


@dataclass(frozen=True)
class OtherFigures:
    """How good the model is with other figures of the GPU: nine of ten calls are within a factor, as are ratios of two
    kernels of one task whose measured times differ by more than 20 %; a share of these is in order. Nine of ten errors
    of all pairs are within `wider` reaches.
    """

    calls_within: float
    ratios_within: float
    ordered: float
    wider: float


def with_figures(of: Sequence[Call], errors: Errors) -> OtherFigures:
    """Of calls that are modelled with other figures, held against the errors that were fitted."""
    found = pairs(of)
    apart = [pair for pair in found if abs(pair.log_measured) > math.log(APART)]
    return OtherFigures(
        math.exp(float(np.quantile([abs(math.log(each.modelled_us / each.measured_us)) for each in of], LEVEL))),
        math.exp(float(np.quantile([abs(pair.error) for pair in apart], LEVEL))),
        float(np.mean([pair.log_measured * pair.log_modelled > 0 for pair in apart])),
        _reach_of_nine(found, errors),
    )


def _reach_of_nine(of: Sequence[Pair], errors: Errors) -> float:
    multiples = np.array([abs(pair.error) / errors.reach(*pair.makeups) for pair in of])
    return float(_quantiles(multiples, _weights(of), [LEVEL])[0])


@dataclass(frozen=True)
class Coverage:
    """How many intervals hold what was measured: of `pairs` of `tasks`, and if each task counts the same.

    `width` is the factor that the median interval reaches to either side.
    """

    pairs: int
    tasks: int
    share: float
    by_task: float
    width: float


def coverage(of: Sequence[Pair], errors: Errors) -> Coverage:
    """Of pairs at single cases."""
    reaches = np.array([errors.reach(*pair.makeups) for pair in of])
    return _coverage([pair.first.task for pair in of], np.abs([pair.error for pair in of]), reaches)


def coverage_of_scores(of: Sequence[Scores]) -> Coverage:
    """Of P."""
    return _coverage(
        [each.task for each in of], np.abs([each.error for each in of]), np.array([each.reach for each in of])
    )


def _coverage(tasks: Sequence[str], off: np.ndarray, reaches: np.ndarray) -> Coverage:
    if not tasks:
        return Coverage(0, 0, math.nan, math.nan, math.nan)
    within, counts = off <= reaches, Counter(tasks)
    return Coverage(
        len(tasks),
        len(counts),
        float(within.mean()),
        float(np.average(within, weights=[1 / counts[task] for task in tasks])),
        float(np.exp(np.median(reaches))),
    )


def run(gpu_name: str) -> None:
    """Fit, write the section of the constants, and report."""
    gpu, fitted = gpus.load(gpu_name), fitting_constants.shipped()
    examples = validation.examples()
    to_fit, _ = validation.split(examples)
    every = calls(examples, to_fit, gpu, fitted.constants)
    of = pairs(every)
    mine = [pair for pair in of if pair.first.fitted]
    errors, _ = fit(mine)
    factor, worst = unlike(mine)
    others = {"as fitted": gpu, "as `cudamaster limits --gpu-file` measured them in 9 s": gpus.load(str(BY_LIMITS)),
              "of its data sheet, and of the H100's file": by_data_sheet()}  # fmt: skip
    held = {
        name: with_figures(calls(examples, to_fit, other, fitted.constants), errors) for name, other in others.items()
    }
    sheet = max(1.0, *(each.wider for each in held.values()))
    kept = Intervals(
        gpu=gpu.name,
        date=datetime.date.today().isoformat(),
        source=f"fitted to results/gpu_model/measured.csv.gz and counts*.jsonl.gz; worst unknown means: {worst}",
        tasks=len({pair.first.task for pair in mine}),
        pairs=len(mine),
        floor=float(f"{errors.floor:.4g}"),
        of_difference=float(f"{errors.of_difference:.4g}"),
        of_means=float(f"{errors.of_means:.4g}"),
        half=float(f"{errors.half:.4g}"),
        reaches={share: float(f"{reach:.4g}") for share, reach in zip(errors.shares, errors.reaches, strict=True)},
        known_means=errors.known_means,
        more={name: float(f"{reach:.4g}") for name, reach in errors.more.items()},
        unlike=float(f"{factor:.3g}"),
        by_data_sheet=float(f"{sheet:.3g}"),
    )
    validation.keep(fitted.model_copy(update={"intervals": kept}))
    text = report(of, scores(every, kept.errors()), kept) + figures_report(held)
    path = validation.FOLDER / "validation.md"
    before = path.read_text().partition(f"\n{HEADING}")[0].rstrip("\n")
    path.write_text(f"{before}\n\n{text}")
    print(text)


def report(of: Sequence[Pair], by_score: Sequence[Scores], kept: Intervals) -> str:
    """The section of validation.md."""
    errors = kept.errors()
    lines = [
        HEADING,
        "",
        "Made by `python benchmarks/gpu_model.py intervals`. Of intervals for nine of ten, so many hold the measured",
        "speedup. Where a part d of the longer call differs, the reach, as a logarithm, is",
        f"{kept.floor:.3f} + {kept.of_difference:.3f} d / (1 + d / {kept.half:.2f}), and {kept.of_means:.3f} more",
        "where one kernel uses a means that the other does not"
        + "".join(f", by {reach:.3f} more for {name}" for name, reach in sorted(kept.more.items()))
        + ".",
        f"It is {kept.unlike:.2f} times as long for a means that no fitted kernel has, and {kept.by_data_sheet:.2f}",
        "times on a GPU whose figures are those of its data sheet.",
        "",
        "| pairs | fitted on: pairs | tasks | within | each task the same | median reach "
        "| held out: pairs | tasks | within | each task the same | median reach |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, belongs in CLASSES.items():
        lines.append(
            _row(name, *([p for p in of if p.first.fitted == half and belongs(p)] for half in (True, False)), errors)
        )
    both = [coverage_of_scores([each for each in by_score if each.fitted == half]) for half in (True, False)]
    lines.append("| " + " | ".join(["P of two kernels, over all cases", *map(_cells, both)]) + " |")
    lines += [
        "",
        f"What the model calls likely (a chance of {LIKELY:.0%} or more) was measured so:",
        "",
        "| P of two kernels | fitted on: pairs | faster as said | held out: pairs | faster as said |",
        "|---|--:|--:|--:|--:|",
    ]
    for low, high in ((0.5, 0.6), (0.6, 0.75), (0.75, 0.9), (0.9, 0.97), (0.97, 1.01)):
        cells = [f"chance {low:.0%} to {min(high, 1):.0%}"]
        for half in (True, False):
            found = [each for each in by_score if each.fitted == half and low <= _chance(each, errors) < high]
            right = sum(each.log_measured * each.log_modelled > 0 for each in found)
            cells += [str(len(found)), f"{right / len(found):.0%}" if found else ""]
        lines.append("| " + " | ".join(cells) + " |")
    for half, name in ((True, "fitted on"), (False, "held out")):
        mine = [each for each in by_score if each.fitted == half]
        sure = [each for each in mine if likely(each, errors)]
        wrong = [each for each in sure if each.log_measured * each.log_modelled < 0]
        lines += [
            "",
            f"Of {len(mine)} pairs of tasks {name}, {len(sure)} are likely and {len(wrong)} of those wrong:",
        ]
        lines[-1] += " " + ("; ".join(_said(each) for each in wrong) or "none") + "."
    return "\n".join(lines) + "\n"


def figures_report(of: Mapping[str, OtherFigures]) -> str:
    """What other figures of the same GPU make of it."""
    lines = [
        "",
        f"The model with other figures of the H200, all tasks together; {BY_LIMITS.name} has those that were measured:",
        "",
        "| figures | calls, nine of ten within | ratios, nine of ten within | pairs in order | reach, times as long |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, each in of.items():
        lines.append(
            f"| {name} | {each.calls_within:.2f} | {each.ratios_within:.2f} | {each.ordered:.1%} | {each.wider:.2f} |"
        )
    return "\n".join(lines) + "\n"


def _chance(of: Scores, errors: Errors) -> float:
    """Of the order that the model has."""
    return errors.chance(math.exp(abs(of.log_modelled)), of.reach)


def likely(of: Scores, errors: Errors) -> bool:
    """Whether the model is sure enough of the order."""
    return _chance(of, errors) >= LIKELY


def _said(of: Scores) -> str:
    modelled, measured = math.exp(of.log_modelled), math.exp(of.log_measured)
    return f"{of.task} {of.first}, {of.second} ({modelled:.2f}, measured {measured:.2f})"


def _row(name: str, fitted: Sequence[Pair], others: Sequence[Pair], errors: Errors) -> str:
    cells = [_cells(coverage(half, errors)) for half in (fitted, others)]
    return "| " + " | ".join([name, *cells]) + " |"


def _cells(of: Coverage) -> str:
    if not of.pairs:
        return "0 |  |  |  | "
    return f"{of.pairs} | {of.tasks} | {of.share:.0%} | {of.by_task:.0%} | {of.width:.2f}"


def _same_kind(pair: Pair) -> bool:
    return pair.first.bound == pair.second.bound


CLASSES: Mapping[str, Callable[[Pair], bool]] = {
    "all, at single cases": lambda pair: True,
    "with the baseline": lambda pair: BASELINE in (pair.first.kernel, pair.second.kernel),
    "both of the playbook, or variants": lambda pair: BASELINE not in (pair.first.kernel, pair.second.kernel),
    "modelled ratio below 1.05": lambda pair: pair.log_modelled < math.log(1.05),
    "1.05 to 1.2": lambda pair: math.log(1.05) <= pair.log_modelled < math.log(1.2),
    "1.2 to 2": lambda pair: math.log(1.2) <= pair.log_modelled < math.log(2),
    "2 and more": lambda pair: pair.log_modelled >= math.log(2),
    "less than 5 % of the call differs": lambda pair: pair.apart < 0.05,
    "5 to 20 % differ": lambda pair: 0.05 <= pair.apart < 0.2,
    "20 to 60 % differ": lambda pair: 0.2 <= pair.apart < 0.6,
    "60 % and more differ": lambda pair: pair.apart >= 0.6,
    "bound by the same part": _same_kind,
    "bound by different parts": lambda pair: not _same_kind(pair),
    "one uses tensor cores or products of warpgroups": lambda pair: bool(
        pair.other_means & {"tensor cores", "products of warpgroups"}
    ),
    "one uses clusters or copies in bulk": lambda pair: bool(pair.other_means & {"clusters", "copies in bulk"}),
    "one uses atomics": lambda pair: "atomics" in pair.other_means,
    "one launches several kernels": lambda pair: "several launches" in pair.other_means,
    "one allocates": lambda pair: "allocations" in pair.other_means,
}

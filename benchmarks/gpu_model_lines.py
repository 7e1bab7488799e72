"""What the model has to reach: order of pairs, ratios, the best of a path, classes. Part of benchmarks/gpu_model.py.

Each measure is a function of calls, modelled beside measured, and gives a share: how many of how many.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpu_model_accuracy import Compared

from cudamaster.core.modelled import weighted_mean

BASELINE = "baseline"
# A kernel chosen in place of the best may be this much slower.
NEARLY_BEST = 1.05
# Nine of ten speedups should be within this factor.
CLOSE = 1.35


@dataclass(frozen=True)
class Share:
    """So many of so many, and what is wanted."""

    name: str
    right: int
    of: int
    wanted: float

    @property
    def value(self) -> float | None:
        """Between 0 and 1; None of nothing."""
        return self.right / self.of if self.of else None

    @property
    def reached(self) -> bool:
        """Whether the line is reached, which nothing never is."""
        return self.of > 0 and self.right >= self.wanted * self.of - 1e-9


def lines(compared: Sequence[Compared], weights: Callable[[str], Mapping[str, float]]) -> list[Share]:
    """All but the classes; `weights` gives the weights of a task's cases by their labels."""
    return [
        ordered(compared, 1.10, 0.95),
        ordered(compared, 1.25, 0.99),
        close(compared),
        chosen(compared, weights),
    ]


def ordered(compared: Sequence[Compared], apart: float, wanted: float) -> Share:
    """Pairs of kernels of one task at one case whose measured times are that far apart, and that are in order."""
    right = every = 0
    for group in _alike(compared).values():
        for one, other in itertools.combinations(sorted(group, key=lambda each: each.measured_us), 2):
            if other.measured_us >= (1 - 1e-9) * apart * one.measured_us:
                every += 1
                right += one.modelled_us < other.modelled_us
    return Share(f"pairs {100 * (apart - 1):.0f} % apart or more in order", right, every, wanted)


def speedups(compared: Sequence[Compared]) -> list[float]:
    """Modelled over measured speedups against the baseline, of all kernels and cases for which it is there."""
    found = []
    for group in _alike(compared).values():
        against = next((each for each in group if each.measured.kernel == BASELINE), None)
        if against is not None:
            found += [against.ratio / each.ratio for each in group if each is not against]
    return found


def close(compared: Sequence[Compared]) -> Share:
    """Speedups that are within the factor of the measured ones."""
    ratios = speedups(compared)
    right = sum(abs(math.log(each)) <= math.log(CLOSE) for each in ratios)
    return Share(f"speedups within a factor of {CLOSE:g}", right, len(ratios), 0.9)


def chosen(compared: Sequence[Compared], weights: Callable[[str], Mapping[str, float]]) -> Share:
    """Paths of which the kernel that the model finds best is the best, or within 5 % of it.

    A path is a baseline with the kernels of the playbook, and what decides is the score of a verdict: the weighted mean
    of speedups over the cases of all of them.
    """
    right = every = 0
    for scores in scores_of_paths(compared, weights).values():
        every += 1
        pick = max(scores, key=lambda kernel: scores[kernel][0])
        right += NEARLY_BEST * scores[pick][1] >= max(measured for _, measured in scores.values())
    return Share("best of a path, or within 5 % of it", right, every, 0.9)


def scores_of_paths(
    compared: Sequence[Compared], weights: Callable[[str], Mapping[str, float]]
) -> dict[tuple[str, str], dict[str, tuple[float, float]]]:
    """Modelled and measured score of each kernel of a path, by task and precision."""
    paths: dict[tuple[str, str], dict[str, dict[str, Compared]]] = defaultdict(lambda: defaultdict(dict))
    for each in compared:
        time = each.measured
        if time.kernel == BASELINE or " " not in time.kernel:
            paths[time.task, time.precision][time.kernel][time.case] = each
    found: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    for (task, precision), kernels in paths.items():
        cases = set.intersection(*(set(of_case) for of_case in kernels.values()))
        of_case = weights(task)
        if BASELINE not in kernels or len(kernels) < 2 or not cases:
            continue
        against = kernels[BASELINE]
        found[task, precision] = {
            name: (
                weighted_mean([(of_case[c], against[c].modelled_us / own[c].modelled_us) for c in sorted(cases)]),
                weighted_mean([(of_case[c], against[c].measured_us / own[c].measured_us) for c in sorted(cases)]),
            )
            for name, own in kernels.items()
        }
    return found


def _alike(compared: Sequence[Compared]) -> Mapping[tuple[str, str, str], list[Compared]]:
    found: dict[tuple[str, str, str], list[Compared]] = defaultdict(list)
    for each in compared:
        found[each.measured.of_task].append(each)
    return found


def table(groups: Mapping[str, Sequence[Share]]) -> list[str]:
    """Markdown: a row for each measure, a column for each group; what is missed is marked."""
    first = next(iter(groups.values()))
    rows = [f"| line | wanted | {' | '.join(groups)} |", "|---|--:|" + "--:|" * len(groups)]
    for number, share in enumerate(first):
        cells = [_cell(shares[number]) for shares in groups.values()]
        rows.append(f"| {share.name} | {100 * share.wanted:.0f} % | {' | '.join(cells)} |")
    return rows


def _cell(share: Share) -> str:
    if share.value is None:
        return ""
    words = f"{100 * share.value:.1f} % of {share.of}"
    return words if share.reached else f"{words} (missed)"

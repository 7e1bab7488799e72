"""What a small model learned: a table and a picture of the runs in the folder of benchmarks/learning.py.

    python benchmarks/learning_report.py FOLDER [--seeds 0 1]     prints tables, and writes FOLDER/learning.svg

Beside the model before and after the contrastive stage stand kernels that are drawn from its training set: as many as
an evaluation has samples. Speedups are at the sizes that no reward came from. The second table says what the variants
among the samples are made of, in the first three steps and in the last three.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from learning import HELD_OUT, REWARDED, RULE, WITHOUT_PAIRS, read, text_of
from learning_variants import CHOICES, TASKS, real

from cudamaster.core.errors import CudaMasterError, UsageError
from cudamaster.report.drawing import BLUE, GREEN, ORANGE, WIDTH_IN, blank, style
from cudamaster.training.reward import measured

DRAWS = 1000


@dataclass(frozen=True)
class Row:
    """Of one task: the share that is right, the mean and best speedup of those that are (None where none is), and the
    mean with 0 for those that are wrong."""

    right: float
    mean: float | None
    best: float | None
    reward: float | None


def drawn(folder: Path, samples: int) -> dict[str, Row]:
    """What kernels drawn from the variants that were judged would come to, by task."""
    rows = {}
    by_task: dict[str, list[float | None]] = {}
    for kernel in read(folder):
        if not kernel.provenance.is_baseline:
            labels = [case.label for case in kernel.verdict.cases if case.sweep]
            held_out = [label for label in labels if label not in REWARDED]
            known = measured(kernel.verdict, RULE, held_out).speedup if kernel.verdict.correct else 0.0
            by_task.setdefault(kernel.candidate.task, []).append(known)
    for task, speedups in by_task.items():
        right = [speedup for speedup in speedups if speedup]
        random = Random(task)
        best = statistics.fmean(max(random.choices(right, k=samples)) for _ in range(DRAWS))
        # The pairs that are trained on are of right kernels alone.
        rows[task] = Row(1.0, statistics.fmean(right), best, statistics.fmean(right))
    return rows


def tried(run: Path) -> dict[int, dict[str, Row]]:
    """The evaluations of a run, by step and task."""
    found: dict[int, dict[str, Row]] = {}
    for line in text_of(run / "evaluations.jsonl").splitlines():
        row = json.loads(line)
        task = row["task"].partition("/")[0]
        found.setdefault(row["step"], {})[task] = Row(row["right"], row["mean"], row["best"], row["reward"])
    return found


def table(folder: Path, seeds: Sequence[int]) -> str:
    """The table in Markdown: of each task, before and after, the mean over seeds and its standard deviation."""
    runs = [tried(folder / f"contrastive_{seed}") for seed in seeds]
    samples = json.loads(text_of(folder / f"contrastive_{seeds[0]}" / "evaluations.jsonl").splitlines()[0])
    chance = drawn(folder, samples["samples"])
    lines = ["| task | from | right | mean, 0 if wrong | mean | best |", "| --- | --- | --- | --- | --- | --- |"]
    for task, row in sorted(chance.items(), key=lambda item: list(TASKS).index(item[0])):
        name, source = task, "right ones of the training set, at random"
        if task in (HELD_OUT, WITHOUT_PAIRS):
            name, source = (
                f"{task} ({'held out' if task == HELD_OUT else 'in no pair'})",
                "right ones of its variants, at random",
            )
        lines.append(f"| {name} | {source} | {row.right:.0%} | {row.mean:.2f} | {row.mean:.2f} | {row.best:.2f} |")
        for words, step in (("the model after SFT", min), ("after contrastive RL", max)):
            rows = [run[step(run)][task] for run in runs]
            cells = [_spread([one.right for one in rows], "{:.0%}")]
            cells += [_spread([getattr(one, name) for one in rows], "{:.2f}") for name in ("reward", "mean", "best")]
            lines.append(f"| | {words} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def choices(folder: Path, seeds: Sequence[int]) -> str:
    """The table in Markdown: of the samples that are variants, the share of each choice, over all tasks and seeds."""
    variants = {(f"{task}/fp32", code.strip()): choice for task in TASKS for choice, code in real(task, CHOICES)}
    shares: list[Counter[str]] = [Counter(), Counter()]
    for seed in seeds:
        text = text_of(folder / f"contrastive_{seed}" / "samples.jsonl")
        rows = [json.loads(line) for line in text.splitlines()]
        last = max(row["step"] for row in rows)
        for share, steps in zip(shares, ((1, 2, 3), (last - 2, last - 1, last)), strict=True):
            for row in rows:
                choice = variants.get((row["task"], row["text"].strip()))
                if choice is not None and row["step"] in steps:
                    made_of = (f"{choice.block} threads", f"at most {choice.grid} blocks", f"loads of {choice.width}",
                               f"unrolled {choice.unroll}", choice.reduction)  # fmt: skip
                    share.update(["all", *made_of])
    first, then = shares
    lines = ["| of the samples | first steps | last steps |", "| --- | --- | --- |"]
    names = sorted({*first, *then} - {"all"}, key=lambda name: (name.strip("0123456789"), name.rjust(20)))
    lines += [f"| {name} | {first[name] / first['all']:.0%} | {then[name] / then['all']:.0%} |" for name in names]
    return "\n".join(lines) + "\n"


def seeds_of(folder: Path) -> list[int]:
    """The seeds whose last stage was evaluated. Raises UsageError if there is none."""
    found = sorted(int(path.parent.name.rpartition("_")[2]) for path in folder.glob("contrastive_*/evaluations.jsonl"))
    if not found:
        raise UsageError(f"{folder} has no contrastive_0/evaluations.jsonl or the like.", "Train there first.")
    return found


def _spread(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    spread = f" ± {form.format(statistics.stdev(known))}" if len(known) > 1 else ""
    return form.format(statistics.fmean(known)) + spread


def picture(folder: Path, seeds: Sequence[int]) -> None:
    """Rewards and shares right of each step, one line a seed, into learning.svg; at the right those in `faster`."""
    runs = [("", folder), *([("learning rate too high", folder / "faster")] if (folder / "faster").is_dir() else [])]
    with style():
        figure = blank(4.0, WIDTH_IN * len(runs))
        axes = figure.subplots(2, len(runs), sharex="col", sharey="row", squeeze=False)
        for column, (title, run) in enumerate(runs):
            above, below = axes[0][column], axes[1][column]
            for seed, colour in zip(seeds, (BLUE, ORANGE, GREEN), strict=False):
                text = text_of(run / f"contrastive_{seed}" / "steps.jsonl")
                steps = [json.loads(line) for line in text.splitlines()]
                numbers = [row["step"] for row in steps]
                above.plot(numbers, [row["reward"] for row in steps], color=colour, label=f"seed {seed}")
                below.plot(numbers, [100 * row["right"] for row in steps], color=colour)
            above.set_title(title)
            below.set_xlabel("step")
        axes[0][0].set_ylabel("mean reward\n(speedup, 0 for wrong)")
        axes[0][0].legend()
        axes[1][0].set_ylabel("right, %")
        figure.savefig(folder / "learning.svg", metadata={"Date": None})


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", help="default: all that have evaluations")
    given = parser.parse_args()
    try:
        seeds = given.seeds or seeds_of(given.folder)
        print(table(given.folder, seeds))
        print(choices(given.folder, seeds))
        picture(given.folder, seeds)
    except CudaMasterError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

"""Whether a small model learns to write fast kernels, from nothing: by judged kernels, then by measured speed.

    python benchmarks/learning.py measure FOLDER [--each N]     judges variants of the tasks; continues where it stopped
    python benchmarks/learning.py sets FOLDER                   the sets to train on, from the verdicts
    python benchmarks/learning.py configs FOLDER [--seeds 0 1]  configuration files, for `cudamaster train`
    python benchmarks/learning.py known FOLDER                  the verdicts that `measure` got, for the stages' judges
    python benchmarks/learning.py again FOLDER [--seeds 0 1]    judges kernels a second time

learning_variants.py writes the variants. Verdicts lie in FOLDER/kernels.jsonl, as `cudamaster export` writes them.
`sets` makes two folders for `cudamaster train sft`. In `unjudged` are pairs of kernels for made-up sums: a model that
is new learns the language from them, and to take names and terms from its prompt. In `judged` are pairs of the kernels
that are right, each as often as any other, however fast: what learns from these writes as the variants are distributed.
As many pairs for made-up sums are among them. The task that is held out is in neither, and one task is known to the
last stage alone. The first set needs no verdicts, so a model can learn from it while others are measured.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import statistics
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from time import monotonic

from learning_variants import CHOICES, TASKS, Sum, baseline_region, made_up, real, region

from cudamaster.agents.brief import Brief
from cudamaster.agents.contrast import Exemplar
from cudamaster.core.errors import CudaMasterError, UsageError
from cudamaster.core.values import Candidate, Hardware, Precision, Verdict
from cudamaster.core.version import program
from cudamaster.devices.cuda import find_gpus
from cudamaster.library.subjects import choose_device
from cudamaster.strategies.exemplars import Pool, Selection
from cudamaster.tasks.cards import TaskCard
from cudamaster.training.benches import chosen
from cudamaster.training.kernels import JudgedKernel, Provenance, gpu_of, harness_of
from cudamaster.training.problems import Problem, loaded
from cudamaster.training.prompts import Form, completion, prompt
from cudamaster.training.reward import Rule, measured
from cudamaster.training.scoring import Scoring, scoring
from cudamaster.training.verdicts import Verdicts
from cudamaster.workbench.evaluation import Workbench

HELD_OUT = "cross_entropy_loss"
WITHOUT_PAIRS = "mse_loss"
SEED = 20261126
SOURCE = "benchmarks/learning_variants.py"
# The timed sizes that rewards come from; of calls of 10 us some hundreds are timed, where the paper's limit is for tens
# of thousands.
REWARDED = ("N=65536", "N=262144", "N=1048576")
RULE = Rule(variance_limit=0.05, relative=True)


def measure(out: Path, each: int, jobs: int, tasks: Sequence[str]) -> None:
    """Judge `each` variants of every task, and the baselines."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "kernels.jsonl"
    done = {kernel.candidate.id for kernel in read(out)} if path.exists() else set()
    by_task = []
    for task in tasks:
        picked = Random(f"{SEED} {task}").sample(CHOICES, each)
        by_task.append([(task, "", ""), *((task, choice.idea, code) for choice, code in real(task, picked))])
    # The tasks take turns, so that what there is of a stopped run is of all of them.
    work = [one for turn in zip(*by_task, strict=True) for one in turn]
    benches = chosen("auto", jobs, (), find_gpus(), None)
    problems = {one.card.name: one for one in loaded(list(tasks), [Precision.FP32], benches.bench)}
    lock, began = threading.Lock(), monotonic()

    def judge(one: tuple[str, str, str]) -> None:
        task, idea, code = one
        problem = problems[task]
        candidate = problem.candidate(code) if code else problem.baseline
        if candidate.id in done:
            return
        (verdict,) = benches.judge(problem, [candidate])
        card = problem.card
        provenance = Provenance(
            card.suite, card.category, card.hash, harness_of(program()), SOURCE, idea, is_baseline=not code,
            gpu=gpu_of(problem.hardware),
        )  # fmt: skip
        kernel = JudgedKernel(candidate, verdict, provenance)
        with lock, path.open("a") as file:
            file.write(json.dumps(kernel.to_json()) + "\n")
            file.flush()
            done.add(candidate.id)
            score = "-" if verdict.score is None else f"{verdict.score:.3f}"
            print(f"{monotonic() - began:5.0f} s {len(done):4}  {task:20} {verdict.status} {score}  {idea}", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(judge, work))
    benches.close()


def sets(out: Path, unjudged: int, judged: int) -> None:
    """Write the two sets, with so many pairs; without verdicts only the first."""
    random = Random(f"{SEED} unjudged")
    _write(out / "unjudged", [_made_up(random, (1,)) for _ in range(unjudged)], [])
    if not any(out.glob("kernels.jsonl*")):
        print(f"{out} has no verdicts (kernels.jsonl or kernels.jsonl.gz), so there is no set `judged`")
        return
    random = Random(SEED)
    kernels = [kernel for kernel in read(out) if kernel.candidate.task != HELD_OUT]
    pools: dict[str, list[Exemplar]] = {}
    for kernel in kernels:
        verdict = kernel.verdict
        if kernel.candidate.task == WITHOUT_PAIRS:
            continue
        # Scores in prompts are of the sizes that are rewarded, as in the last stage.
        score = measured(verdict, RULE, REWARDED).speedup if verdict.correct else None
        if score:
            exemplar = Exemplar(kernel.candidate, verdict, score, is_baseline=kernel.provenance.is_baseline)
            pools.setdefault(kernel.candidate.task, []).append(exemplar)
    pools = {task: pool for task, pool in pools.items() if not all(one.is_baseline for one in pool)}
    if not pools:
        raise UsageError(f"No kernel in {out} is right and has a reward.", "Measure more of them.")
    pairs = []
    for number in range(judged):
        task = sorted(pools)[number % len(pools)]
        wanted = random.choice([one for one in pools[task] if not one.is_baseline])
        others = Pool([one for one in pools[task] if one is not wanted])
        baseline = [one for one in pools[task] if one.is_baseline]
        shown = baseline if random.random() < 0.3 else others.draw(Selection(2, temperature=1e9), random)
        ask = prompt(Form.COMPACT, _brief(task), shown)[0].content
        pairs.append((ask, completion(Form.COMPACT, "", wanted.candidate.code)))
    # Made-up sums among the others, so that names and terms are still taken from the prompt.
    _write(out / "judged", [*pairs, *(_made_up(random, (1, 2)) for _ in range(judged))], kernels)


def _shape(what: Sum) -> str:
    """Its term without names of arrays."""
    return re.sub(rf"\b({'|'.join(what.arrays)})\b", "array", what.term)


def _made_up(random: Random, shown: Sequence[int]) -> tuple[str, str]:
    """A pair for a made-up sum, with a baseline or so many exemplars in the prompt.

    Some are sums of tasks under other names; that of the task that is held out is not, if its factors stand in the same
    order.
    """
    what = made_up(random)
    while _shape(what) == _shape(TASKS[HELD_OUT]):
        what = made_up(random)
    wanted, *others = random.sample(CHOICES, 1 + random.choice(shown))
    codes = [baseline_region(what, random)] if random.random() < 0.4 else [region(what, one) for one in others]
    lines = "".join(f"// not judged\n{code.strip()}\n" for code in codes)
    return f"// {what.name} fp32\n{lines}// write\n", completion(Form.COMPACT, "", region(what, wanted))


JUDGED = f"""\
judge:
  tasks: [dot_product, mse_loss, monte_carlo_int, simpson_int]
  cases: [{", ".join(REWARDED)}]  # evaluations are about the other sizes
  workers: 12
  verdicts: verdicts.jsonl
evaluation:
  tasks: [dot_product, mse_loss, monte_carlo_int, simpson_int, cross_entropy_loss]
  samples: {{samples}}
# Without its tail, in which the small model's slips are, while all choices stay likely.
generation: {{{{temperature: 1.0, top_p: 0.95, max_tokens: 640, batch: 128}}}}
reward: {{{{variance_limit: {RULE.variance_limit}, relative: true}}}}
"""
CONFIGS = {
    "pretrain": """\
model: {{new: llama, layers: 6, width: 256, heads: 4, vocabulary: 2048, context: 1792, dtype: bfloat16}}
data: unjudged
out: pretrain_{seed}
seed: {seed}
epochs: {pretrain}
batch: 64
micro_batch: 64
completion_only_loss: false
optimization: {{learning_rate: 1.5e-3, warmup: 50, schedule: cosine}}
budget: {{minutes: {minutes}}}
every: {{checkpoint: 0}}
""",
    "sft": """\
model: {{name: pretrain_{seed}, context: 1792, dtype: bfloat16}}
data: judged
out: sft_{seed}
seed: {seed}
epochs: {sft}
batch: 64
micro_batch: 64
optimization: {{learning_rate: 7.0e-4, warmup: 10, schedule: cosine}}
every: {{checkpoint: 0}}
"""
    + JUDGED,
    "contrastive": """\
model: {{name: sft_{seed}, context: 1792, dtype: bfloat16}}
data: judged
out: contrastive_{seed}
seed: {seed}
grpo: {{prompts: 4, group: 24, micro_batch: 24, beta: 0.1}}
# At 2.0e-4 the model forgets to copy names after five steps (docs/learning.md).
optimization: {{learning_rate: 6.0e-5, warmup: 2, schedule: cosine}}
budget: {{steps: {steps}}}
every: {{checkpoint: 4, evaluation: {every}, canaries: {every}}}
"""
    + JUDGED,
}


def configs(out: Path, seeds: Sequence[int], **numbers: int) -> None:
    """Write the configuration files of the stages."""
    out.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for stage, text in CONFIGS.items():
            (out / f"{stage}_{seed}.yaml").write_text(text.format(seed=seed, **numbers))


def known(out: Path, *, any_commit: bool) -> None:
    """Write the verdicts of `measure` as the stages keep theirs.

    Those on another GPU, by another card or over another baseline are left out, and so are those of another commit of
    this program, or of one that nobody knows, unless `any_commit` takes them.
    """
    every = read(out)
    versions = program()
    harness = harness_of(versions)
    committed = not versions.get("commit", "+dirty").endswith("+dirty")
    benches = OneGpu()
    problems = {one.card.name: one for one in loaded(list(TASKS), [Precision.FP32], benches.bench)}
    baselines = {kernel.candidate.id for kernel in every if kernel.provenance.is_baseline}
    keys: set[str] = set()
    others: set[str] = set()
    with ThreadPoolExecutor(1) as executor:
        verdicts = Verdicts(out / "verdicts.jsonl", "measure")
        pool = Scoring(benches, verdicts, executor, str(out))
        for kernel in every:
            problem, about = problems[kernel.candidate.task], kernel.provenance
            if about.gpu != (here := gpu_of(problem.hardware)):
                others.add(f"those on {about.gpu}; this is {here}")
            elif about.card_hash != problem.card.hash or problem.baseline.id not in baselines:
                others.add(f"those by another card or baseline of {problem.card.name}")
            elif not any_commit and (about.harness != harness or not committed):
                others.add(f"those by version {about.harness}; this is version {harness}")
            else:
                key = pool.key(problem, kernel.candidate)
                keys.add(key)
                if key not in verdicts:
                    verdicts.add(key, kernel)
    found = Verdicts(verdicts.path, "")  # as a stage reads it
    print(f"{sum(key in found for key in keys)} of {len(every)} verdicts are in {found.path}")
    for which in sorted(others):
        print(f"left out: {which}")


def again(out: Path, seeds: Sequence[int], number: int, last: int) -> None:
    """Judge `number` kernels of the set and of each seed's last steps once more, and compare the two measurements.

    A kernel earns by one measurement, so what is preferred could be what was lucky then. Raises UsageError on a machine
    with another GPU than that of the first measurement.
    """
    kernels = read(out)
    benches = chosen("auto", None, (), find_gpus(), None)
    problems = {one.name: one for one in loaded(sorted({*TASKS} - {HELD_OUT}), [Precision.FP32], benches.bench)}
    gpus, here = {one.provenance.gpu for one in kernels}, {gpu_of(one.hardware) for one in problems.values()}
    if gpus - here:
        there = f"The kernels were judged on {', '.join(sorted(gpus))}, and here is {', '.join(sorted(here))}."
        raise UsageError(there, "Judge them again on a machine with the same GPU.")
    verdicts = Verdicts(out / "verdicts.jsonl", "again")
    groups: dict[tuple[str, str], list[JudgedKernel]] = {}
    for kernel in kernels:
        name = f"{kernel.candidate.task}/fp32"
        if kernel.verdict.correct and name in problems and not kernel.provenance.is_baseline:
            groups.setdefault((name, "the set"), []).append(kernel)
    for seed in seeds:
        path = out / f"contrastive_{seed}" / "samples.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        if not rows:
            print(f"seed {seed} is left out: {path} has no samples", file=sys.stderr)
        for row in rows:
            if row["reward"] and row["step"] > max(one["step"] for one in rows) - last:
                kept = verdicts.get(row["key"])
                if kept is None:
                    raise UsageError(f"{verdicts.path} lacks a verdict of {path}.", "Copy it from where the run was.")
                groups.setdefault((row["task"], f"seed {seed}"), []).append(kept)
    print("| task | from | kernels | right again | first | again |\n| --- | --- | --- | --- | --- | --- |")
    with scoring(benches, verdicts, str(out)) as pool:
        drawn = {}
        for (name, source), kernels in sorted(groups.items()):
            some = Random(f"{SEED} {name} {source}").choices(kernels, k=number)
            second = [pool.submit(problems[name], one.candidate, "again") for one in some]
            drawn[name, source] = [(one.verdict, future) for one, future in zip(some, second, strict=True)]
        for (name, source), pairs in drawn.items():
            speeds = [(measured(one, RULE).speedup, measured(two.result(), RULE).speedup) for one, two in pairs]
            both = [[pair[turn] for pair in speeds if all(pair)] for turn in (0, 1)]
            told = " | ".join(f"{statistics.fmean(known):.2f}" if known else "-" for known in both)
            right = {one.candidate: two.result().correct for one, two in pairs}
            print(f"| {name} | {source} | {len(right)} | {sum(right.values())} | {told} |", flush=True)
    verdicts.close()


class OneGpu:
    """Judges nothing; says what problems there are here."""

    workers = together = 1

    def bench(self, card: TaskCard, precision: Precision) -> Workbench:
        """A workbench on this machine's device."""
        return Workbench(card, precision, choose_device())

    def judge(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Verdict]:
        """Nothing is to be judged."""
        raise AssertionError("nothing is to be judged")

    def close(self) -> None:
        """There is nothing to end."""


def _brief(task: str) -> Brief:
    """As much of it as the compact form needs."""
    return Brief(task, Precision.FP32, "", "", "", "", "", Hardware("", {}, emulated=False))


def _write(folder: Path, pairs: Sequence[tuple[str, str]], kernels: Sequence[JudgedKernel]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"prompt": one, "completion": other, "provenance": SOURCE}) for one, other in pairs]
    (folder / "sft.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "kernels.jsonl").write_text("".join(json.dumps(kernel.to_json()) + "\n" for kernel in kernels))
    print(f"{folder}: {len(rows)} pairs, {sum(map(len, rows)) / len(rows):.0f} characters on average")


def text_of(path: Path) -> str:
    """The text of a file, or of the same file compressed (.gz). Raises UsageError if there is neither."""
    packed = Path(f"{path}.gz")
    if not path.exists() and not packed.exists():
        raise UsageError(f"There is neither {path} nor {packed}.", "docs/learning.md says what makes them.")
    return path.read_text() if path.exists() else gzip.decompress(packed.read_bytes()).decode()


def read(folder: Path) -> list[JudgedKernel]:
    """The kernels of a folder's kernels.jsonl, compressed or not; a last line that was cut is left out."""
    kernels = []
    for line in text_of(folder / "kernels.jsonl").splitlines():
        try:
            kernels.append(JudgedKernel.from_json(json.loads(line)))
        except json.JSONDecodeError:
            print("a line that was cut is left out", file=sys.stderr)
    return kernels


def _few(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= len(CHOICES):
        raise argparse.ArgumentTypeError(f"{text} is not from 1 to {len(CHOICES)}, as many variants as there are")
    return int(text)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    one = commands.add_parser("measure")
    one.add_argument("folder", type=Path)
    few = f"variants of each task, at most {len(CHOICES)}"
    one.add_argument("--each", type=_few, default=48, metavar="N", help=f"{few} (default 48)")
    one.add_argument("--jobs", type=int, default=12, help="kernels that are judged at once (default 12)")
    one.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS, help="default: all five")
    two = commands.add_parser("sets")
    two.add_argument("folder", type=Path)
    two.add_argument("--unjudged", type=int, default=40000, help="pairs for made-up sums")
    two.add_argument("--judged", type=int, default=1500, help="pairs of kernels that are right")
    three = commands.add_parser("configs")
    three.add_argument("folder", type=Path)
    three.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    three.add_argument("--pretrain", type=int, default=4, help="epochs over the pairs that nobody judged")
    three.add_argument("--minutes", type=int, default=7, help="after which the first stage ends")
    three.add_argument("--sft", type=int, default=3, help="epochs over the pairs that were judged, and as many others")
    three.add_argument("--steps", type=int, default=30)
    three.add_argument("--every", type=int, default=10, help="steps between evaluations")
    three.add_argument("--samples", type=int, default=16, help="samples of a task in an evaluation")
    four = commands.add_parser("known")
    four.add_argument("folder", type=Path)
    four.add_argument("--any-commit", action="store_true", help="also the verdicts of another commit of this program")
    five = commands.add_parser("again")
    five.add_argument("folder", type=Path)
    five.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    five.add_argument("--number", type=int, default=8, help="kernels of each task, of the set and of each seed")
    five.add_argument("--last", type=int, default=6, help="steps whose kernels are drawn from")
    given = parser.parse_args()
    try:
        _do(given)
    except CudaMasterError as error:
        sys.exit(f"error: {error}")


def _do(given: argparse.Namespace) -> None:
    if given.command == "measure":
        measure(given.folder, given.each, given.jobs, given.tasks)
    elif given.command == "sets":
        sets(given.folder, given.unjudged, given.judged)
    elif given.command == "configs":
        numbers = {name: getattr(given, name) for name in ("pretrain", "minutes", "sft", "steps", "every", "samples")}
        configs(given.folder, given.seeds, **numbers)
    elif given.command == "known":
        known(given.folder, any_commit=given.any_commit)
    else:
        again(given.folder, given.seeds, given.number, given.last)


if __name__ == "__main__":
    main()

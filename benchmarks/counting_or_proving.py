"""Prints what counting and pricing a kernel takes beside proving it right, on the CPU device, and the ratio of the two.

    python benchmarks/counting_or_proving.py [TASK-PRECISION ...] [--baselines] [--seconds S]

Looks at the playbook's steps, of all tasks unless some are named; with --baselines at the baselines too. Each is built,
proved (`evaluate --check-only`), then counted at all timed cases and priced, one after the other in this process.
Builds are those of this kernel alone: what all kernels of a task share is there before. The last lines say of how many
kernels counting took less, without builds and with them. --seconds S begins nothing after S seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from time import monotonic

from cudamaster.build.building import Builder
from cudamaster.core.values import BENCHMARK_PRECISIONS, Candidate, Precision, Status
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.modelling import model, tracing
from cudamaster.modelling.verdicts import Modeller, chosen_gpu, counter
from cudamaster.models.playbook import PlaybookModel, merged
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region
from cudamaster.workbench.evaluation import Workbench


def kernels(named: str, *, baselines: bool) -> Iterator[tuple[str, Candidate]]:
    """The kernels of TASK-PRECISION with their names."""
    task, _, which = named.rpartition("-")
    precision, command = Precision(which), CpuDevice().default_command
    if baselines:
        yield f"{named} baseline", Candidate(task, precision, baseline_region(cards.load(task), precision), command)
    for number, step in enumerate(PlaybookModel().steps(task, which), 1):
        yield f"{named} {number}", Candidate(task, precision, step.code, merged(command, step.flags))


def seconds(candidate: Candidate) -> tuple[float, float, float, float]:
    """Of proving a kernel and of counting and pricing it: the builds, and the rest. Raises RuntimeError."""
    card, device = cards.load(candidate.task), CpuDevice()
    builder = Builder(card, candidate.precision, device)
    builder.build_shared()
    builder.forget(candidate)
    bench = Workbench(card, candidate.precision, device)
    verdict = bench.evaluate(candidate, check_only=True)
    if verdict.status is not Status.CORRECT:
        raise RuntimeError(verdict.detail)
    proof = verdict.seconds
    begun = monotonic()
    builder.traced_worker(candidate, read=tracing.prepare)
    built = monotonic()
    labels = [case.label for case in card.cases if case.sweep]
    found = Modeller(builder, counter(builder, device)).counts(candidate, labels)
    if all(isinstance(counts, str) for counts in found.values()):
        raise RuntimeError(f"not counted: {next(iter(found.values()))}")
    gpu = chosen_gpu()
    for counts in found.values():
        if not isinstance(counts, str):
            model.modelled(counts, gpu)
    return proof.build, proof.total - proof.build, built - begun, monotonic() - built


def main() -> None:
    """Measure the kernels of the tasks that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help="TASK-PRECISION")
    parser.add_argument("--baselines", action="store_true", help="the baselines as well")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so long")
    given = parser.parse_args()
    everything = [f"{name}-{precision}" for name in cards.names() for precision in BENCHMARK_PRECISIONS]
    begun, bare, whole = monotonic(), [], []
    print(f"{'seconds':36}proof: build    run   model: build    run   model / proof, run  with builds")
    for named in given.tasks or everything:
        for name, candidate in kernels(named, baselines=given.baselines):
            if monotonic() - begun > given.seconds:
                break
            try:
                proof_built, proof, model_built, modelled = seconds(candidate)
            except RuntimeError as error:
                print(f"{name:36}{error}")
                continue
            bare.append(modelled / proof)
            whole.append((modelled + model_built) / (proof + proof_built))
            print(
                f"{name:36}{proof_built:12.1f}{proof:7.1f}{model_built:15.1f}{modelled:7.1f}{bare[-1]:20.2f}"
                f"{whole[-1]:13.2f}",
                flush=True,
            )
    for what, ratios in (("run", bare), ("with builds", whole)):
        if ratios:
            middle, quick = sorted(ratios)[len(ratios) // 2], sum(ratio < 1 for ratio in ratios)
            print(f"{what}: counting takes less for {quick} of {len(ratios)}; ", end="")
            print(f"ratio {middle:.2f} in the middle, {max(ratios):.2f} at most")


if __name__ == "__main__":
    main()

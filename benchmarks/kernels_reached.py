"""Which kernels of the playbook's steps no verification case launches, and what the CPU device checks of them.

    python benchmarks/kernels_reached.py [GLOB]      # a line for each step that has such kernels, then the sums

GLOB is matched against "task-precision". Kernels are told and not executed (cudamaster/judging/unreached.py), so a step
takes the seconds that its build takes; it is built with little optimisation. An instance of a template is a kernel.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections import Counter
from pathlib import Path

from cudamaster.build.building import Builder
from cudamaster.core import resources
from cudamaster.core.values import Candidate, Precision
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.judging import unreached
from cudamaster.judging.judge_process import Trials
from cudamaster.tasks import cards

SEED = 20261128


def counted(file: Path) -> tuple[Counter[str], list[str]]:
    """How many kernels of a step are launched where, and the cases that a check gets beside its own.

    `verified` by a verification case, `added` by a case that is added for it, `timed` by a timed case alone that the
    CPU device runs, `nowhere` by none of them.
    """
    card, precision, device = cards.load(file.parts[-3]), Precision(file.parts[-2]), CpuDevice()
    builder = Builder(card, precision, device)
    trials = Trials(card, builder, device, device.protocol, calls=1, seed=SEED)
    command = device.default_command.replace("-O3", "-O1")
    candidate = Candidate(card.name, precision, file.read_text(encoding="utf-8"), command)
    with builder.using(candidate):
        build = builder.build(candidate)
        if build.worker is None:
            sys.exit(f"{file}: {build.detail}\n{build.log}")
        judge, checked = builder.judge(), trials.verification(SEED)
        timed = [case for case in card.cases if case.sweep]
        told = unreached.told(device, judge, build.worker, [*checked, *timed])
        if None in told:
            print(f"{file}: {told.count(None)} calls came to no end")
        verified = {kernel for kernels in told[: len(checked)] for kernel in kernels or ()}
        all_timed = {kernel for kernels in told[len(checked) :] for kernel in kernels or ()}
        reach = unreached.reach(card, device, judge, build.worker, checked)
    builder.forget(candidate)
    counts = Counter(
        verified=len(all_timed & verified),
        added=sum(len(kernels) for _, kernels in reach.found),
        timed=sum(trials.runs(case) for case in reach.unreached),
        nowhere=sum(not trials.runs(case) for case in reach.unreached),
    )
    return counts, [f"{case.label} ({case.weight:.1e})" for case, _ in reach.found]


def main() -> None:
    """Counts the kernels of all steps, or of some."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("glob", nargs="?", default="*")
    wanted = parser.parse_args().glob
    files = sorted((resources.package() / "playbook").glob("*/*/*.cu"))
    files = [file for file in files if fnmatch.fnmatch(f"{file.parts[-3]}-{file.parts[-2]}", wanted)]
    sums: Counter[str] = Counter()
    for file in files:
        counts, added = counted(file)
        sums += counts
        if counts.total() > counts["verified"]:
            shown = ", ".join(f"{name} {number}" for name, number in counts.items() if number)
            print(f"{'/'.join(file.parts[-3:])}: {shown}", *added, sep="\n    ", flush=True)
    print(f"{len(files)} steps: " + ", ".join(f"{name} {number}" for name, number in sums.items()))


if __name__ == "__main__":
    main()

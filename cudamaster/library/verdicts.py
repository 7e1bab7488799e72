"""Is a kernel right, how fast is it, and is it faster than another one?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cudamaster.core.errors import UsageError
from cudamaster.core.speed import Change, Comparison
from cudamaster.core.values import Candidate, Verdict
from cudamaster.devices import work
from cudamaster.library.progress import Progress, telling
from cudamaster.library.ranges import LARGEST_SEED, MOST_CALLS, must_be_within
from cudamaster.library.subjects import choose_device, code_of, command_of, load_task, precision_for
from cudamaster.outside import client
from cudamaster.workbench.evaluation import Workbench

if TYPE_CHECKING:
    from cudamaster.devices.protocol import Device
    from cudamaster.judging.paper_protocol import PaperScore
    from cudamaster.tasks.cards import TaskCard


@dataclass(frozen=True)
class Compared:
    """Two kernels of a task, and what `second` is against `first`.

    If both are correct, the score and the speed of the second verdict, and those of its cases, are the speedup over
    `first`: above 1 where `second` is faster. If one is wrong, nothing was timed.
    """

    first: Verdict
    second: Verdict

    @property
    def correct(self) -> bool:
        """Whether both are."""
        return self.first.correct and self.second.correct

    @property
    def speed(self) -> Comparison | None:
        """The speedup of `second` over `first` with its interval; None if no P could be told."""
        return self.second.speed

    @property
    def change(self) -> Change:
        """Faster, slower, same or unsure, of `second`; unsure too if no P could be told."""
        return Change.UNSURE if self.speed is None else self.speed.change


def evaluate(
    task: str | os.PathLike[str] | TaskCard,
    kernel: str | os.PathLike[str] | Candidate,
    *,
    precision: str | None = None,
    device: str | Device = "auto",
    command: str | None = None,
    calls: int | None = None,
    check_only: bool = False,
    seed: int | None = None,
    to_beat: float | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Check a kernel against the reference of a task, and time it against the baseline.

    `task` is a name, the path of a card, or a card. `kernel` is CUDA text, the path of a file (a `Path`), or a
    candidate: kernels and one extern "C" wrapper, or a filled-in harness. `precision` is "fp32", "bf16" or "fp16", by
    default fp32 or what the task has. `device` is a name or the device itself (see `choose_device`). `command` is the
    compile command, `calls` the number of timed calls per case, by default the device's. With `check_only` only the
    small cases run and nothing is timed. `seed` fixes the inputs; by default each evaluation draws a new one, which is
    the verdict's `seed`. With `to_beat`, a P above it only counts if compute-sanitizer finds nothing (on a GPU).

    Returns the verdict. A kernel that fails is a verdict too: `status` says how, `detail` and `log` where. `score` is
    P, the speedup over the baseline (1 is equal, 2 is twice as fast); None unless correct. `cases` has one entry for
    each case: errors of each output in units of the element's scale, times in microseconds of whole calls.

    `progress` gets a line of text when work begins and then once a second, from a thread of its own. Raises UsageError
    for arguments that make no sense, CardError for a card that cannot be used, DeviceError for a device or compiler
    that is missing or failed, and its kind BaselineError if the task's own baseline fails.

    In a program that works for a search, as its outside agent (docs/agents.md), the search judges the kernel: that is
    one of its submissions. Then `calls`, `check_only` and `seed` are refused, and so is another task or precision (by
    default it is the search's); `to_beat` is the search's own best, whatever is given. Raises BudgetSpent when no
    submission is left.
    """
    if (referee := client.of_environment()) is not None:
        settled = {"calls": calls, "check_only": check_only or None, "seed": seed}
        return _by_referee(referee, task, kernel, precision, device, command, settled, progress)
    bench, candidate = placed(task, kernel, precision, device, command, calls, seed)
    if check_only and calls is not None:
        raise UsageError("With --check-only nothing is timed.", "Leave out --check-only or --calls.")
    with telling(progress, name_of(bench), f"building and running on the {bench.device.name} device"):
        return bench.evaluate(candidate, check_only=check_only, to_beat=to_beat)


def evaluate_by_paper(
    task: str | os.PathLike[str] | TaskCard,
    kernel: str | os.PathLike[str] | Candidate,
    *,
    precision: str | None = None,
    device: str | Device = "auto",
    command: str | None = None,
    calls: int | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> PaperScore:
    """What the paper's own protocol says of a kernel: calls back to back with warm caches, at the listed sizes alone.

    Arguments and errors are those of `evaluate`. `status` is our own check at those sizes, `score` the paper's P and
    `within` whether all outputs are within its absolute error of 1e-5 of the baseline's. A device that measures no
    times of its own gives no cases and no score.
    """
    client.must_be_outside("The paper's protocol")
    bench, candidate = placed(task, kernel, precision, device, command, calls, seed)
    with telling(progress, f"{name_of(bench)}: by the paper's protocol", "building and running"):
        paper = bench.by_paper(candidate)
    return replace(paper, cases=()) if bench.device.emulated else paper


def compare(
    task: str | os.PathLike[str] | TaskCard,
    first: str | os.PathLike[str] | Candidate,
    second: str | os.PathLike[str] | Candidate,
    *,
    precision: str | None = None,
    device: str | Device = "auto",
    command: str | None = None,
    calls: int | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Compared:
    """Check two kernels of a task, then time `second` against `first`, in turn and on the same inputs.

    Arguments and errors are those of `evaluate`; `command` is that of both, and `calls` is at least 2. On the CPU
    device a model of a GPU gives the times, and a difference is unsure unless its chance is 90 % or more.
    """
    client.must_be_outside("A comparison")
    must_be_within("calls", calls, 2, MOST_CALLS)
    card, chosen = load_task(task), choose_device(device)
    must_be_within("seed", seed, 0, LARGEST_SEED)
    one = precision_for(card, precision, first, second)
    bench = Workbench(card, one, chosen, seed=seed, calls=calls)
    codes = [code_of(kernel, card, one) for kernel in (first, second)]
    commands = [command_of(kernel, chosen, command) for kernel in (first, second)]
    pair = [Candidate(card.name, one, *each) for each in zip(codes, commands, strict=True)]
    with telling(progress, name_of(bench), f"building and running both on the {chosen.name} device"):
        return Compared(*bench.compare(*pair))


def _by_referee(
    referee: client.Referee,
    task: str | os.PathLike[str] | TaskCard,
    kernel: str | os.PathLike[str] | Candidate,
    precision: str | None,
    device: str | Device,
    command: str | None,
    settled: Mapping[str, object],
    progress: Progress | None,
) -> Verdict:
    """The verdict of the search that this program works for."""
    for name, value in settled.items():
        if value is not None:
            raise UsageError("Inside a search all kernels are judged in the same way.", f"Leave {name} out.")
    about = referee.about()
    card = load_task(task)
    if precision is None and not isinstance(kernel, Candidate):
        precision = about.precision
    one = precision_for(card, precision, kernel)
    if (card.name, one) != (about.task, about.precision):
        raise UsageError(
            f"This search is about {about.task} in {about.precision}, not {card.name} in {one}.",
            "Submit a kernel of that.",
        )
    name = device if isinstance(device, str) else device.name
    if name not in ("auto", about.device):
        raise UsageError(f"This search judges on the {about.device} device, not on {name}.", "Leave device out.")
    own = kernel.command if isinstance(kernel, Candidate) else ""
    submitted = client.Submitted(about.task, about.precision, code_of(kernel, card, one), command or own)
    with telling(progress, f"{card.name} ({one})", "waiting for the verdict of the search"):
        return referee.evaluate(submitted, work.check)


def placed(
    task: str | os.PathLike[str] | TaskCard,
    kernel: str | os.PathLike[str] | Candidate,
    precision: str | None,
    device: str | Device,
    command: str | None,
    calls: int | None,
    seed: int | None,
) -> tuple[Workbench, Candidate]:
    """The workbench and the candidate that are meant."""
    must_be_within("calls", calls, 1, MOST_CALLS)
    must_be_within("seed", seed, 0, LARGEST_SEED)
    card = load_task(task)
    one = precision_for(card, precision, kernel)
    code = code_of(kernel, card, one)  # what is wrong with a file is said before a device is looked for
    chosen = choose_device(device)
    candidate = Candidate(card.name, one, code, command_of(kernel, chosen, command))
    return Workbench(card, one, chosen, seed=seed, calls=calls), candidate


def name_of(bench: Workbench) -> str:
    """The task and its precision, as progress names them."""
    return f"{bench.card.name} ({bench.precision})"

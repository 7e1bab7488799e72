"""A result as one file that others can check, and what a repetition says of a claim."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cudamaster.bundles import contents, packing, task_files, words
from cudamaster.bundles.archive import hash_of
from cudamaster.bundles.contents import Bundle
from cudamaster.bundles.reproduction import FORMAT, Claimed, Reproduction
from cudamaster.core.errors import UsageError, one_line
from cudamaster.core.values import Candidate, Verdict
from cudamaster.core.version import program
from cudamaster.core.writing import must_be_writable
from cudamaster.library.progress import Progress, telling
from cudamaster.library.subjects import load_task
from cudamaster.library.verdicts import name_of, placed
from cudamaster.workbench.evaluation import Workbench

if TYPE_CHECKING:
    from cudamaster.devices.protocol import Device
    from cudamaster.judging.paper_protocol import PaperScore
    from cudamaster.tasks.cards import TaskCard

_AS_A_BEST = 0.0  # so that compute-sanitizer looks at it too, as at every new best of a search
_OUT = "Choose another file with --out."


def bundle(
    result: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    candidate: str | None = None,
    round: int | None = None,
) -> Bundle:
    """Pack a result: the kernel, its command, verdict and raw times, and the files of its task.

    `result` is a run folder, of which the best kernel is meant, its `candidate` of that id or the best of a `round`; or
    the JSON file of a `Reproduction`. Nothing is built or run. `out` is the file to write; without one, call `save` of
    the bundle. The same result gives the same bytes.

    Raises UsageError for a result without a speedup and for a task that has changed since the run, RunFolderError for a
    damaged run.
    """
    packed = packing.of_result(Path(result), candidate=candidate, number=round)
    if out is not None:
        packed.save(Path(out))
    return packed


def read_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Open a bundle, and check it whole; nothing in it is built or run.

    Raises UsageError for a file that is not there, BundleError for one that is damaged, was altered or is no bundle.
    """
    return contents.opened(Path(path))


def reproduce(
    bundle: str | os.PathLike[str] | Bundle,
    *,
    trust: bool = False,
    device: str | Device = "auto",
    command: str | None = None,
    calls: int | None = None,
    seed: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Build and judge the kernel of a bundle again, and say what that means for its claim.

    The kernel is a candidate like any other: it is checked by our guards and runs confined. The card, the baseline and
    the reference of its task are code that is not confined. They are used if they are, byte for byte, those of the
    task of that name that is here, or if you `trust` the bundle's maker; else this raises UsageError.

    `command` is the compile command, by default the bundle's; `device`, `calls`, `seed` and `progress` are as in
    `evaluate`. Inputs are fresh unless there is a `seed`. The result is kept in `out`, as JSON, which `bundle` takes.

    Raises as `read_bundle` and `evaluate`. A kernel that fails is a result, with the word WRONG.
    """
    taken = bundle if isinstance(bundle, Bundle) else read_bundle(bundle)
    taken = taken if taken.sha256 else replace(taken, sha256=hash_of(taken.content))
    must_be_new(out)
    with _task_of(taken, trust=trust) as (card, own):
        kernel = taken.candidate if command is None else replace(taken.candidate, command=command)
        bench, kernel = placed(card, kernel, taken.claim.precision, device, command, calls, seed)
        with telling(progress, name_of(bench), f"building and running on the {bench.device.name} device"):
            verdict = bench.evaluate(kernel, to_beat=_AS_A_BEST)
        found = _judged(words.of_bundle(taken), bench, kernel, verdict, taken.files)
    notes = contents.contradictions(taken)
    # What the card of a bundle says of its earlier forms is its maker's word.
    if taken.claim.card_hash != card.hash if own else not card.times_as(taken.claim.card_hash):
        notes.append("The bundle claims a speedup by another card than it has.")
    if own:
        notes.append(
            "The task is that of the bundle: its maker's baseline is what the kernel is faster than, and that it is of "
            f"the suite {one_line(taken.claim.suite, 80)} is its maker's word."
        )
    elif card.suite != taken.claim.suite:
        notes.append(
            f"The bundle says that its task is of {one_line(taken.claim.suite, 80)}, and here it is "
            f"one of {card.suite}."
        )
    found = replace(
        found,
        suite=taken.claim.suite,
        card_hash=taken.claim.card_hash,
        differs=tuple(words.differs(taken, verdict, found.hardware, found.versions)),
        notes=tuple(notes),
    )
    return _kept(found, out)


def reproduce_claim(
    task: str | os.PathLike[str] | TaskCard,
    kernel: str | os.PathLike[str] | Candidate,
    claim: str | float,
    *,
    tolerance: float | None = None,
    claimed_on: str = "",
    precision: str | None = None,
    device: str | Device = "auto",
    command: str | None = None,
    calls: int | None = None,
    seed: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Put a claim that was made with another harness to the test: a kernel, and the speedup that is stated of it.

    `claim` is best given as it is written, "2.30": its digits say how it was rounded. It holds to a `tolerance`, a part
    of 1, by default 5 % or what rounding hides, whichever is more. `claimed_on` is the GPU that it was measured on,
    where that is known. Other arguments are those of `evaluate`, and `out` is as in `reproduce`.

    The word is by our own protocol. Beside it `paper` has the paper's, calls back to back with warm caches at the
    listed sizes alone, as other harnesses time. Raises as `evaluate`.
    """
    stated = words.stated(str(claim), tolerance=tolerance, gpu=claimed_on)
    must_be_new(out)
    card = load_task(task)
    bench, candidate = placed(card, kernel, precision, device, command, calls, seed)
    name = name_of(bench)
    with telling(progress, name, f"building and running on the {bench.device.name} device"):
        verdict = bench.evaluate(candidate, to_beat=_AS_A_BEST)
    paper = None
    # A device that emulates has no times by any protocol; whether a wrong kernel is right at listed sizes it can say.
    if verdict.cases and not (bench.device.emulated and verdict.correct):
        with telling(progress, f"{name}: by the paper's protocol", "building and running"):
            paper = bench.by_paper(candidate)
            paper = replace(paper, cases=()) if bench.device.emulated else paper
    found = _judged(stated, bench, candidate, verdict, task_files.of(card, bench.precision))
    measured = (*found.measured, *([] if paper is None else [_of_paper(paper, stated)]))
    notes = [] if claimed_on else ["Nobody said which GPU the claim was made on: a speedup belongs to its GPU."]
    return _kept(replace(found, measured=measured, paper=paper, notes=tuple(notes)), out)


def _judged(
    claim: Claimed, bench: Workbench, candidate: Candidate, verdict: Verdict, files: Mapping[str, str]
) -> Reproduction:
    """What a verdict says of a claim."""
    hardware = bench.hardware
    word, said, ratio = words.said(claim, verdict, hardware.name)
    return Reproduction(
        format=FORMAT,
        word=word,
        said=said,
        ratio=ratio,
        claim=claim,
        task=bench.card.name,
        precision=bench.precision,
        suite=bench.card.suite,
        card_hash=bench.card.hash,
        code=candidate.code,
        command=candidate.command,
        verdict=verdict,
        hardware=hardware,
        versions=program(),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        files=files,
        measured=tuple(words.measured(verdict)),
    )


def _of_paper(paper: PaperScore, claim: Claimed) -> str:
    """The paper's protocol in a sentence."""
    listed = f"At the listed sizes alone it is {paper.status}: {paper.detail}."
    if paper.score is None:
        return listed
    agrees = "within the claim's tolerance" if words.agrees(claim, paper.score) else "not what is claimed either"
    return f"{listed} By the paper's protocol, back to back with warm caches, P = {paper.score:.3g}, {agrees}."


@contextlib.contextmanager
def _task_of(taken: Bundle, *, trust: bool) -> Iterator[tuple[TaskCard, bool]]:
    """The task of a bundle, and whether it is the bundle's own, in a folder of its own, or the same that is here."""
    claim = taken.claim
    known = task_files.known(claim.task, claim.precision, taken.files)
    if known is not None:
        yield known, False
        return
    if not trust:
        differs = task_files.differing(claim.task, claim.precision, taken.files)
        raise UsageError(
            f"The task {claim.task} of the bundle is its maker's: {differs}. Its baseline is built and its reference "
            "runs as you, without the walls that a kernel has.",
            "Read task/ in the bundle (`unzip -p FILE 'task/*'`), and add --trust if you would run its programs.",
        )
    with tempfile.TemporaryDirectory(prefix="cudamaster-bundle-") as folder:
        yield task_files.placed(claim.task, taken.files, Path(folder)), True


def must_be_new(out: str | os.PathLike[str] | None) -> None:
    """Raise UsageError for a result that could not be written, or would be in the place of another."""
    if out is None:
        return
    must_be_writable(Path(out), _OUT)
    if Path(out).is_file() and Path(out).stat().st_size:
        raise UsageError(f"{out} is there already, and no measurement is overwritten.", _OUT)


def _kept(found: Reproduction, out: str | os.PathLike[str] | None) -> Reproduction:
    if out is not None:
        found.keep(Path(out))
    return found

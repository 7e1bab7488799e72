"""`cudamaster reproduce`: is a claim true, here and now?"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudamaster.cli import options
from cudamaster.cli.compare import EXIT_CODES as OF_COMPARE
from cudamaster.cli.output import (
    STATUS_STYLES,
    cases_table,
    console,
    ourselves,
    print_json,
    print_to_copy,
    progress_of_cases,
    say_speed,
    table,
    working,
)

if TYPE_CHECKING:
    from rich.console import Console

    from cudamaster.bundles.contents import Bundle
    from cudamaster.bundles.reproduction import Reproduction

# By words (bundles.reproduction.Word); those that `compare` has too have its codes.
EXIT_CODES: Mapping[str, int] = {
    **{str(change): code for change, code in OF_COMPARE.items()},
    "other gpu": 13,
    "wrong": 1,
}
_NOT_RECORDED = "not recorded"


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path), required=False)
@click.option("--show", is_flag=True, help="Show what BUNDLE claims, and build and run nothing.")
@click.option(
    "--trust",
    is_flag=True,
    help="Run the baseline and the reference of BUNDLE though they are not those of a task that is here.",
)
@click.option("--task", help="In place of BUNDLE: the task of a claim made with another harness.")
@click.option("--kernel", type=click.Path(path_type=Path), metavar="FILE.cu", help="With --task: its kernel.")
@click.option("--claim", metavar="P", help="With --task: the speedup that is stated, as it is written, e.g. 2.30.")
@click.option(
    "--tolerance",
    type=options.Number(0, 1, max_open=True),
    metavar="PART",
    help="With --task: how far off P may be, a part of 1.  [default: 0.05, or what rounding hides if that is more]",
)
@click.option(
    "--claimed-on", default="", metavar="GPU", help="With --task: the GPU that it was measured on, such as H100."
)
@options.precision
@options.device
@click.option("--command", help="Compile command; that of BUNDLE, or the device's default, otherwise.")
@click.option(
    "--calls", type=click.IntRange(1, options.MOST_CALLS), help="Timed calls per case; the device's protocol otherwise."
)
@options.seed
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keep the result here, as JSON; by default beside BUNDLE, or in this folder.",
)
@options.as_json
def reproduce(
    bundle: Path | None,
    show: bool,
    trust: bool,
    task: str | None,
    kernel: Path | None,
    claim: str | None,
    tolerance: float | None,
    claimed_on: str,
    precision: str,
    device: str,
    command: str | None,
    calls: int | None,
    seed: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Build, check and measure the kernel of BUNDLE again, and say what that means for its claim.

    A claim that was made with another harness takes --task, --kernel and --claim in place of BUNDLE.

    \b
    Exit codes:
      0   same: right, and as fast as claimed as far as both measurements can tell
      10  faster than claimed
      11  slower than claimed
      12  unsure: too much noise, or times that cannot be compared; the sentence says why
      13  other GPU: the claim is of another model of GPU, and is neither confirmed nor refuted
      1   wrong: the kernel fails

    The kernel runs confined like any candidate. The baseline and the reference of a task do not: those of a bundle are
    only used with --trust, unless they are byte for byte those of the task of that name that is here.
    """
    from cudamaster.library import bundles
    from cudamaster.library.subjects import choose_device, load_task

    _must_fit(bundle, show=show, trust=trust, task=task, kernel=kernel, claim=claim,
              others=tolerance is not None or bool(claimed_on))  # fmt: skip
    if bundle is not None and show:
        _show(bundles.read_bundle(bundle), as_json=as_json)
        return
    # What a configuration file says of these is for other commands: a bundle has its own command, and fresh inputs.
    command, seed = (command if options.was_given("command") else None), (seed if options.was_given("seed") else None)
    stamp = f"{datetime.now():%Y%m%d-%H%M%S}"
    doing = "building, checking and measuring"
    if bundle is not None:
        taken = bundles.read_bundle(bundle)
        name = f"{taken.claim.task} ({taken.claim.precision})"
        file = out or bundle.with_name(f"{bundle.stem}.reproduced-{stamp}.json")
        bundles.must_be_new(file)
        with working(f"{name}: {doing}", hidden=as_json), progress_of_cases(name):
            found = bundles.reproduce(
                taken, trust=trust, device=choose_device(device), command=command, calls=calls, seed=seed
            )
    else:
        assert task is not None
        assert kernel is not None
        assert claim is not None
        card = load_task(task)
        one = options.precision_of(card, precision)
        name = f"{card.name} ({one})"
        file = out or Path(f"{card.name}_{one}.reproduced-{stamp}.json")
        bundles.must_be_new(file)
        with working(f"{name}: {doing}", hidden=as_json), progress_of_cases(name):
            found = bundles.reproduce_claim(
                card, kernel, claim, tolerance=tolerance, claimed_on=claimed_on, precision=one,
                device=choose_device(device), command=command, calls=calls, seed=seed,
            )  # fmt: skip
    file = found.keep(file)
    if as_json:
        print_json(found)
    else:
        _print(console(), found, file)
    click.get_current_context().exit(EXIT_CODES[found.word])


def _must_fit(
    bundle: Path | None,
    *,
    show: bool,
    trust: bool,
    task: str | None,
    kernel: Path | None,
    claim: str | None,
    others: bool,
) -> None:
    """Raise UsageError unless there is a bundle alone, or a stated claim with all that it takes."""
    from cudamaster.core.errors import UsageError

    of_claim = {"--task": task, "--kernel": kernel, "--claim": claim}
    given = [name for name, value in of_claim.items() if value is not None]
    if bundle is not None and (given or others or options.was_given("precision")):
        raise UsageError(
            "A bundle says its task, precision, kernel and claim itself.", "Leave these options out, or the bundle."
        )
    if bundle is None and len(given) < len(of_claim):
        missing = " and ".join(name for name in of_claim if name not in given)
        what = f"{missing} {'is' if missing.count('--') == 1 else 'are'} missing." if given else "There is no bundle."
        raise UsageError(what, "Give a bundle, or --task, --kernel and --claim for a claim made with another harness.")
    if bundle is None and (show or trust):
        raise UsageError("--show and --trust are about a bundle.", "Leave them out.")


def _show(bundle: Bundle, *, as_json: bool) -> None:
    """What a bundle claims, as a table."""
    from cudamaster.bundles import contents, task_files
    from cudamaster.core.errors import one_line
    from cudamaster.devices.machine_code import INSTRUCTIONS, OBJECT

    claim, verdict, build = bundle.claim, bundle.verdict, bundle.verdict.build
    known = task_files.known(claim.task, claim.precision, bundle.files) is not None
    contradictions = contents.contradictions(bundle)
    if as_json:
        said = {"sha256": bundle.sha256, "claim": claim, "command": bundle.candidate.command, "task_is_here": known}
        print_json({**said, "contradictions": contradictions, "files": list(bundle.files), "verdict": verdict})
        return
    figures = claim.hardware.figures
    clocks = [f"{verdict.hardware['sm_mhz']} MHz while calls were timed"] if "sm_mhz" in verdict.hardware else []
    clocks += [f"{name} {figures[name]}" for name in ("largest SM clock", "memory clock") if name in figures]
    turns = [len(case.timing.baseline_us) for case in verdict.cases if case.timing is not None]
    samples = f"{sum(turns)} turns in {len(turns)} cases" if turns else ""
    protocol = ", ".join(f"{count} {name}" for name, count in verdict.protocol.items())
    speed = _said(bundle)
    rows = [
        ("task", f"{claim.task} in {claim.precision}, suite {claim.suite}"),
        ("kernel", f"{claim.candidate}, {len(bundle.candidate.code.splitlines())} lines"),
        ("command", bundle.candidate.command),
        ("P claimed", speed),
        ("checks", f"{verdict.status}: {verdict.detail}"),
        *((f"  {one_line(name)}", said) for name, said in verdict.sanitizers.items()),
        ("device", claim.hardware.name),
        ("driver", figures.get("driver", "")),
        ("compiler", figures.get("CUDA toolkit", figures.get("compiler", ""))),
        ("clocks", "; ".join(clocks)),
        ("raw times", "modelled: there are none" if verdict.modelled else samples),
        ("protocol", "modelled: nothing was timed" if verdict.modelled else protocol),
        ("seed", "" if verdict.seed is None else str(verdict.seed)),
        ("object", build.get(OBJECT, "")),
        ("instructions", build.get(INSTRUCTIONS, "")),
        ("program", ", ".join(f"{name} {version}" for name, version in claim.versions.items())),
        ("made", f"{claim.made}, {claim.origin}"),
        *([("reproduces", claim.reproduces)] if claim.reproduces else []),
        ("its task", "the same as here" if known else "its maker's own: to reproduce it takes --trust"),
        ("sha256", bundle.sha256),
    ]
    out = console()
    out.print(table(["", "claimed"], [[name, one_line(said, 4000) or _NOT_RECORDED] for name, said in rows]))
    for note in (*verdict.notes, *contradictions):
        out.print(f"note: {one_line(note)}")


def _said(bundle: Bundle) -> str:
    verdict = bundle.verdict
    if verdict.speed is not None and verdict.speed.speedup == bundle.claim.score:
        return say_speed(verdict.speed, mark=verdict.mark)
    return f"{bundle.claim.score:.2f}{f' ({verdict.mark})' if verdict.mark else ''}"


def _print(out: Console, found: Reproduction, file: Path) -> None:
    """A reproduction for a person, the word first."""
    from rich.text import Text

    out.print(Text(found.word.upper(), style=STATUS_STYLES.get(found.word, "")), f": {found.said}", sep="")
    if found.verdict.correct:
        out.print(cases_table(found.verdict))
    elif found.verdict.log and found.verdict.log != found.verdict.detail:
        out.print(found.verdict.log)
    for sentence in found.measured:
        out.print(sentence)
    if found.differs:
        out.print("Compared with the claim:")
        for each in found.differs:
            out.print(f"  {each}")
    for note in (*found.notes, *found.verdict.notes):
        out.print(f"note: {note}")
    kept = f"Kept in {file}"
    if found.verdict.score is not None:
        kept += f"; to pass it on: {ourselves('bundle', str(file))}"
    print_to_copy(out, kept)

"""`cudamaster bundle`: a result as one file that others can check."""

from __future__ import annotations

from pathlib import Path

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, ourselves, print_json, print_to_copy


@click.command()
@click.argument("result", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File to write; by default TASK_PRECISION_KERNEL.zip in this folder, or the name of the JSON file as .zip.",
)
@click.option("--candidate", metavar="ID", help="This kernel of the run, by its id; the best one otherwise.")
@click.option("--round", "number", type=click.IntRange(1), metavar="N", help="The best kernel of this round.")
@options.as_json
def bundle(result: Path, out: Path | None, candidate: str | None, number: int | None, as_json: bool) -> None:
    """Pack RESULT, a run folder or what `reproduce` kept, into one file that `cudamaster reproduce` checks.

    It holds the kernel and its compile command, the verdict with the raw times of each call, what was built and on
    which machine, and the card, baseline and reference of the task: a zip archive of texts. The same result gives the
    same bytes.
    """
    from cudamaster.bundles.archive import hash_of
    from cudamaster.core.errors import UsageError
    from cudamaster.library import bundles

    packed = bundles.bundle(result, candidate=candidate, round=number)
    claim = packed.claim
    # A reproduction has the kernel of the bundle that it reproduces: by the kernel's name it would be written over it.
    name = f"{claim.task}_{claim.precision}_{claim.candidate}" if result.is_dir() else result.stem
    file = out or Path(f"{name}.zip")
    if out is None and file.exists() and (not file.is_file() or hash_of(file.read_bytes()) != packed.sha256):
        raise UsageError(f"{file} is there already, and it is another file.", "Name the one to write with --out.")
    packed.save(file)
    if as_json:
        print_json({"file": str(file), "sha256": packed.sha256, "claim": claim})
        return
    out_ = console()
    out_.print(packed.claimed)
    out_.print(f"sha256 {packed.sha256}")
    print_to_copy(out_, f"Wrote {file}", f"To check it: {ourselves('reproduce', str(file))}")

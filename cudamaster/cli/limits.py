"""`cudamaster limits`: what the GPU can do at best, the basis of the floors under times."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, print_json, table

if TYPE_CHECKING:
    from cudamaster.modelling.gpu import Gpu
    from cudamaster.workbench.floors import GpuLimits


@click.command()
@options.device
@click.option("--again", is_flag=True, help="Measure again, even if limits are saved.")
@click.option("--gpu-file", type=click.Path(path_type=Path, dir_okay=False),
              help="Measure also what the model of a GPU needs; write a file for $CUDAMASTER_GPU_MODEL.")  # fmt: skip
@options.as_json
def limits(device: str, again: bool, gpu_file: Path | None, as_json: bool) -> None:
    """Measure the peak rates that this GPU reaches, save and show them.

    These are memory bandwidths and rates of the arithmetic units. They give the least time that a call can take.

    With --gpu-file, latencies, the L2 cache, atomics and calls of the runtime are measured too, in less than a minute.
    A machine without a GPU then models this one: CUDAMASTER_GPU_MODEL=FILE.yaml cudamaster evaluate ...
    """
    from cudamaster.core.errors import DeviceError, UsageError
    from cudamaster.devices.choose import choose, why_not_cuda
    from cudamaster.devices.protocol import Limited
    from cudamaster.workbench import floors

    if gpu_file is not None and gpu_file.suffix != ".yaml":
        raise UsageError(f"The file {gpu_file} of a GPU has to be a .yaml.", "Give another name with --gpu-file.")
    if device == "cpu":
        raise UsageError("The CPU device has no limits: its times are emulated.", "Leave out --device cpu.")
    chosen = choose(device)
    if not isinstance(chosen, Limited):
        raise DeviceError(
            f"Limits cannot be measured here: {why_not_cuda()}.",
            "Run this on a machine with an NVIDIA GPU and nvcc; `cudamaster doctor` says what is missing.",
        )
    found = floors.limits(chosen, again=again, say=lambda words: click.echo(words, err=True))
    assert found is not None  # only emulated devices have none
    place = floors.place(chosen.gpu)
    gpu = None
    if gpu_file is not None:
        from cudamaster.workbench import gpu_file as gpu_files

        click.echo("Measuring latencies, L2, atomics and calls of the runtime ...", err=True)
        gpu = gpu_files.save(gpu_file, found, gpu_files.measure(chosen))
    if as_json:
        said = {"limits": found, "doubts": found.doubts, "kept_in": str(place)}
        if gpu is not None:
            said |= {"gpu_file": str(gpu_file), "figures": gpu.figures, "sources": gpu.sources}
        print_json(said)
        return
    out = console()
    out.print(f"{found.name}, driver {found.driver}, measured {found.date}")
    out.print(table(["limit", "best", "unit", "how"], rows(found), right=["best"]))
    for doubt in found.doubts:
        out.print(f"{doubt} See what else uses the GPU, and measure again with --again.")
    out.print(f"Kept in {place}")
    if gpu is not None:
        out.print(table(["figure of the model", "value", "source"], figures(gpu), right=["value"]))
        out.print(f"For a machine without a GPU: export CUDAMASTER_GPU_MODEL={gpu_file}")
        out.print("Nothing of the model was fitted to this GPU: how far modelled times are off is not known.")


def figures(gpu: Gpu) -> list[list[str]]:
    """The figures of a GPU's file for a person."""
    return [[name, f"{getattr(gpu.figures, name):.4g}", source] for name, source in gpu.sources.items()]


def rows(found: GpuLimits) -> list[list[str]]:
    """The figures for a person: name, value, unit, and how it was measured."""
    clock = f"{found.sm_clock_before_mhz:.0f} before, {found.sm_clock_after_mhz:.0f} after"
    made = [
        ["read", f"{found.read_bytes_per_s / 1e12:.2f}", "TB/s", ""],
        ["write", f"{found.write_bytes_per_s / 1e12:.2f}", "TB/s", ""],
        ["copy", f"{found.copy_bytes_per_s / 1e12:.2f}", "TB/s", "bytes read and bytes written"],
        ["fp32", f"{found.fp32_per_s / 1e12:.1f}", "TFLOP/s", "FFMA"],
        ["bf16 pairs", f"{found.bf16_pairs_per_s / 1e12:.1f}", "TFLOP/s", "HFMA2"],
        ["tensor", f"{found.tensor_per_s / 1e12:.0f}", "TFLOP/s", f"bf16 with fp32 sums, {found.tensor_by}"],
        ["special", f"{found.special_per_s / 1e12:.2f}", "Top/s", "ex2; no part of the floor"],
        ["SM clock", clock, "MHz", f"at most {found.sm_clock_max_mhz}"],
    ]
    if found.tensor_bound_per_s > found.tensor_per_s:
        bound = f"{found.tensor_bound_per_s / 1e12:.0f}"
        made.insert(6, ["tensor bound", bound, "TFLOP/s", f"documented: {found.tensor_by} may not reach the peak"])
    return made

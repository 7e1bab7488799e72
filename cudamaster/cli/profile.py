"""`cudamaster profile`: what the hardware says about a kernel and its baseline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, print_json, styled, table
from cudamaster.core.numerals import plain

if TYPE_CHECKING:
    from rich.console import Console

    from cudamaster.core.values import Bottleneck, KernelProfile
    from cudamaster.library.profiles import Mode, Profiled
    from cudamaster.profiling.configuration import Configuration
    from cudamaster.profiling.metric_sets import MetricSet
    from cudamaster.profiling.thresholds import Thresholds


@click.command()
@click.argument("task")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@options.precision
@options.of_hgemm
@click.option(
    "--case", "which", default="heaviest", show_default=True, help="Which timed case: heaviest, all, or its number."
)
@click.option("--filtered", is_flag=True, help="Show the metrics that decide what bounds the kernel [default].")
@click.option("--full", is_flag=True, help="Show all metrics of the paper's table 6.")
@click.option("--none", "without", is_flag=True, help="Show only what needs no hardware counters.")
@click.option(
    "--metrics", "metric_set", help="Show a named set of metrics (see `cudamaster metrics`) or that of a .yaml file."
)
@click.option(
    "--thresholds",
    default="paper",
    show_default=True,
    help="Thresholds that decide what bounds a kernel: paper, calibrated (for this GPU), or a file.",
)
@click.option("--command", help="Compile command, as for evaluate; the device's default otherwise.")
@options.device
@options.seed
@options.as_json
def profile(
    task: str,
    file: Path | None,
    precision: str,
    which: str,
    filtered: bool,
    full: bool,
    without: bool,
    metric_set: str | None,
    thresholds: str,
    command: str | None,
    device: str,
    seed: int | None,
    as_json: bool,
) -> None:
    """Profile the kernel in FILE and the baseline of TASK with Nsight Compute; without FILE the baseline alone.

    Shows for each kernel what bounds it (its class), throughputs, launch configuration, spills and metrics; the kernel
    that takes most of the time comes first.

    On the CPU device the profile is modelled: the kernels' work is counted, and a model of a GPU estimates its time
    (docs/gpu_model.md). What the model cannot estimate is left out, and the output says so.
    """
    from cudamaster.library.profiles import Profiling

    mode = cast("Mode", options.one_of({"filtered": filtered, "full": full, "none": without}) or "filtered")
    asked = Profiling(
        task, file, precision=options.given_precision(precision), case=which, mode=mode, metrics=metric_set,
        thresholds=thresholds, command=command, device=device, seed=seed,
    )  # fmt: skip
    out = console()
    if asked.refused and asked.verdict is not None:
        if as_json:
            print_json({"verdict": asked.verdict})
        else:
            out.print(styled(asked.verdict.status), f": {asked.verdict.detail}", sep="")
            out.print(f"Only a correct kernel is profiled; see `cudamaster evaluate {task} {file}`.")
        click.get_current_context().exit(1)
    seen: list[Profiled] = []
    said: set[str] = set()
    for who, case in asked.steps():
        with out.status(f"{who}, {case.label}: profiling"):
            seen.append(asked.profiled(who, case))
        if not as_json:
            show(out, seen[-1], asked.thresholds, mode, asked.metrics, said)
    if as_json:
        print_json({"thresholds": asked.thresholds.described, "profiles": seen})


def show(
    out: Console, one: Profiled, thresholds: Thresholds, mode: str, named: MetricSet | None, said: set[str]
) -> None:
    """One profile for a person. `said` keeps the printed reasons for missing counters, so each appears once."""
    from cudamaster.devices.ncu import NoProfile

    who, case, found = one.who, one.case, one.profile
    if isinstance(found, NoProfile):
        out.print(f"{who}, {case}: no counters{'' if found.reason in said else f', {found.reason}'}.")
        said.add(found.reason)
        if one.not_timed is not None:
            out.print(f"It was not timed: {one.not_timed}.")
        if (other := one.findings) is not None:
            out.print(other.note.removeprefix(f"{found.reason}. "))
            out.print(table(["figure", "value"], [[k, _figure(v)] for k, v in other.metrics.items()], right=["value"]))
        return
    total_us = sum(kernel.duration_us for kernel in found.kernels)
    marked = "" if found.modelled is None else " (modelled)"
    out.print(f"{who} {found.candidate}, {case}: {plain(total_us)} µs in kernels per call{marked}")
    if found.modelled is not None:
        out.print(f"{found.modelled.described}; no GPU measured it.")
        parts = [[name, plain(time_us)] for name, time_us in found.breakdown.items()]
        out.print(table(["where the time of a call goes (modelled)", "µs"], parts, right=["µs"]))
    out.print(kernels_table(found.kernels, thresholds))
    out.print(launches_table(found.kernels, one.launches or ()))
    if named is not None:
        out.print(named_table(found.kernels, named))
    else:
        full, modelled = mode == "full", found.modelled is not None
        out.print(metrics_table(found.kernels, thresholds, full=full, modelled=modelled))
        if modelled and (absent := _absent(found.kernels, thresholds, full=full)):
            out.print(f"The model does not give {', '.join(absent)}.")


def kernels_table(kernels: Sequence[KernelProfile], thresholds: Thresholds) -> Any:
    """Class, share of the time and the three throughputs of each kernel, and all of them weighted by time."""
    axes = list(thresholds.throughputs.values())
    total_us = sum(kernel.duration_us for kernel in kernels)
    rows = []
    for kernel in kernels:
        throughputs = [_figure(kernel.metrics.get(name)) for name in axes]
        share = f"{kernel.duration_us / total_us:.0%}" if total_us > 0 else "-"
        row = [_short(kernel), plain(kernel.duration_us), share, str(kernel.launches), _class(kernel, thresholds)]
        rows.append([*row, *throughputs])
    if len(kernels) > 1 and total_us > 0:
        whole = [_figure(_weighted(kernels, name)) for name in axes]
        rows.append(["all, by time", plain(total_us), "100%", str(sum(k.launches for k in kernels)), "", *whole])
    columns = ["kernel", "µs", "share", "launches", "class", "SM %", "DRAM %", "memory %"]
    return table(columns, rows, right=["µs", "share", "launches", "SM %", "DRAM %", "memory %"])


def launches_table(kernels: Sequence[KernelProfile], launches: Sequence[Configuration]) -> Any:
    """How each kernel was launched, and what keeps further blocks off an SM."""
    rows = []
    for kernel, launch in zip(kernels, launches, strict=True):
        shared = [part for part in (launch.static_shared_bytes, launch.dynamic_shared_bytes) if part is not None]
        spills = [part for part in (launch.spill_store_bytes, launch.spill_load_bytes) if part is not None]
        rows.append(
            [
                _short(kernel),
                f"{_figure(launch.blocks)} x {_figure(launch.threads)}",
                _figure(launch.registers),
                _figure(sum(spills) if spills else None),
                _figure(sum(shared) if shared else None),
                _figure(launch.waves),
                f"{_figure(launch.achieved_occupancy)} of {_figure(launch.occupancy)}",
                ", ".join(launch.limited_by) or "-",
            ]
        )
    columns = ["kernel", "blocks x threads", "registers", "spills B", "shared B", "waves", "occupancy %", "limited by"]
    return table(columns, rows, right=columns[1:-1])


def _names(kernel: KernelProfile, thresholds: Thresholds, *, full: bool) -> tuple[str, ...]:
    """Paper names of what is shown of a kernel."""
    from cudamaster.profiling.filter import classify

    if full:
        return tuple(thresholds.metrics)
    kind = classify(kernel.metrics, thresholds)
    return thresholds.kept[kind] if kind else ()


def _absent(kernels: Sequence[KernelProfile], thresholds: Thresholds, *, full: bool) -> list[str]:
    """The names of what is shown if it is there."""
    from cudamaster.profiling.thresholds import DURATION

    wanted = [(kernel, name) for kernel in kernels for name in _names(kernel, thresholds, full=full)]
    missing = (name for kernel, name in wanted if thresholds.metrics[name].ncu not in kernel.metrics)
    return [name for name in dict.fromkeys(missing) if name != DURATION]


def metrics_table(
    kernels: Sequence[KernelProfile], thresholds: Thresholds, *, full: bool, modelled: bool = False
) -> Any:
    """The metrics that matter for each kernel's class, or all of them; `modelled` leaves out absent ones."""
    from cudamaster.profiling.thresholds import DURATION

    rows = []
    for kernel in kernels:
        for name in _names(kernel, thresholds, full=full):
            metric = thresholds.metrics[name]
            value = kernel.duration_us * 1e3 if name == DURATION else kernel.metrics.get(metric.ncu)
            if value is None and modelled:
                continue
            rows.append([_short(kernel), name, _figure(value), metric.unit, metric.meaning])
    return table(["kernel", "metric", "value", "unit", "meaning"], rows, right=["value"])


def named_table(kernels: Sequence[KernelProfile], named: MetricSet) -> Any:
    """The metrics of a named set, under this chip's names for them; a dash for each that it lacks."""
    from cudamaster.profiling.metric_sets import resolve

    rows = []
    for kernel in kernels:
        found = resolve(named.metrics, kernel.metrics)
        for metric in named.metrics:
            name = found.names.get(metric, metric)
            rows.append([_short(kernel), name, _figure(kernel.metrics.get(name)), named.meanings.get(metric, "")])
    return table(["kernel", "metric", "value", "meaning"], rows, right=["value"])


def _class(kernel: KernelProfile, thresholds: Thresholds) -> str:
    from cudamaster.profiling.filter import classify

    kind: Bottleneck | None = classify(kernel.metrics, thresholds)
    return kind.value if kind else "not known"


def _weighted(kernels: Sequence[KernelProfile], name: str) -> float | None:
    """Mean over all kernels, weighted by time; None if one of them lacks the metric."""
    values = [(kernel.metrics.get(name), kernel.duration_us) for kernel in kernels]
    if any(value is None for value, _ in values):
        return None
    return sum((value or 0.0) * time for value, time in values) / sum(time for _, time in values)


def _short(kernel: KernelProfile) -> str:
    return kernel.kernel.removesuffix("_kernel_optimized")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"

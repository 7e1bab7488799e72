"""`cudamaster calibrate`: thresholds of the profile filter for the GPU found, from all baselines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, print_json, table

if TYPE_CHECKING:
    from cudamaster.devices.cuda import CudaDevice
    from cudamaster.profiling.calibration import Point, Table
    from cudamaster.profiling.thresholds import Calibration, Cutoffs, Thresholds


@click.command()
@click.argument("baselines", nargs=-1, metavar="[TASK-PRECISION]...")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to write to, instead of your own configuration.",
)
@click.option(
    "--from",
    "data",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Use the CSV of an earlier calibration, without a GPU.",
)
@click.option("--gpu", help="With --from: name of the GPU where the data were measured.")
@options.as_json
def calibrate(baselines: tuple[str, ...], out: Path | None, data: Path | None, gpu: str | None, as_json: bool) -> None:
    """Profile every baseline, and derive the thresholds that decide what bounds a kernel on this GPU.

    Otsu's method gives one threshold each for compute, DRAM and memory throughput. Data (CSV), thresholds and a plot
    are kept for this GPU, for `--thresholds calibrated`. Baselines that are in the CSV are not measured again. --from
    needs no GPU.
    """
    from cudamaster.core import resources
    from cudamaster.core.errors import UsageError
    from cudamaster.core.writing import must_be_writable
    from cudamaster.profiling import calibration, thresholds

    if data is not None and not gpu:
        raise UsageError("--from needs the name of the GPU of the data.", 'Give it, e.g. --gpu "NVIDIA H200".')
    if data is not None and baselines:
        raise UsageError("--from measures nothing, and uses every row of the file.", "Leave out TASK-PRECISION.")
    if data is None and gpu is not None:
        raise UsageError("Without --from this machine's GPU is measured.", "Leave out --gpu, or give data with --from.")
    default = thresholds.load()
    measured: dict[str, object] = {}
    if data is None:
        device = _gpu()
        gpu = device.gpu.name
    assert gpu is not None
    folder = out or resources.calibrations() / thresholds.folder_name(gpu)
    must_be_writable(folder / "thresholds.yaml", "Choose another folder with --out.")
    points_table = calibration.Table(data or folder / "throughputs.csv")
    failed: list[str] = []
    if data is None:
        # GPUs of one architecture have the same candidates, so the data do not show which GPU they are from.
        earlier = _beside(points_table.path)
        if earlier is not None and earlier.gpu != gpu:
            raise UsageError(f"{folder} holds data of an {earlier.gpu}, and this is an {gpu}.", "Give another --out.")
        known = points_table.read()
        failed = list(_measure(device, points_table, wanted(baselines), default, as_json=as_json))
        if points_table.read() != known:
            measured = {"driver": device.gpu.driver, "toolkit": device.toolkit}
    points = points_table.read()
    found = calibration.limits(points)
    kept = folder / "thresholds.yaml"
    made_on = {**_dated(measured, points_table.path, gpu), "kernels": len(points)}
    calibration.write(kept, gpu, found, made_on, points_table.path)
    plot = folder / "throughputs.svg"
    files = [points_table.path, kept]
    try:
        calibration.draw(points, found, default.thresholds, f"{gpu}, {len(points)} baselines", plot)
        files.append(plot)
    except ImportError as error:  # a machine for measuring may lack what drawing needs
        click.echo(f"There is no plot: {error}. Draw it elsewhere: --from {points_table.path.name}.", err=True)
    calibrated = thresholds.choose(str(kept), gpu)
    before, after = calibration.classes(points, default), calibration.classes(points, calibrated)
    if as_json:
        moved = {name: [before[name], after[name]] for name in before if before[name] is not after[name]}
        about = {"gpu": gpu, "kernels": len(points), "files": [str(file) for file in files]}
        print_json({**about, "thresholds": found.model_dump(), "moved": moved, "failed": failed})
        return
    _show(points, found, default, calibrated, failed)
    click.echo(f"Kept: {', '.join(map(str, files))}")


def wanted(baselines: Sequence[str]) -> list[tuple[str, str]]:
    """(task, precision) of the arguments, all hundred without any. Raises UsageError for a name that is none."""
    from cudamaster.core.errors import UsageError
    from cudamaster.core.values import BENCHMARK_PRECISIONS
    from cudamaster.tasks import cards

    everything = [(name, precision.value) for name in cards.names() for precision in BENCHMARK_PRECISIONS]
    by_name = {f"{task}-{precision}": (task, precision) for task, precision in everything}
    if unknown := [name for name in baselines if name not in by_name]:
        raise UsageError(f"There is no baseline {', '.join(unknown)}.", "Name them like spmv_csr-bf16.")
    return [by_name[name] for name in baselines] or everything


def _gpu() -> CudaDevice:
    from cudamaster.core.errors import DeviceError
    from cudamaster.devices.choose import choose, why_not_cuda
    from cudamaster.devices.cuda import CudaDevice

    device = choose("auto")
    if not isinstance(device, CudaDevice):
        raise DeviceError(
            f"Nothing can be profiled here: {why_not_cuda()}.",
            "Run this on a machine with an NVIDIA GPU and nvcc, or give saved data: --from throughputs.csv.",
        )
    return device


def _measure(
    device: CudaDevice, kept: Table, baselines: Sequence[tuple[str, str]], default: Thresholds, *, as_json: bool
) -> Iterator[str]:
    """Profile the baselines that are not saved yet; yields those that failed, with the reason."""
    from concurrent.futures import ThreadPoolExecutor
    from contextlib import ExitStack

    from cudamaster.core.errors import DeviceError
    from cudamaster.core.values import Precision
    from cudamaster.devices.ncu import DURATION, NoProfile
    from cudamaster.profiling import calibration
    from cudamaster.tasks import cards
    from cudamaster.workbench.evaluation import Workbench

    known = {(point.task, point.precision, point.candidate) for point in kept.read()}
    benches = [Workbench(cards.load(task), Precision(precision), device) for task, precision in baselines]
    todo = [b for b in benches if (b.card.name, b.precision.value, b.baseline.id) not in known]
    metrics = [DURATION, *default.throughputs.values()]
    out = console()
    with ThreadPoolExecutor() as pool, ExitStack() as leaving:
        # After an error or Ctrl-C, builds that have not begun are dropped.
        leaving.callback(pool.shutdown, wait=False, cancel_futures=True)
        builds = [(bench, pool.submit(bench.profiler.build, bench.baseline)) for bench in todo]
        for number, (bench, build) in enumerate(builds, 1):
            name = f"{bench.card.name}-{bench.precision.value}"
            heaviest = max((case for case in bench.card.cases if case.sweep), key=lambda case: case.weight)
            with out.status(f"{number} of {len(todo)}: {name}, {heaviest.label}"):
                build.result()
                profile = bench.profiler.profile(bench.baseline, heaviest.label, metrics)
            if isinstance(profile, NoProfile) and profile.of_machine:
                raise DeviceError(f"Nothing can be profiled here: {profile.reason}.", "What was measured is kept.")
            if isinstance(profile, NoProfile):
                click.echo(f"{name}: no profile, {profile.reason}", err=True)
                yield f"{name}: {profile.reason}"
                continue
            point = calibration.point(bench.card.name, bench.precision.value, profile, default)
            kept.add(point)
            if not as_json:
                figures = (point.compute, point.dram, point.memory)
                shown = ", ".join("-" if value is None else f"{value:.1f}" for value in figures)
                out.print(f"{number} of {len(todo)}: {name}: {point.kernel} {point.time_us:.4g} µs, {shown} %")


def _dated(measured: dict[str, object], data: Path, gpu: str) -> dict[str, object]:
    """When and on what it was measured: now, or what the calibration of this GPU that lies beside kept data says."""
    import datetime

    if measured:
        return {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), **measured}
    earlier = _beside(data)
    if earlier is None or earlier.gpu != gpu:
        return dict.fromkeys(("date", "driver", "toolkit"), "not known")
    return {"date": earlier.date, "driver": earlier.driver, "toolkit": earlier.toolkit}


def _beside(data: Path) -> Calibration | None:
    """What an earlier calibration wrote beside its data; None where there is none, or a damaged one."""
    from cudamaster.core.errors import UsageError
    from cudamaster.profiling import thresholds

    try:
        return thresholds.calibration(data.with_name("thresholds.yaml"))
    except UsageError:
        return None


def _show(
    points: Sequence[Point], found: Cutoffs, default: Thresholds, calibrated: Thresholds, failed: Sequence[str]
) -> None:
    from cudamaster.profiling import calibration

    out = console()
    rows = []
    for axis in calibration.AXES:
        values = [value for point in points if (value := getattr(point, axis)) is not None]
        high = sum(value > getattr(found, axis) for value in values)
        limit, usual = getattr(found, axis), getattr(default.thresholds, axis)
        rows.append([axis, f"{limit:.1f} %", f"{usual:g} %", f"{high} of {len(values)}"])
    out.print(table(["throughput", "Otsu", "default", "above Otsu"], rows, right=["Otsu", "default", "above Otsu"]))
    before, after = calibration.classes(points, default), calibration.classes(points, calibrated)
    moved = calibration.moves(before, after)
    out.print(f"{sum(moved.values())} of {len(points)} kernels change class by these thresholds")
    for (old, new), count in moved.most_common():
        out.print(f"  {count}: {old or 'not known'} to {new or 'not known'}")
    for line in failed:
        out.print(f"not profiled: {line}")

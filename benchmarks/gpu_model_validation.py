"""Fit and validation of the GPU model: part of benchmarks/gpu_model.py.

fit         constants from four fifths of the tasks         profiles/gpu_model.yaml, and a table of what moved
validate    the lines that it has to reach, on these and    the same file, results/gpu_model/validation.{json,md}
            on the fifth that is held out
    parts       each part of it against counters
    classes     how many baselines have the class that Nsight Compute's throughputs gave them
draw        modelled against measured                       results/gpu_model/validation.svg
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import gpu_model_lines
import gpu_model_parts
import kernel_metrics
from gpu_model_accuracy import APART, Accuracy, Compared, Pair, accuracy, pairs
from gpu_model_data import TABLES, Counted, playbook_files, read, some_cases
from gpu_model_fitting import OF_GPU, OF_MODEL, Example, compared, fit

from cudamaster.core import resources
from cudamaster.core.values import Bottleneck, GpuModel
from cudamaster.modelling import constants as fitting_constants
from cudamaster.modelling import gpu as gpus
from cudamaster.modelling import measured
from cudamaster.modelling.constants import KnownError
from cudamaster.modelling.counts import CallCounts
from cudamaster.modelling.model import modelled, profile, refused
from cudamaster.models.playbook import read_step
from cudamaster.profiling import calibration, thresholds
from cudamaster.profiling.filter import classify
from cudamaster.tasks import cards

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "results" / "gpu_model"
COUNTS = FOLDER / "counts.jsonl.gz"
TIMES = ROOT / "results" / "h200" / "times.csv"
MEASURED = FOLDER / "measured.csv.gz"
COUNTERS = FOLDER / "counters.csv.gz"
WORST = 12


def examples() -> list[Example]:
    """Every call that was both counted and measured.

    Times are those of one run where there are any of a task (measured.csv.gz, each kernel in turn with the baseline);
    else those of one table, but of kernels with a changed constant, which have tables of their own.
    """
    together = _in_turn(MEASURED)
    known = {(task, precision) for task, precision, _, _ in together}
    apart = {**_of_variants(), **_by_call(TIMES)}
    times = {call: time for call, time in apart.items() if call[:2] not in known} | together
    found = []
    for each in _counted():
        call = (each.task, each.precision, each.kernel, each.case)
        if isinstance(each.counts, str):
            continue
        time = times.get(call)
        if time is not None and time.code in (None, each.code):
            found.append(Example(each.counts, time))
    return found


def _in_turn(path: Path) -> dict[tuple[str, str, str, str], measured.Time]:
    """Times as they would be, had the baseline taken as long beside every kernel as in the median: what a machine does
    beside the measurement then is the same for all kernels of a task."""
    if not path.is_file():
        return {}
    times = _by_call(path)
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        call = (row["task"], row["precision"], row["kernel"], row["case"])
        against = times.get((*call[:2], "baseline", call[3]))
        if against is None or not row.get("baseline_us"):
            continue
        time = times[call]
        device = time.device_us
        if device is not None and against.device_us is not None and row.get("baseline_device_us"):
            device *= against.device_us / float(row["baseline_device_us"])
        whole = time.whole_us * against.whole_us / float(row["baseline_us"])
        times[call] = dataclasses.replace(time, whole_us=whole, device_us=device, empty_us=against.empty_us)
    return times


def _counted() -> Iterator[Counted]:
    return read(sorted(FOLDER.glob("counts*.jsonl.gz")))


def _by_call(path: Path) -> dict[tuple[str, str, str, str], measured.Time]:
    times = measured.read(path) if path.is_file() else []
    return {(each.task, each.precision, each.kernel, each.case): each for each in times}


def _of_variants() -> dict[tuple[str, str, str, str], measured.Time]:
    """Times of kernels with a changed constant, from the tables of kernel_metrics.py: of whole calls, heaviest case."""
    found = {}
    for path in sorted(TABLES.glob("*.csv")):
        task, precision = path.stem.split("-")
        ideas = {read_step(file).idea: file.stem for file in playbook_files(task, precision)}
        (heaviest,) = some_cases(cards.load(task), 1)
        for name, row in kernel_metrics.read(path).items():
            call = (task, precision, ideas.get(name, name), heaviest)
            found[call] = measured.Time(*call, float(row["time_us"]))
    return found


def split(of: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """Those of tasks to fit on, and those of the tasks that are held out for ever."""
    categories = {name: cards.load(name).category for name in cards.names()}
    to_fit, _ = measured.split(categories)
    return [one for one in of if one.time.task in to_fit], [one for one in of if one.time.task not in to_fit]


def run_fit(gpu_name: str) -> None:
    """Fit, and write constants and the GPU's fitted figures."""
    mine, _ = split(examples())
    gpu, fitted = gpus.load(gpu_name), fitting_constants.shipped()
    found = fit(mine, gpu, fitted.constants)
    tasks = len({one.time.task for one in mine})
    print(f"{len(mine)} calls of {tasks} tasks; cost {found.before:.4f} to {found.after:.4f}")
    for name, (low, high) in OF_MODEL.items():
        before, after = getattr(fitted.constants, name), getattr(found.constants, name)
        print(f"  {name}: {before:.4g} to {after:.4g}, of {low:g} to {high:g}")
    for name, (low, high) in OF_GPU.items():
        before, after = getattr(gpu.figures, name), getattr(found.gpu.figures, name)
        print(f"  {gpu_name}'s {name}: {before:.4g} to {after:.4g}, of {low:g} to {high:g}")
    rounded = {name: float(f"{getattr(found.constants, name):.4g}") for name in OF_MODEL}
    constants = found.constants.model_copy(update=rounded)
    keep(fitted.model_copy(update={"constants": constants, "known_error": None, "intervals": None}))
    _write_fitted(gpu_name, {name: getattr(found.gpu.figures, name) for name in OF_GPU})


def keep(fitted: fitting_constants.Fitted) -> None:
    """Write the file of constants, which this process models with from now on."""
    fitting_constants.place().write_text(fitting_constants.to_yaml(fitted))
    fitting_constants.shipped.cache_clear()


def _write_fitted(name: str, values: Mapping[str, float]) -> None:
    """Put fitted values in the file of a GPU that ships, line by line: the rest of it stays as it is."""
    path = resources.profiles() / "gpus" / f"{name}.yaml"
    text = path.read_text(encoding="utf-8")
    for figure, value in values.items():
        text, count = re.subn(rf"^(  {figure}: {{value: )[^,]*", rf"\g<1>{value:.4g}", text, flags=re.MULTILINE)
        assert count == 1, figure
    path.write_text(text, encoding="utf-8")


def run_validate(gpu_name: str) -> None:
    """Report on tasks that are held out and on the others, and keep the error beside the constants."""
    gpu, fitted = gpus.load(gpu_name), fitting_constants.shipped()
    every = examples()
    to_fit, to_report = split(every)
    by_group = {
        "held out": compared(to_report, gpu, fitted.constants),
        "fitted on": compared(to_fit, gpu, fitted.constants),
        "held out, time on the device": compared(to_report, gpu, fitted.constants, device=True),
        "fitted on, time on the device": compared(to_fit, gpu, fitted.constants, device=True),
    }
    figures = {name: accuracy(each) for name, each in by_group.items() if each}
    held_out = figures["held out"]
    shares = {name: gpu_model_lines.lines(by_group[name], _weights) for name in ("fitted on", "held out")}
    for name, share in classes(gpu, fitted.constants).items():
        shares[name].append(share)
    FOLDER.mkdir(parents=True, exist_ok=True)
    fitted_to = {id(one) for one in to_fit}
    content = {
        "version": fitted.version,
        "gpu": gpu.name,
        "lines": {name: [dataclasses.asdict(each) for each in group] for name, group in shares.items()},
        "accuracy": {name: dataclasses.asdict(each) for name, each in figures.items()},
        "calls": [_row(one, gpu, fitted.constants, id(one) in fitted_to) for one in every if _has_time(one, gpu)],
    }
    (FOLDER / "validation.json").write_text(json.dumps(content, indent=1) + "\n")
    (FOLDER / "validation.md").write_text(_markdown(figures, by_group, shares, gpu, fitted))
    assert held_out.rank_correlation is not None
    assert held_out.times_within is not None
    error = KnownError(
        gpu=gpu.name,
        date=datetime.date.today().isoformat(),
        times=held_out.times,
        pairs=held_out.pairs,
        rank_correlation=round(held_out.rank_correlation, 3),
        times_within=round(held_out.times_within, 2),
        ratios_within=None if held_out.ratios_within is None else round(held_out.ratios_within, 2),
        pairs_ordered=None if held_out.ordered_share is None else round(held_out.ordered_share, 3),
    )
    keep(fitted.model_copy(update={"known_error": error}))
    print((FOLDER / "validation.md").read_text())


def _has_time(one: Example, gpu: gpus.Gpu) -> bool:
    return refused(one.counts, gpu) is None


def _weights(task: str) -> Mapping[str, float]:
    return {case.label: case.weight for case in cards.load(task).cases if case.sweep}


def classes(gpu: gpus.Gpu, constants: fitting_constants.Constants) -> dict[str, gpu_model_lines.Share]:
    """Share of the kernels whose longest launch has the class of its counters: fitted on, and held out.

    Without counters of all kernels, of the baselines that were profiled for the thresholds.
    """
    categories = {name: cards.load(name).category for name in cards.names()}
    _, held_out = measured.split(categories)
    found = Counter[tuple[bool, bool]]()
    for task, right in _classes_of_kernels(gpu, constants) or _classes_of_baselines(gpu):
        found[task in held_out, right] += 1
    return {
        name: gpu_model_lines.Share(
            "class as Nsight Compute's", found[held, True], found[held, True] + found[held, False], 0.9
        )
        for name, held in (("fitted on", False), ("held out", True))
    }


def _classes_of_kernels(gpu: gpus.Gpu, constants: fitting_constants.Constants) -> list[tuple[str, bool]]:
    if not COUNTERS.is_file():
        return []
    limits, rows = thresholds.load(), gpu_model_parts.read(COUNTERS)
    found = []
    for each in _counted():
        launches = rows.get((each.task, each.precision, each.code, each.case))
        if launches is None or isinstance(each.counts, str) or refused(each.counts, gpu) is not None:
            continue
        pair = gpu_model_parts.longest(each.counts, launches, gpu, constants)
        if pair is not None and classify(pair[1], limits) is not None:
            found.append((each.task, classify(pair[0], limits) == classify(pair[1], limits)))
    return found


def _classes_of_baselines(gpu: gpus.Gpu) -> list[tuple[str, bool]]:
    return [(task, measured == by_model) for task, measured, by_model in _classes(gpu)]


def _classes(gpu: gpus.Gpu) -> Iterator[tuple[str, Bottleneck, Bottleneck]]:
    """Of each baseline at its heaviest case: its task, and the classes by measured and by modelled throughputs."""
    limits = thresholds.load()
    counted = {(each.task, each.precision, each.case): each.counts for each in _counted() if each.kernel == "baseline"}
    for point in calibration.Table(resources.profiles() / "nvidia_h200" / "throughputs.csv").read():
        counts = counted.get((point.task, point.precision, point.case))
        if not isinstance(counts, CallCounts):
            continue
        throughputs = {name: getattr(point, axis) for axis, name in limits.throughputs.items()}
        kernels = profile(counts, gpu, "", GpuModel("", gpu.name)).kernels
        yield point.task, classify(throughputs, limits), classify(kernels[0].metrics, limits)


def run_parts(gpu_name: str) -> None:
    """Each part of the model against Nsight Compute's counters."""
    gpu, constants = gpus.load(gpu_name), fitting_constants.shipped().constants
    print("\n".join(gpu_model_parts.table(_launches(gpu, constants), gpu, constants)))


def _launches(gpu: gpus.Gpu, constants: fitting_constants.Constants) -> list[gpu_model_parts.Compared]:
    rows = gpu_model_parts.read(COUNTERS)
    found: list[gpu_model_parts.Compared] = []
    for each in _counted():
        launches = rows.get((each.task, each.precision, each.code, each.case))
        if launches is not None and isinstance(each.counts, CallCounts) and refused(each.counts, gpu) is None:
            found += gpu_model_parts.launches(each.counts, launches, each.task, gpu, constants)
    return found


def _row(one: Example, gpu: gpus.Gpu, constants: fitting_constants.Constants, to_fit: bool) -> dict[str, object]:
    call = modelled(one.counts, gpu, constants)
    time = one.time
    main = call.dominating
    return {
        "task": time.task,
        "precision": time.precision,
        "kernel": time.kernel,
        "case": time.case,
        "group": "fit" if to_fit else "held out",
        "measured_us": round(time.whole_us, 2),
        "modelled_us": round(call.whole_us, 2),
        "measured_device_us": None if time.device_us is None else round(time.device_us, 2),
        "modelled_device_us": round(call.device_us, 2),
        "bound": call.bound,
        "parts_us": {}
        if main is None
        else {part.value: round(us, 2) for part, us in main.parts_us.items() if us > 0.01},
    }


def _markdown(
    figures: dict[str, Accuracy],
    by_group: dict[str, list[Compared]],
    shares: Mapping[str, Sequence[gpu_model_lines.Share]],
    gpu: gpus.Gpu,
    fitted: fitting_constants.Fitted,
) -> str:
    lines = [
        "# Modelled times against measured ones",
        "",
        f"gpu-model v{fitted.version}, {gpu.name}. Made by `python benchmarks/gpu_model.py validate`. Times are of",
        "whole calls unless it says otherwise. Pairs in the table of all figures are two kernels of one task at one",
        f"case whose measured times are more than {100 * (APART - 1):.0f} % apart. A fifth of the tasks is held out",
        "for ever.",
        "",
        "## What it has to reach",
        "",
        *gpu_model_lines.table(shares),
        "",
        *_paths(by_group),
        "## All figures",
        "",
        "| calls | times | rank correlation | modelled / measured: 5 % | 25 % | median | 75 % | 95 % | 9 of 10 within "
        "| pairs | ordered rightly | their ratio, 9 of 10 within |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(_line(name, each) for name, each in figures.items()),
        "",
        "## By category, tasks that are held out",
        "",
        "| category | times | rank correlation | median ratio | 9 of 10 within | pairs | ordered rightly |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    reported = by_group["held out"]
    for category, calls in _grouped(reported, lambda one: cards.load(one.measured.task).category):
        each = accuracy(calls)
        lines.append(
            f"| {category} | {each.times} | {_figure(each.rank_correlation)} | {each.quantiles[0.5]:.2f} "
            f"| {_figure(each.times_within)} | {each.pairs} | {_percent(each.ordered_share)} |"
        )
    lines += ["", "## By task, those that are held out, the worst first", ""]
    lines += ["| task | times | median ratio | 9 of 10 within | pairs | ordered rightly |", "|---|--:|--:|--:|--:|--:|"]
    of_task = [(task, accuracy(calls)) for task, calls in _grouped(reported, lambda one: one.measured.task)]
    for task, each in sorted(of_task, key=lambda pair: -(pair[1].times_within or 0)):
        lines.append(
            f"| {task} | {each.times} | {each.quantiles[0.5]:.2f} | {_figure(each.times_within)} "
            f"| {each.pairs} | {_percent(each.ordered_share)} |"
        )
    everything = [*by_group["held out"], *by_group["fitted on"]]
    wrong = [pair for pair in pairs(everything) if not pair.ordered]
    wrong.sort(key=lambda pair: -pair.measured_ratio / pair.modelled_ratio)
    lines += ["", "## Pairs that are ordered wrongly, the worst of each task first", ""]
    lines += ["| task | case | faster by | measured | modelled |", "|---|---|---|--:|--:|"]
    lines += [_wrong(pair) for pair in _first_of_each(wrong)[: 2 * WORST]]
    if COUNTERS.is_file():
        lines += ["", "## Its parts against Nsight Compute's counters", ""]
        lines += gpu_model_parts.table(_launches(gpu, fitted.constants), gpu, fitted.constants)
    return "\n".join(lines) + "\n"


def _paths(by_group: Mapping[str, Sequence[Compared]]) -> list[str]:
    """Paths of which the model picks another kernel than the best, or one within 5 % of it."""
    rows = []
    for group in ("held out", "fitted on"):
        for (task, precision), scores in gpu_model_lines.scores_of_paths(by_group[group], _weights).items():
            pick, best = (max(scores, key=lambda kernel: scores[kernel][side]) for side in (0, 1))
            if gpu_model_lines.NEARLY_BEST * scores[pick][1] < scores[best][1]:
                rows.append(f"| {task}-{precision} | {pick} | {scores[pick][1]:.2f} | {best} | {scores[best][1]:.2f} |")
    head = [
        "Paths of which it picks another kernel, with measured scores:",
        "",
        "| path | picks | score | best | score |",
    ]
    return [*head, "|---|---|--:|---|--:|", *rows, ""] if rows else []


def _line(name: str, each: Accuracy) -> str:
    quantiles = " | ".join(f"{value:.2f}" for value in each.quantiles.values())
    return (
        f"| {name} | {each.times} | {_figure(each.rank_correlation)} | {quantiles} | {_figure(each.times_within)} "
        f"| {each.pairs} | {_percent(each.ordered_share)} | {_figure(each.ratios_within)} |"
    )


def _wrong(pair: Pair) -> str:
    one, other = pair.faster.measured, pair.slower.measured
    return (
        f"| {one.task}-{one.precision} | {one.case} | {one.kernel} than {other.kernel} "
        f"| {pair.measured_ratio:.2f} | {pair.modelled_ratio:.2f} |"
    )


def _first_of_each(wrong: Iterable[Pair]) -> list[Pair]:
    """The first of each task and two kernels, whatever the case."""
    first: dict[tuple[str, ...], Pair] = {}
    for pair in wrong:
        one, other = pair.faster.measured, pair.slower.measured
        first.setdefault((one.task, one.precision, one.kernel, other.kernel), pair)
    return list(first.values())


def _grouped(calls: Sequence[Compared], by: Callable[[Compared], str]) -> list[tuple[str, list[Compared]]]:
    groups: dict[str, list[Compared]] = defaultdict(list)
    for each in calls:
        groups[by(each)].append(each)
    return sorted(groups.items())


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _percent(share: float | None) -> str:
    if share is None:
        return ""
    # A part of them must not be presented as all.
    return f"{100 * share:.{1 if 0.995 <= share < 1 else 0}f} %"


def run_classes(gpu_name: str) -> None:
    """Classes by modelled throughputs beside those by Nsight Compute's, of baselines at their heaviest case."""
    by_group = Counter((str(measured), str(by_model)) for _, measured, by_model in _classes(gpus.load(gpu_name)))
    right = sum(count for (one, other), count in by_group.items() if one == other)
    print(f"{right} of {by_group.total()} classes are those that were measured")
    for (one, other), count in by_group.most_common():
        print(f"  measured {one}, modelled {other}: {count}")


def run_draw() -> None:
    """Modelled over measured time of every call, fitted and held out beside each other."""
    import matplotlib
    from matplotlib.figure import Figure

    content = json.loads((FOLDER / "validation.json").read_text())
    figure = Figure(figsize=(11, 5.4), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    titles = {"held out": "tasks that are held out", "fit": "tasks that were fitted on"}
    colours = {"baseline": "#1f6fb4", "playbook": "#d9731a"}
    times = [row[name] for row in content["calls"] for name in ("measured_us", "modelled_us")]
    span = (0.8 * min(times), 1.25 * max(times))
    for panel, (group, title) in zip(panels, titles.items(), strict=True):
        calls = [row for row in content["calls"] if row["group"] == group]
        for kind, colour in colours.items():
            of_kind = [row for row in calls if (row["kernel"] == "baseline") == (kind == "baseline")]
            panel.scatter(
                [row["measured_us"] for row in of_kind], [row["modelled_us"] for row in of_kind],
                s=7, color=colour, alpha=0.6, linewidths=0, label=f"{kind} ({len(of_kind)})",
            )  # fmt: skip
        panel.plot(span, span, color="#444444", linewidth=0.8)
        for factor in (0.5, 2.0):
            panel.plot(span, [factor * each for each in span], color="#999999", linewidth=0.6, linestyle="--")
        panel.set(xscale="log", yscale="log", xlim=span, ylim=span, xlabel="measured, µs a call", title=title)
        panel.legend(loc="upper left", fontsize=8)
    panels[0].set_ylabel("modelled, µs a call; dashed: off by two")
    figure.suptitle(f"gpu-model v{content['version']}, {content['gpu']}")
    with matplotlib.rc_context({"svg.hashsalt": "cudamaster", "svg.fonttype": "none"}):
        figure.savefig(FOLDER / "validation.svg", metadata={"Date": None})

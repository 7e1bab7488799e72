"""What a table says, as text: the headline and the tables that a terminal and a page show."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cudamaster.hgemm.bounds import Limits, Loss
from cudamaster.hgemm.statistics import Contest, Statistic, by_size, launch_and_kernel
from cudamaster.hgemm.table import OURS, Entry, Mode, Ratio, Table, contestant
from cudamaster.report.tables import Table as Shown
from cudamaster.tasks.hgemm import Accumulate, Layout

NAMES = {
    OURS: "ours",
    "torch": "torch.matmul",
    "cublas": "cuBLAS",
    "cublaslt_heuristic": "heuristic cuBLASLt",
    "cublaslt_autotuned": "autotuned cuBLASLt",
}
MODES = {
    Mode.OFFLINE: "Offline: calls back to back",
    Mode.SERVER: "Server: calls after random idle intervals",
    Mode.DEVICE: "Device, a mode of ours and not the paper's: back to back with the host ahead, so only the GPU counts",
}
NONE = "–"


def ratio_text(value: float) -> str:
    """A ratio, with three decimals near 1, e.g. 0.984, 1.072 or 12.3."""
    return f"{value:.3f}" if value < 2 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def interval(low: float, high: float) -> str:
    """An interval of ratios; one iteration or one shape has none."""
    return "unknown" if math.isinf(high) else f"{ratio_text(low)} to {ratio_text(high)}"


def percent(value: float) -> str:
    """A speedup t_ref / t - 1 in percent with its sign."""
    return NONE if math.isnan(value) else f"{100 * value:+.1f} %"


def microseconds(value: float) -> str:
    """A time with four significant digits, in µs."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.4g}".rstrip(".")


def headline(table: Table, statistics: Sequence[Statistic], authority: str) -> tuple[str, ...]:
    """A sentence for each of the paper's modes and accumulation: how ours does beside an authority, in both layouts.

    First as the paper says it, mean speedup and wins, then by the geometric mean and the shapes that are certain.
    """
    sentences: list[str] = []
    for mode in filter(lambda mode: mode.of_paper, Mode):
        for accumulate in Accumulate:
            wanted = (mode, accumulate, authority)
            of = [
                each
                for each in statistics
                if (each.contest.mode, each.contest.accumulate, each.contest.authority) == wanted
            ]
            if not of:
                continue
            where = f"{mode.value}, {accumulate.value} sums, ours beside {NAMES[authority]}"
            begun = f"{where[0].upper()}{where[1:]}" if sentences else f"On {table.header.gpu}, {where}"
            sentences.append(f"{begun}: {'; '.join(map(_result, of))}.")
    return tuple(sentences)


def _result(each: Statistic) -> str:
    return (
        f"with B as {each.contest.layout.value}, {percent(each.speedup.mean)} mean speedup and {each.wins} of "
        f"{each.shapes} shapes won as the paper counts; geometric mean of the ratio {ratio_text(each.geometric)} "
        f"({interval(each.low, each.high)}), certainly faster at {each.faster} shapes and slower at {each.slower}"
    )


def statistics_tables(statistics: Sequence[Statistic]) -> tuple[Shown, ...]:
    """For each mode, ours beside each authority (the paper's table 1), with intervals and verdicts."""
    shown = []
    for mode in Mode:
        of = [each for each in statistics if each.contest.mode is mode]
        if not of:
            continue
        shown.append(
            Shown(
                MODES[mode],
                "",
                ("sums", "ours", "library", "shapes", "mean", "median", "std.", "wins", "geo. mean, 95 %",
                 "faster", "slower", "unsure"),
                tuple(
                    (*_contest(each.contest), str(each.shapes), percent(each.speedup.mean),
                     percent(each.speedup.median), percent(each.speedup.deviation).lstrip("+"), str(each.wins),
                     f"{ratio_text(each.geometric)} ({interval(each.low, each.high)})", str(each.faster),
                     str(each.slower), str(each.undecided))
                    for each in of
                ),
                ("shapes", "mean", "median", "std.", "wins", "geo. mean, 95 %", "faster", "slower",
                 "unsure"),
            )
        )  # fmt: skip
    return tuple(shown)


def best_tables(statistics: Sequence[Statistic]) -> tuple[Shown, ...]:
    """The faster of ours and the library at each shape, over the library (the paper's table 2), in its two modes."""
    shown = []
    for mode in filter(lambda mode: mode.of_paper, Mode):
        if of := [each for each in statistics if each.contest.mode is mode]:
            shown.append(
                Shown(
                    f"The faster of both, {mode.value}",
                    "",
                    ("sums", "ours", "library", "shapes", "mean", "median", "std."),
                    tuple(
                        (*_contest(each.contest), str(each.shapes), percent(each.best.mean),
                         percent(each.best.median), percent(each.best.deviation).lstrip("+"))
                        for each in of
                    ),
                    ("shapes", "mean", "median", "std."),
                )
            )  # fmt: skip
    return tuple(shown)


def _contest(contest: Contest) -> tuple[str, str, str]:
    return contest.accumulate.value, contest.layout.value, NAMES[contest.authority]


def device_table(authority: str, entries: Sequence[Entry]) -> Shown | None:
    """What of the offline gain the GPU makes, by the device mode; None without both modes."""
    rows = tuple(
        (each.accumulate.value, each.layout.value, str(each.shapes), ratio_text(each.offline), ratio_text(each.kernel),
         ratio_text(each.launch))
        for each in launch_and_kernel(authority, entries)
    )  # fmt: skip
    if not rows:
        return None
    columns = ("sums", "ours", "shapes", "offline", "device: on the GPU", "the rest: the way to the launch")
    return Shown(f"What of the gain over {NAMES[authority]} is made on the GPU", "", columns, rows, columns[2:])


def size_table(contests: Sequence[Contest], entries: Sequence[Entry]) -> Shown | None:
    """By problem size, a row for each bin and contest; contests differ by accumulation and layout."""
    rows = [
        (contest.mode.value, *_contest(contest)[:2], f"{each.low} to {each.high}", str(each.shapes),
         percent(each.mean - 1), percent(each.median - 1), ratio_text(each.geometric), str(each.wins))
        for contest in contests
        for each in by_size(contest, entries)
    ]  # fmt: skip
    if not rows:
        return None
    columns = ("mode", "sums", "ours", "log2(M N K)", "shapes", "mean", "median", "geometric mean", "wins")
    return Shown("By problem size", "", columns, tuple(rows), columns[4:])


def loss_table(losses: Sequence[Loss], limits: Limits | None) -> Shown | None:
    """The lost shapes, the worst first."""
    if not losses:
        return None
    peaks = ("of tensor peak", "of memory peak") if limits is not None else ()
    right = ("ratio", "ours µs", "library µs", "gap µs", *peaks)
    rows = []
    for loss in losses:
        row = [
            str(loss.entry.shape),
            f"{NAMES[loss.authority]} {loss.theirs.value}",
            f"{ratio_text(loss.ratio.geometric)} ({interval(loss.ratio.low, loss.ratio.high)})",
            microseconds(loss.ours.median_us),
            microseconds(loss.library.median_us),
            f"{loss.gap_us:+.2f}",
        ]
        for shares in (loss.tensor, loss.memory):
            if shares is not None:
                row.append(f"{100 * shares[0]:.0f}, {100 * shares[1]:.0f} %")
        rows.append((*row, loss.bound, NONE if loss.config is None else str(loss.config)))
    return Shown("", "", ("shape", "lost to", *right, "bound by", "our configuration"), tuple(rows), right)


def times_table(entry: Entry, mode: Mode) -> Shown:
    """All contestants' times at a shape, and ours over each library."""
    rows = []
    flops = entry.shape.operations
    for name in NAMES:
        for layout in Layout:
            if (times := entry.time(mode, name, layout)) is None:
                continue
            fastest = name != OURS and entry.faster(mode, name) is layout
            ratios = [entry.ratio(mode, name, ours) if fastest else None for ours in Layout]
            rows.append(
                (NAMES[name], layout.value, microseconds(times.median_us), microseconds(times.mean_us),
                 f"{times.sem_percent:.2f} %", str(times.iterations), f"{flops / times.median_us / 1e6:.1f}",
                 *map(_ratio, ratios))
            )  # fmt: skip
    columns = ("contestant", "layout", "median µs", "mean µs", "error", "calls", "TFLOP/s")
    against = tuple(f"over ours {layout.value}" for layout in Layout)
    named = mode.value if mode.of_paper else f"{mode.value} (ours, not the paper's)"
    return Shown(f"{entry.accumulate.value} sums, {named}", "", (*columns, *against), tuple(rows),
                 (*columns[2:], *against))  # fmt: skip


def _ratio(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio_text(ratio.geometric)} ({interval(ratio.low, ratio.high)})"


def failed_checks(entries: Sequence[Entry]) -> tuple[str, ...]:
    """A line for each contestant that failed a check at a shape; its times are in the statistics all the same."""
    return tuple(
        f"Check failed: {entry.shape}, {entry.accumulate.value} sums, {check.contestant}: {check.what}"
        for entry in entries
        for check in entry.checks
        if not check.passed
    )


def choice_lines(entry: Entry) -> list[str]:
    """What was chosen at a shape, after how many tries, and what came out of the checks."""
    lines = []
    for layout, config in entry.chosen.items():
        tried = entry.tried.get(layout)
        algorithms = entry.algorithms.get(layout)
        lines.append(
            f"{contestant(OURS, layout)}: {config}"
            + (f"; the fastest of {tried} configurations" if tried else "")
            + (f", beside {algorithms} of cublasLt's algorithms" if algorithms else "")
        )
    for check in entry.checks:
        parts = []
        if check.deviation is not None:
            limit = "" if check.among_libraries is None else f", the libraries differ by {check.among_libraries:.3g}"
            if check.of_libraries is not None:
                limit += f" and are off these by up to {check.of_libraries:.3g}"
            parts.append(f"off cuBLAS' results in fp32 by up to {check.deviation:.3g}{limit}")
        if check.wrong_below_2048 is not None:
            parts.append(f"{check.wrong_below_2048} elements wrong below 2048 on inputs of 0 and 1")
        if check.wrong_from_2048 is not None:
            parts.append(f"{check.wrong_from_2048} from 2048 on, which fp16 cannot hold exactly")
        passed = "passed" if check.passed else "FAILED"
        lines.append(f"{check.contestant}: {passed} ({check.what}, {check.elements:,}): {'; '.join(parts)}")
    return lines

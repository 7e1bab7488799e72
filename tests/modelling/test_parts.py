"""Parts of the model beside counters: ratios, and what a part's error costs, on launches worked out by hand."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Mapping
from pathlib import Path

import gpu_model_parts as parts
import pytest
from counted_by_hand import call, launch

from cudamaster.modelling import gpu as gpus
from cudamaster.modelling.constants import shipped
from cudamaster.modelling.launch_time import launch_time
from cudamaster.modelling.memory import L2

H200, CONSTANTS = gpus.load(), shipped().constants
MISSED = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_miss.sum"
DURATION = "gpu__time_duration.sum"
FIGURES = {figure.name: figure for figure in parts.FIGURES}


def compared(row: Mapping[str, float], loads: float = 8) -> parts.Compared:
    one = launch(2**14, loads=loads, stores=1)
    return parts.Compared("gelu", one, launch_time(one, H200, CONSTANTS, L2(H200.figures.l2_bytes)), row)


def measured(loads: float) -> float:
    """Nanoseconds of a launch whose model is right."""
    time = launch_time(launch(2**14, loads=loads, stores=1), H200, CONSTANTS, L2(H200.figures.l2_bytes))
    return 1000 * (time.device_us + H200.figures.empty_device_us / 2)


def test_ratios_are_of_what_was_counted_to_what_the_counter_says() -> None:
    figure = FIGURES["load sectors that L1 misses"]
    one = compared({MISSED: 2**14 * 8 * 8 * 2.0})
    assert parts.off([one], figure) == [pytest.approx(2.0)]
    assert parts.off([compared({})], figure) == []


def test_a_launch_without_an_error_loses_by_a_wrong_counter() -> None:
    figure = FIGURES["load sectors that L1 misses"]
    one = compared({DURATION: measured(8), MISSED: 100 * 2**14 * 8 * 8 * 4.0})
    assert parts.error(one, H200, CONSTANTS) == pytest.approx(0)
    assert parts.error(one, H200, CONSTANTS, figure) > 0.5


def test_the_weight_of_a_part_is_what_its_counter_would_mend() -> None:
    """A launch that reads half of what was counted from L2 and DRAM."""
    figure = FIGURES["bytes read from DRAM"]
    whole = compared({})
    row = {DURATION: 0.6 * measured(8), "dram__bytes_read.sum": whole.time.moved.dram_read / 2}
    one = compared(row)
    assert abs(parts.error(one, H200, CONSTANTS, figure)) < abs(parts.error(one, H200, CONSTANTS))
    (line,) = (line for line in parts.table([one], H200, CONSTANTS) if "bytes read from DRAM" in line)
    assert line.startswith("| bytes read from DRAM | 1 | 2.00 | 2.00 | +")


def test_only_calls_with_as_many_launches_are_compared() -> None:
    one = launch(64)
    row = {DURATION: 5000.0}
    assert len(list(parts.launches(call(one, one), [row, row], "gelu", H200, CONSTANTS))) == 1
    assert list(parts.launches(call(one, one), [row], "gelu", H200, CONSTANTS)) == []
    assert parts.longest(call(one), [row, row], H200, CONSTANTS) is None


def test_the_longest_launch_has_metrics_of_both(tmp_path: Path) -> None:
    rows = [{DURATION: 1000.0}, {DURATION: 9000.0}]
    pair = parts.longest(call(launch(64), launch(2**18, loads=8)), rows, H200, CONSTANTS)
    assert pair is not None
    modelled, counted = pair
    assert counted == rows[1]
    assert modelled["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"] > 50


def test_counters_are_read_by_kernel_and_case(tmp_path: Path) -> None:
    text = io.StringIO()
    head = ("task", "precision", "kernel", "case", "code", "launch", "function", "grid", DURATION)
    writer = csv.DictWriter(text, head)
    writer.writeheader()
    common = {"task": "gelu", "precision": "fp32", "kernel": "baseline", "case": "N=1", "code": "a1"}
    writer.writerow({**common, "launch": 0, "function": "f", "grid": 4, DURATION: 1500})
    writer.writerow({**common, "launch": 1, "function": "f", "grid": 4, DURATION: ""})
    path = tmp_path / "counters.csv.gz"
    path.write_bytes(gzip.compress(text.getvalue().encode()))
    first, second = parts.read(path)["gelu", "fp32", "a1", "N=1"]
    assert first[DURATION] == 1500
    assert DURATION not in second
    assert math.isclose(first["grid"], 4)

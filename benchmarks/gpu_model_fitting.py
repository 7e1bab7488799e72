"""Fits the model's constants, and what is not known of the GPU, to measured times: least squares of log ratios.

Every parameter is held to a range that makes sense for the hardware. What is fitted is the time on the device, where it
was measured, and that of the whole call.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from gpu_model_accuracy import Compared

from cudamaster.modelling import gpu as gpus
from cudamaster.modelling.constants import Constants, shipped
from cudamaster.modelling.counts import CallCounts
from cudamaster.modelling.gpu import Gpu
from cudamaster.modelling.launch_time import Work
from cudamaster.modelling.measured import Time
from cudamaster.modelling.model import modelled, refused, works

# Least and most of each constant that is fitted, and of those figures of the GPU that nobody publishes.
OF_MODEL: Mapping[str, tuple[float, float]] = {
    name: each.range for name, each in shipped().sourced.items() if each.source == "fitted"
}
OF_GPU: Mapping[str, tuple[float, float]] = {
    name: each.range for name, each in gpus.load().sourced.items() if each.source == "fitted"
}
# Beyond this factor, an error counts no more: one kernel that the model does not understand must not spoil the others.
_OUTLIER = 1.35
# What counts how much beside the times of whole calls.
_DEVICE_WEIGHT, _SPEEDUP_WEIGHT = 0.5, 1.5
_MOST_WEIGHT = 3.0


@dataclass(frozen=True)
class Example:
    """A call that was counted and measured."""

    counts: CallCounts
    time: Time


@dataclass(frozen=True)
class Fit:
    """What was found; `cost` before and after is the mean of the squared logarithms, outliers held back."""

    constants: Constants
    gpu: Gpu
    before: float
    after: float


def whole_us(time: Time, gpu: Gpu) -> float:
    """The measured time of a whole call, if its process's empty call had taken as long as is usual for the GPU."""
    if time.empty_us is None:
        return time.whole_us
    return max(time.whole_us - time.empty_us + gpu.figures.empty_call_us, 1.0)


def compared(examples: Sequence[Example], gpu: Gpu, constants: Constants, *, device: bool = False) -> list[Compared]:
    """Modelled beside measured: whole calls, or the device's times where they were measured."""
    found = []
    for example in examples:
        if refused(example.counts, gpu) is not None:
            continue
        call = modelled(example.counts, gpu, constants)
        if not device:
            found.append(Compared(example.time, call.whole_us, whole_us(example.time, gpu)))
        elif example.time.device_us is not None:
            found.append(Compared(example.time, call.device_us, example.time.device_us))
    return found


def fit(examples: Sequence[Example], gpu: Gpu, constants: Constants) -> Fit:
    """Constants and figures that fit the examples best, starting from those given.

    What is to be small are logarithms of modelled over measured: of whole calls, of times on the device, and of the
    speedups of kernels against the baseline of their task at their case, which a search goes by.
    """
    from scipy.optimize import least_squares  # takes half a second

    ranges = {**OF_MODEL, **OF_GPU}
    low, high = (np.log([each[side] for each in ranges.values()]) for side in (0, 1))
    start = np.log([getattr(constants, name) for name in OF_MODEL] + [getattr(gpu.figures, name) for name in OF_GPU])
    examples = [each for each in examples if refused(each.counts, gpu) is None]
    data = _Data(
        examples,
        [works(each.counts, gpu, constants) for each in examples],
        _weights(examples),
        _baselines(examples),
    )

    def residuals(at: np.ndarray) -> np.ndarray:
        of_model, of_gpu = _at(at, gpu, constants)
        return _residuals(data, of_gpu, of_model)

    def cost(at: np.ndarray) -> float:
        return float(np.mean(_held_back(residuals(at))))

    start = np.clip(start, low + 1e-6, high - 1e-6)
    found = least_squares(
        residuals, start, bounds=(low, high), loss="soft_l1", f_scale=math.log(_OUTLIER), diff_step=0.02, max_nfev=40
    )
    of_model, of_gpu = _at(found.x, gpu, constants)
    return Fit(of_model, of_gpu, cost(start), cost(found.x))


@dataclass(frozen=True)
class _Data:
    """What the fit goes by; `baselines` has for each example the place of its baseline, its own where there is none."""

    examples: Sequence[Example]
    works: Sequence[Sequence[Work]]
    weights: np.ndarray
    baselines: np.ndarray


def _baselines(examples: Sequence[Example]) -> np.ndarray:
    places = {one.time.of_task: k for k, one in enumerate(examples) if one.time.kernel == "baseline"}
    return np.array([places.get(one.time.of_task, k) for k, one in enumerate(examples)])


def _residuals(data: _Data, gpu: Gpu, constants: Constants) -> np.ndarray:
    whole, device = _logs(data, gpu, constants)
    speedups = whole - whole[data.baselines]
    of_parts = (whole, _DEVICE_WEIGHT * device, _SPEEDUP_WEIGHT * speedups)
    return np.concatenate([data.weights * each for each in of_parts])


def _held_back(residuals: np.ndarray) -> np.ndarray:
    scale = math.log(_OUTLIER)
    return np.asarray(2 * scale**2 * (np.sqrt(1 + (residuals / scale) ** 2) - 1))


def _weights(examples: Sequence[Example]) -> np.ndarray:
    """Every task counts the same, however many kernels and cases of it were measured, but none for very much."""
    of_task: dict[str, int] = {}
    for example in examples:
        of_task[example.time.task] = of_task.get(example.time.task, 0) + 1
    mean = sum(of_task.values()) / max(1, len(of_task))
    return np.array([min(math.sqrt(mean / of_task[example.time.task]), _MOST_WEIGHT) for example in examples])


def _logs(data: _Data, gpu: Gpu, constants: Constants) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of modelled over measured: whole calls, and the device's times, 0 where there is none."""
    whole, device = [], []
    for example, known in zip(data.examples, data.works, strict=True):
        call = modelled(example.counts, gpu, constants, known)
        whole.append(math.log(call.whole_us / whole_us(example.time, gpu)))
        measured = example.time.device_us
        device.append(0.0 if measured is None or not call.device_us > 0 else math.log(call.device_us / measured))
    return np.array(whole), np.array(device)


def _at(at: np.ndarray, gpu: Gpu, constants: Constants) -> tuple[Constants, Gpu]:
    values = dict(zip((*OF_MODEL, *OF_GPU), (float(each) for each in np.exp(at)), strict=True))
    of_model = constants.model_copy(update={name: values[name] for name in OF_MODEL})
    figures = dataclasses.replace(gpu.figures, **{name: values[name] for name in OF_GPU})
    return of_model, dataclasses.replace(gpu, figures=figures)

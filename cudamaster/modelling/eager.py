"""A rough model of eager PyTorch's time on a GPU, where calls cannot be made on one.

The module's operators are counted without a device (bench/pytorch/count.py). Each is one kernel that moves its tensors
once and computes at the peak of the unit that PyTorch uses by default; the host needs what dispatching takes and a
launch. Nothing was fitted, so nothing is said of the error. Peaks are hardly reached, so most real times are longer,
for a recurrent net, whose steps wait for each other, many times (docs/kernelbench.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cudamaster.build import eager
from cudamaster.core.values import Precision
from cudamaster.modelling.constants import shipped
from cudamaster.modelling.gpu import Gpu
from cudamaster.modelling.model import US_OF_S, Clocks, ModelledCall
from cudamaster.tasks.cards import Case, TaskCard


@dataclass(frozen=True)
class Operator:
    """One operator: its name, bytes read and written, operations, and whether they are products (matrices)."""

    name: str
    read: int
    written: int
    operations: int
    products: bool


def calls(card: TaskCard, precision: Precision, cases: Sequence[Case], gpu: Gpu) -> Mapping[str, ModelledCall | str]:
    """The modelled call at each case by its label, or why there is none. Raises DeviceError without PyTorch."""
    counted = eager.operators(card, precision, [case.values for case in cases])
    return {
        case.label: f"its operators cannot be counted, {found}"
        if isinstance(found, str)
        else _call(case.label, [Operator(**each) for each in found], precision, gpu)
        for case, found in zip(cases, counted, strict=True)
    }


def _call(label: str, operators: Sequence[Operator], precision: Precision, gpu: Gpu) -> ModelledCall:
    clocks = Clocks(gpu)
    for operator in operators:
        clocks.host_work(shipped().constants.dispatch_us)
        clocks.launch(device_us(operator, precision, gpu), 1)
    return ModelledCall(
        case=label,
        whole_us=clocks.whole_us,
        device_us=clocks.device_us,
        launches=(),
        other_us=clocks.other_us,
        gpu=gpu.key,
        version=shipped().version,
        note="eager PyTorch, roughly",
    )


def device_us(operator: Operator, precision: Precision, gpu: Gpu) -> float:
    """The least time of an operator on the device, in microseconds."""
    figures = gpu.figures
    moving = operator.read / figures.read_bytes_per_s + operator.written / figures.write_bytes_per_s
    per_clock = 2 * figures.fp32_lanes
    if operator.products:
        matrix = figures.warpgroup_operations or figures.matrix_operations
        if precision is not Precision.FP32:
            per_clock = matrix
        elif operator.name in eager.TF32:
            per_clock = matrix / 2
    return max(moving * US_OF_S, operator.operations / (per_clock * figures.sms * figures.clock_mhz))

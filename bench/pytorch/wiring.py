"""A problem whose model works on tensors that have the names of a wrapper's parameters.

A wiring is a mapping: the problem's `module`, the `device`, names of the `sizes` in the order of a request, the
`buffers` of the wrapper in order (`name`, `type` in C, `shape` as expressions over the sizes, `output` or not), the
`scalars`, and the sizes of the case that the problem gives, `given` (cudamaster/build/eager.py).
"""

from __future__ import annotations

from typing import Any

import torch
from problem import Problem, c_names

_TYPES = {
    "float": torch.float32, "double": torch.float64, "__half": torch.float16, "__nv_bfloat16": torch.bfloat16,
    "int": torch.int32, "long long": torch.int64, "unsigned char": torch.uint8, "bool": torch.bool,
}  # fmt: skip


def types(buffer: dict[str, Any]) -> torch.dtype:
    """The element type of a buffer."""
    return _TYPES[buffer["type"]]


class Wired:
    """The model with the inputs of its next call, at some sizes."""

    def __init__(self, wiring: dict[str, Any]) -> None:
        self.device: str = wiring["device"]
        self.buffers: list[dict[str, Any]] = wiring["buffers"]
        self.names: list[str] = wiring["sizes"]
        self.sizes: dict[str, float] = dict(wiring["given"])
        self.inputs: list[Any] = []
        self._scalars = wiring["scalars"]
        self.problem = Problem(wiring["module"])
        self._given = self.problem.inputs()
        self.model = self.problem.model = self.problem.model.to(self.device)
        state = [name for name, _ in (*self.model.named_parameters(), *self.model.named_buffers())]
        self._arguments, self._paths = c_names(self.problem.arguments(self._given), state)

    def take(self, tensors: dict[str, torch.Tensor]) -> None:
        """Puts tensors, by their names in the wrapper, in place of inputs and of the model's state."""
        self.problem.bind({path: tensors[name] for path, name in self._paths.items() if name in tensors})
        self.inputs = []
        for name, given in zip(self._arguments, self._given, strict=True):
            scalar = self.sizes.get(name) if name in self._scalars else None
            self.inputs.append(tensors[name] if name in tensors else given if scalar is None else type(given)(scalar))

    def shape(self, buffer: dict[str, Any]) -> list[int]:
        """The shape of a buffer at the sizes in use."""
        whole = {name: int(size) if float(size).is_integer() else size for name, size in self.sizes.items()}
        return [int(eval(text, {"__builtins__": {}, "min": min, "max": max}, whole)) for text in buffer["shape"]]

"""The worker of a baseline in eager PyTorch: loads the harness's worker as a library, and answers its calls.

    python worker.py LIBRARY WIRING [options of a worker]...

WIRING is JSON: the `path` that PyTorch is found by, the problem's `module`, the `device`, names of the `sizes` in the order of a request, the `buffers` of
the wrapper in order (`name`, `type` in C, `shape` as expressions over the sizes, `output` or not), the `scalars` and
the sizes of the case that the problem gives, `given`.

What a caller of the module pays for is timed: the call of the module under no_grad, with PyTorch's own memory for its
results and its default settings. On a GPU tensors are views of the judge's buffers, made before the call; on the CPU
device, whose memory is closed to the host's code, they are copies. Results are copied to the judge's outputs after it.
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.extend(json.loads(sys.argv[2])["path"])

import torch  # noqa: E402

from problem import Problem, c_names, outputs_of  # noqa: E402

_TYPES = {
    "float": torch.float32, "double": torch.float64, "__half": torch.float16, "__nv_bfloat16": torch.bfloat16,
    "int": torch.int32, "long long": torch.int64, "unsigned char": torch.uint8, "bool": torch.bool,
}  # fmt: skip
# How the CUDA array interface calls a type; it has none of bfloat16, whose bits are taken.
_INTERFACE = {
    torch.float32: "<f4", torch.float64: "<f8", torch.float16: "<f2", torch.bfloat16: "<i2",
    torch.int32: "<i4", torch.int64: "<i8", torch.uint8: "|u1", torch.bool: "|b1",
}  # fmt: skip


class Eager:
    """The model, and the buffers that the worker has it work on."""

    def __init__(self, wiring: dict[str, Any], library: ctypes.PyDLL) -> None:
        self.wiring, self.device = wiring, wiring["device"]
        self._copy = library.mskb_copy
        self._copy.argtypes, self._copy.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t], None
        self.problem = Problem(wiring["module"])
        self.model = self.problem.model = self.problem.model.to(self.device)
        self.given = self.problem.inputs()
        state = [name for name, _ in (*self.model.named_parameters(), *self.model.named_buffers())]
        self.arguments, self.paths = c_names(self.problem.arguments(self.given), state)
        self.sizes: dict[str, float] = dict(wiring["given"])
        self.result: Any = None
        self.inputs: list[Any] = []
        self.outputs: list[tuple[torch.Tensor, int]] = []

    def warm_up(self) -> None:
        """Calls the model at the sizes in use, on tensors of its own: libraries are loaded, and memory is there."""
        made = {}
        for buffer in self.wiring["buffers"]:
            if not buffer["output"]:
                made[buffer["name"]] = torch.ones(self._shape(buffer), dtype=_TYPES[buffer["type"]], device=self.device)
        before = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        kept = {name: tensor.data for name, tensor in before.items()}
        self._take(made)
        for _ in range(3):
            self.call()
        self.problem.bind(kept)
        self.result, self.inputs = None, []

    def prepare(self, sizes: list[float]) -> None:
        """Makes ready for calls of a case."""
        self.sizes = dict(zip(self.wiring["sizes"], sizes, strict=True))
        self.warm_up()

    def bind(self, buffers: list[int]) -> None:
        """Takes the buffers of the next call."""
        self.result, self.outputs = None, []
        tensors = {}
        for buffer, address in zip(self.wiring["buffers"], buffers, strict=True):
            tensor = self._tensor(address, self._shape(buffer), _TYPES[buffer["type"]])
            if buffer["output"]:
                self.outputs.append((tensor, address))
                continue
            tensors[buffer["name"]] = tensor
            if self.device == "cpu":
                self._copy(tensor.data_ptr(), address, tensor.nbytes)
        self._take(tensors)

    def call(self) -> None:
        """The call that is timed."""
        with torch.no_grad():
            self.result = self.model(*self.inputs)

    def finish(self) -> None:
        """Puts the results where the judge looks for them."""
        made = list(outputs_of(self.result))
        if len(made) != len(self.outputs):
            raise ValueError(f"forward returns {len(made)} tensors, and the card has {len(self.outputs)} outputs")
        for (output, address), tensor in zip(self.outputs, made, strict=True):
            if tuple(output.shape) != tuple(tensor.shape):
                raise ValueError(f"forward returns shape {tuple(tensor.shape)}, and the card has {tuple(output.shape)}")
            output.copy_(tensor)
            if self.device == "cpu":
                self._copy(address, output.data_ptr(), output.nbytes)
        self.result = None

    def _take(self, tensors: dict[str, torch.Tensor]) -> None:
        self.problem.bind({path: tensors[name] for path, name in self.paths.items() if name in tensors})
        self.inputs = []
        for name, given in zip(self.arguments, self.given, strict=True):
            scalar = self.sizes.get(name) if name in self.wiring["scalars"] else None
            self.inputs.append(tensors[name] if name in tensors else given if scalar is None else type(given)(scalar))

    def _tensor(self, address: int, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor on memory of the GPU that is there; on the CPU device, one of its own."""
        if self.device == "cpu" or math.prod(shape) == 0:
            return torch.empty(shape, dtype=dtype, device=self.device)
        tensor = torch.as_tensor(_Memory(address, shape, _INTERFACE[dtype]), device=self.device)
        return tensor.view(dtype) if tensor.dtype != dtype else tensor

    def _shape(self, buffer: dict[str, Any]) -> list[int]:
        whole = {name: int(size) if float(size).is_integer() else size for name, size in self.sizes.items()}
        return [int(eval(text, {"__builtins__": {}, "min": min, "max": max}, whole)) for text in buffer["shape"]]


class _Memory:
    """Memory of a GPU, as PyTorch takes it."""

    def __init__(self, address: int, shape: list[int], kind: str) -> None:
        self.__cuda_array_interface__ = {"data": (address, False), "shape": tuple(shape), "typestr": kind, "version": 2}


class _Functions(ctypes.Structure):
    _fields_ = [
        ("prepare", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ctypes.c_double), ctypes.c_size_t)),
        ("bind", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t)),
        ("call", ctypes.CFUNCTYPE(ctypes.c_void_p)),
        ("finish", ctypes.CFUNCTYPE(ctypes.c_void_p)),
    ]


_wrong = ctypes.create_string_buffer(2048)


def _told(act: Callable[..., None]) -> Callable[..., int | None]:
    """An action whose exception becomes text that the worker reports."""

    def answer(*arguments: Any) -> int | None:
        try:
            act(*arguments)
        except BaseException as error:
            _wrong.value = f"{type(error).__name__}: {error}".encode()[:2047]
            return ctypes.addressof(_wrong)
        return None

    return answer


def main() -> None:
    """Be a worker until the judge lets go."""
    path, wiring, *options = sys.argv[1:]
    # Not CDLL, which would let go of the interpreter's lock and take it again in each call.
    library = ctypes.PyDLL(path)
    eager = Eager(json.loads(wiring), library)
    eager.warm_up()  # before the worker confines itself, and while the judge still waits patiently
    kinds = dict(_Functions._fields_)
    functions = _Functions(
        kinds["prepare"](_told(lambda sizes, count: eager.prepare(sizes[:count]))),
        kinds["bind"](_told(lambda buffers, count: eager.bind([each or 0 for each in buffers[:count]]))),
        kinds["call"](_told(eager.call)),
        kinds["finish"](_told(eager.finish)),
    )
    for folder in {sys.prefix, sys.base_prefix, *filter(None, sys.path)}:
        options += ["--readable", str(Path(folder).resolve())]
    words = [b"worker", *(word.encode() for word in options)]
    library.mskb_work(len(words), (ctypes.c_char_p * len(words))(*words), ctypes.byref(functions))


if __name__ == "__main__":
    main()

"""The worker of a baseline in eager PyTorch: loads the harness's worker as a library, and answers its calls.

    python worker.py LIBRARY WIRING [options of a worker]...

WIRING is JSON: what wiring.py says, and the `path` that PyTorch is found by.

What a caller of the module pays for is timed: the call of the module under no_grad, with PyTorch's own memory for its
results and its default settings. On a GPU tensors are views of the judge's buffers, made before the call; on the CPU
device, whose memory is closed to the host's code, they are copies. Results are copied to the judge's outputs after it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.extend(json.loads(sys.argv[2])["path"])

import torch
from problem import outputs_of
from wiring import Wired, types

# How the CUDA array interface calls a type; it has none of bfloat16, whose bits are taken.
_INTERFACE = {
    torch.float32: "<f4", torch.float64: "<f8", torch.float16: "<f2", torch.bfloat16: "<i2",
    torch.int32: "<i4", torch.int64: "<i8", torch.uint8: "|u1", torch.bool: "|b1",
}  # fmt: skip
_WARM_UPS = 3


class Eager(Wired):
    """The model on the buffers that the worker has it work on."""

    def __init__(self, wiring: dict[str, Any], library: ctypes.PyDLL) -> None:
        super().__init__(wiring)
        self._copy = library.mskb_copy
        self._copy.argtypes, self._copy.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t], None
        self._outputs: list[tuple[torch.Tensor, int]] = []
        self._result: Any = None

    def warm_up(self) -> None:
        """Calls the model at the sizes in use, on tensors of its own: libraries are loaded, and memory is there."""
        own = {each["name"]: torch.ones(self.shape(each), dtype=types(each), device=self.device)
               for each in self.buffers if not each["output"]}  # fmt: skip
        state = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        before = {name: tensor.data for name, tensor in state.items()}
        self.take(own)
        for _ in range(_WARM_UPS):
            self.call()
        self.problem.bind(before)
        self._result, self.inputs = None, []

    def prepare(self, sizes: list[float]) -> None:
        """Makes ready for calls of a case."""
        gc.collect()
        self.sizes = dict(zip(self.names, sizes, strict=True))
        self.warm_up()

    def bind(self, buffers: list[int]) -> None:
        """Takes the buffers of the next call."""
        self._result, self._outputs = None, []
        tensors = {}
        for buffer, address in zip(self.buffers, buffers, strict=True):
            tensor = self._tensor(address, self.shape(buffer), types(buffer))
            if buffer["output"]:
                self._outputs.append((tensor, address))
                continue
            tensors[buffer["name"]] = tensor
            if self.device == "cpu":
                self._copy(tensor.data_ptr(), address, tensor.nbytes)
        self.take(tensors)

    def call(self) -> None:
        """The call that is timed."""
        self._result = self.model(*self.inputs)

    def finish(self) -> None:
        """Puts the results where the judge looks for them."""
        made = list(outputs_of(self._result))
        if len(made) != len(self._outputs):
            raise ValueError(f"forward returns {len(made)} tensors, and the card has {len(self._outputs)} outputs")
        for (output, address), tensor in zip(self._outputs, made, strict=True):
            if tuple(output.shape) != tuple(tensor.shape):
                raise ValueError(f"forward returns shape {tuple(tensor.shape)}, and the card has {tuple(output.shape)}")
            output.copy_(tensor)
            if self.device == "cpu":
                self._copy(address, output.data_ptr(), output.nbytes)
        self._result = None

    def _tensor(self, address: int, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor on memory of the GPU that is there; on the CPU device, one of its own."""
        if self.device == "cpu" or math.prod(shape) == 0:
            return torch.empty(shape, dtype=dtype, device=self.device)
        tensor = torch.as_tensor(_Memory(address, shape, _INTERFACE[dtype]), device=self.device)
        return tensor.view(dtype) if tensor.dtype != dtype else tensor


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
    # Once, as around a loop of calls; no garbage is looked for in a timed call, as timeit has it.
    torch.set_grad_enabled(False)
    gc.disable()
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

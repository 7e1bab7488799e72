"""Times and checks products beside each other on this machine's GPU, through bench/hgemm/measure.cu.

Two modes, as CUDA-L2 has them (section 2.4.2). Offline: calls back to back, with warm caches; short calls are timed
several between two events. Server: one call at a time after a random idle time, timed from event to event, so that the
host's part of a call counts. A third mode, device, is ours: offline while the host is ahead, so that the GPU never
waits for it, and without overlap of a launch with the one before it. It tells what of a gain is the kernel's. All
contestants have the same inputs and events, as many calls between two events and as many iterations, and take turns in
an order drawn anew for each iteration.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

MODES = ("offline", "device", "server")
MEAN_IDLE_US = 500.0  # before a call of the server mode; exponentially distributed, as between independent requests
MOST_ALGORITHMS = 100  # of cuBLASLt that are measured, as in the paper (section 2.2.3)


class BenchError(RuntimeError):
    """A contestant or the GPU failed; the message is the library's own."""


@dataclass(frozen=True)
class Deviation:
    """Errors of results: the largest of all from sums in fp32, and of some from sums in double.

    The latter is on the scale of the sum of absolute terms.
    """

    furthest: float
    scaled: float


@dataclass(frozen=True)
class Whole:
    """On zeros and ones: wrong results below 2048, wrong ones of 2048 and more, and how many there are of these."""

    wrong_below: int
    wrong_above: int
    above: int


class Bench:
    """One GPU and one product at a time. Every method raises BenchError."""

    def __init__(self, library: Path, torch: Path | None = None) -> None:
        if torch is not None:
            importlib.import_module("torch").cuda.init()  # its libraries have to be there before torch_matmul.so
        ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)  # for cuTensorMapEncodeTiled
        self._library = ctypes.CDLL(str(library))
        self._library.hgemm_error.restype = ctypes.c_char_p
        self._torch = torch

    @property
    def has_torch(self) -> bool:
        """Whether torch.matmul can be added."""
        return self._torch is not None

    def _call(self, name: str, *arguments: object) -> int:
        result = int(getattr(self._library, name)(*arguments))
        if result < 0:
            raise BenchError(self._library.hgemm_error().decode())
        return result

    def versions(self) -> dict[str, str]:
        """GPU, driver, CUDA runtime, cuBLAS and the number of multiprocessors."""
        text = ctypes.create_string_buffer(512)
        self._call("hgemm_versions", text, 512)
        names = ("gpu", "driver", "runtime", "cublas", "multiprocessors")
        found = dict(zip(names, text.value.decode().split("\n"), strict=True))
        found["torch"] = metadata.version("torch") if self.has_torch else ""
        return found

    def shape(self, shape: tuple[int, int, int], *, fp32: bool, seed: int) -> None:
        """A new product, with inputs from -1 to 1; what was added before is gone."""
        self._call("hgemm_shape", *shape, int(fp32), ctypes.c_uint(seed))

    def fill(self, ones: float, seed: int) -> None:
        """Zeros and ones as inputs, ones with this probability; from -1 to 1 where it is negative."""
        self._call("hgemm_fill", ctypes.c_double(ones), ctypes.c_uint(seed))

    def add_kernel(self, name: str, path: Path, *, tn: bool, band: int) -> int:
        """A member of our family, built with `tuning`; its index."""
        return self._call("hgemm_add_kernel", name.encode(), str(path).encode(), int(tn), band)

    def add_library(self, library: str, *, tn: bool) -> tuple[int, int]:
        """One of the table's AUTHORITIES; its index, and how many algorithms were measured for it."""
        name = f"{library}_{'tn' if tn else 'nn'}".encode()
        if library == "torch":
            if self._torch is None:
                raise BenchError("PyTorch is not installed")
            return self._call("hgemm_add_torch", name, str(self._torch).encode(), int(tn)), 0
        if library == "cublas":
            return self._call("hgemm_add_cublas", name, int(tn)), 0
        algorithms = ctypes.c_int()
        most = MOST_ALGORITHMS if library == "cublaslt_autotuned" else 1
        index = self._call("hgemm_add_cublaslt", name, int(tn), most, ctypes.byref(algorithms))
        return index, algorithms.value

    def check(self, index: int, *, library: bool = False) -> Deviation:
        """Compare results with sums in fp32 and in double; a library's are kept for `spread`."""
        furthest, scaled = ctypes.c_double(), ctypes.c_double()
        self._call("hgemm_check", index, int(library), ctypes.byref(furthest), ctypes.byref(scaled))
        return Deviation(furthest.value, scaled.value)

    def spread(self) -> float:
        """The largest difference of an element among the libraries that were checked."""
        spread = ctypes.c_double()
        self._call("hgemm_spread", ctypes.byref(spread))
        return spread.value

    def check_whole(self, index: int) -> Whole:
        """Compare all results with exact sums; the inputs have to be zeros and ones."""
        numbers = [ctypes.c_longlong() for _ in range(3)]
        self._call("hgemm_check_whole", index, *map(ctypes.byref, numbers))
        return Whole(*(number.value for number in numbers))

    def time(self, indexes: Sequence[int], iterations: int, mode: str = "offline") -> np.ndarray:
        """Microseconds a call, [iteration, contestant]."""
        times = np.empty((iterations, len(indexes)), np.float32)
        self._call(
            "hgemm_time",
            (ctypes.c_int * len(indexes))(*indexes),
            len(indexes),
            iterations,
            MODES.index(mode),
            ctypes.c_double(MEAN_IDLE_US),
            times.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
        )
        return times

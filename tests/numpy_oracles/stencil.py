"""Pooling, convolutions and stencils. Grids are stored with their last size running fastest."""

import numpy as np
from scipy import signal

from numpy_oracles.form import Buffers, Oracle, Sizes, flat


def max_pooling_2d(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    size, stride, padding = sizes["kernel_size"], sizes["stride"], sizes["padding"]
    image = buffers["input"].reshape(sizes["N"], sizes["C"], sizes["H"], sizes["W"])
    edge = (padding, padding)
    padded = np.pad(image, ((0, 0), (0, 0), edge, edge), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))
    return flat(output=windows[:, :, ::stride, ::stride].max(axis=(4, 5)))


def conv_1d(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(output=signal.correlate(buffers["input"], buffers["kernel"], mode="valid", method="direct"))


def conv_2d(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    image = buffers["input"].reshape(sizes["input_rows"], sizes["input_cols"])
    kernel = buffers["kernel"].reshape(sizes["kernel_rows"], sizes["kernel_cols"])
    return flat(output=signal.correlate(image, kernel, mode="valid", method="direct"))


def stencil_2d(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    u = buffers["u_old"].reshape(sizes["nx"], sizes["ny"])
    new = u.copy()
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    new[1:-1, 1:-1] += sizes["r"] * (around - 4 * u[1:-1, 1:-1])
    return flat(u_new=new)


def stencil_3d(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    u = buffers["u_old"].reshape(sizes["nx"], sizes["ny"], sizes["nz"])
    new = u.copy()
    inside = (slice(1, -1),) * 3
    around = np.zeros_like(u[inside])
    for axis in range(3):
        for side in (slice(None, -2), slice(2, None)):
            around += u[(*inside[:axis], side, *inside[axis + 1 :])]
    new[inside] += sizes["r"] * (around - 6 * u[inside])
    return flat(u_new=new)


ORACLES: dict[str, Oracle] = {
    "max_pooling_2d": max_pooling_2d,
    "conv_1d": conv_1d,
    "conv_2d": conv_2d,
    "stencil_2d": stencil_2d,
    "stencil_3d": stencil_3d,
}

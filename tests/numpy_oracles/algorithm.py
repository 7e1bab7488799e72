"""Sorting, selection, integrals and transforms."""

import numpy as np

from numpy_oracles.form import Buffers, Oracle, Sizes, flat


def sorting(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(data=np.sort(buffers["data"]))


def top_k(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    x = buffers["input"]
    order = np.lexsort((np.arange(len(x)), -x))[: sizes["k"]]  # the last key counts first
    return flat(top_k_values=x[order], top_k_indices=order)


def simpson_int(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    y, n = buffers["y_samples"], sizes["N"]
    h = (sizes["b"] - sizes["a"]) / (n - 1)
    total = y[0] + y[n - 1] + 4 * np.sum(y[1 : n - 1 : 2]) + 2 * np.sum(y[2 : n - 2 : 2])
    return flat(result=h / 3 * total)


def monte_carlo_int(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(result=(sizes["b"] - sizes["a"]) * np.mean(buffers["y_samples"]))


def fft(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    transform = np.fft.fft(buffers["input_real"] + 1j * buffers["input_img"])
    return flat(output_real=transform.real, output_img=transform.imag)


def prefix_sum(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(output=np.cumsum(buffers["input"]))


ORACLES: dict[str, Oracle] = {
    "sorting": sorting,
    "top_k": top_k,
    "simpson_int": simpson_int,
    "monte_carlo_int": monte_carlo_int,
    "fft": fft,
    "prefix_sum": prefix_sum,
}

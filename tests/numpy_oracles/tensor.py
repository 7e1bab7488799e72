"""Tensor processing."""

import numpy as np

from numpy_oracles.form import Buffers, Oracle, Sizes, flat


def reverse_array(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(output=buffers["input"][::-1])


def matrix_copy(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(B=buffers["A"].copy())


def matrix_transpose(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(B=buffers["A"].reshape(sizes["M"], sizes["N"]).T)


def high_order_contraction(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    a_dim, b_dim, c_dim, x_dim, y_dim = (sizes[f"{axis}_dim"] for axis in "abcxy")
    a = buffers["A"].reshape(a_dim, x_dim, b_dim, y_dim)
    b = buffers["B"].reshape(x_dim, c_dim, y_dim)
    return flat(C=np.einsum("axby,xcy->abc", a, b, optimize=True))


ORACLES: dict[str, Oracle] = {
    "reverse_array": reverse_array,
    "matrix_copy": matrix_copy,
    "matrix_transpose": matrix_transpose,
    "high_order_contraction": high_order_contraction,
}

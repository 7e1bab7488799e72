"""Dense linear algebra. Matrices are row-major."""

import numpy as np

from numpy_oracles.form import Buffers, Oracle, Sizes, flat


def dot_product(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(out=np.dot(buffers["X"], buffers["Y"]))


def vector_add(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(C=buffers["A"] + buffers["B"])


def square_matrix_mul(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    shape = (sizes["M"], sizes["M"])
    return flat(C=buffers["A"].reshape(shape) @ buffers["B"].reshape(shape))


def matrix_scalar_mul(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(B=sizes["scalar"] * buffers["A"])


def matrix_mul(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    m, n, k = sizes["M"], sizes["N"], sizes["K"]
    return flat(C=buffers["A"].reshape(m, k) @ buffers["B"].reshape(k, n))


def matrix_power(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    n = sizes["N"]
    return flat(B=np.linalg.matrix_power(buffers["A"].reshape(n, n), sizes["P"]))


def matrix_vector_mul(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(y=buffers["A"].reshape(sizes["M"], sizes["N"]) @ buffers["x"])


ORACLES: dict[str, Oracle] = {
    "dot_product": dot_product,
    "vector_add": vector_add,
    "square_matrix_mul": square_matrix_mul,
    "matrix_scalar_mul": matrix_scalar_mul,
    "matrix_mul": matrix_mul,
    "matrix_power": matrix_power,
    "matrix_vector_mul": matrix_vector_mul,
}

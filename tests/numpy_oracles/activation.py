"""Activation functions, element by element."""

import numpy as np
from scipy import special

from numpy_oracles.form import Buffers, Oracle, Sizes, flat


def sigmoid(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(out=special.expit(buffers["input"]))


def selu(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    x = buffers["input"]
    return flat(output=sizes["lambda"] * np.where(x > 0, x, sizes["alpha"] * np.expm1(x)))


def elu(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    x = buffers["input"]
    return flat(output=np.where(x > 0, x, sizes["alpha"] * np.expm1(x)))


def gelu(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    x = buffers["input"]
    return flat(output=x * special.ndtr(x))  # (1 + erf(x / sqrt(2))) / 2, exact in the tails too


def row_tanh(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(out=np.tanh(buffers["input"]))


def relu(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(output=np.maximum(buffers["input"], 0))


def leaky_relu(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    x = buffers["input"]
    return flat(output=np.where(x > 0, x, sizes["alpha"] * x))


ORACLES: dict[str, Oracle] = {
    "sigmoid": sigmoid,
    "selu": selu,
    "elu": elu,
    "gelu": gelu,
    "row_tanh": row_tanh,
    "relu": relu,
    "leaky_relu": leaky_relu,
}

"""Loss functions."""

import numpy as np
from scipy import special

from numpy_oracles.form import Buffers, Oracle, Sizes, flat


def mse_loss(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(loss=np.mean(np.square(buffers["X"] - buffers["Y"])))


def hinge_loss(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    p = buffers["predictions"]
    return flat(loss=np.maximum(0, np.where(buffers["targets"] == 1, 1 - p, 1 + p)))


def cross_entropy_loss(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(loss=-np.sum(special.xlogy(buffers["Y"], buffers["X"])))


ORACLES: dict[str, Oracle] = {
    "mse_loss": mse_loss,
    "hinge_loss": hinge_loss,
    "cross_entropy_loss": cross_entropy_loss,
}

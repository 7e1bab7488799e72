"""Normalization. Variances are the biased ones."""

import numpy as np
from scipy import special

from numpy_oracles.form import Buffers, Oracle, Sizes, flat


def batch_norm(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    x = buffers["input"].reshape(sizes["N"], sizes["C"])
    normalised = (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + sizes["epsilon"])
    return flat(output=normalised * buffers["gamma"] + buffers["beta"])


def rms_norm(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    x = buffers["input"]
    rms = np.sqrt(np.mean(np.square(x)))
    return flat(output=x / (rms + sizes["epsilon"]) * buffers["weight"] + buffers["bias"])


def layer_norm(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    x = buffers["input"]
    normalised = (x - x.mean()) / np.sqrt(x.var() + sizes["epsilon"])
    return flat(output=normalised * buffers["weight"] + buffers["bias"])


def softmax(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(out=special.softmax(buffers["input"].reshape(sizes["N"], sizes["C"]), axis=1))


ORACLES: dict[str, Oracle] = {
    "batch_norm": batch_norm,
    "rms_norm": rms_norm,
    "layer_norm": layer_norm,
    "softmax": softmax,
}

"""What an oracle takes and gives."""

from collections.abc import Callable, Mapping

import numpy as np

Sizes = Mapping[str, float | int]
Buffers = Mapping[str, np.ndarray]
Oracle = Callable[[Sizes, Buffers], dict[str, np.ndarray]]


def flat(**outputs: np.ndarray | float) -> dict[str, np.ndarray]:
    """Outputs by name as flat arrays; a number is an array of one element."""
    return {name: np.ravel(value) for name, value in outputs.items()}

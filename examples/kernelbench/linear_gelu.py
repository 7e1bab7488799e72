"""A linear layer, then GELU: a problem in KernelBench's form."""

import torch
from torch import nn


class Model(nn.Module):
    """y = gelu(x W^T + b)."""

    def __init__(self, features: int, results: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, results)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` is batch x features."""
        return nn.functional.gelu(self.linear(x))


def get_inputs():
    """Arguments of forward."""
    return [torch.randn(256, 96)]


def get_init_inputs():
    """Arguments of Model."""
    return [96, 64]

"""Softmax of each row after scaling: a problem in KernelBench's form."""

import torch
from torch import nn


class Model(nn.Module):
    """y = softmax(scale * x) over the last dimension."""

    def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
        """`x` is rows x columns."""
        return torch.softmax(x * scale, dim=-1)


def get_inputs():
    """Arguments of forward."""
    return [torch.randn(512, 1000), 0.5]


def get_init_inputs():
    """Arguments of Model."""
    return []

"""A small convolution with stride 2, then ReLU: a problem in KernelBench's form."""

import torch
from torch import nn


class Model(nn.Module):
    """y = relu(conv(x))."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size=3, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` is batch x channels x height x width."""
        return torch.relu(self.conv(x))


def get_inputs():
    """Arguments of forward."""
    return [torch.rand(8, 3, 64, 48)]


def get_init_inputs():
    """Arguments of Model."""
    return [3, 16]

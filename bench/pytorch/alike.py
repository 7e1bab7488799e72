"""Whether two results are the same to the judge, whose bound for any kernel is that of include/mskb/compare.h."""

from __future__ import annotations

import math

import torch

_ULPS = 256 * 2.0**-23  # of an element's size, or of the output's root mean square where that is larger
_ULPS_OF_DOUBLE = 256 * 2.0**-42
_ROUNDINGS = 2  # in ulps of the output's own type


def alike(some: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a kernel that gives one of them passes where the other is right. Whole numbers have to be equal."""
    if some.shape != other.shape:
        return False
    if not some.is_floating_point() or some.numel() == 0:
        return torch.equal(some, other)
    a, b = some.double(), other.double()
    right = torch.where(b.isfinite(), b, 0.0)
    scale = right.abs().clamp(min=right.square().mean().sqrt().item())
    ulps = _ULPS_OF_DOUBLE if some.dtype == torch.float64 else _ULPS
    allowed = ulps * scale + _ROUNDINGS * torch.finfo(some.dtype).eps * right.abs()
    return bool(((a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= allowed)).all())


def redrawn(like: torch.Tensor) -> torch.Tensor:
    """A part of a model's state as the judge draws it: uniform, with its mean and spread (docs/kernelbench.md)."""
    values = like.detach().double()
    mean, spread = values.mean().item(), math.sqrt(3) * values.std(correction=0).item()
    if spread <= 1e-6 * max(abs(mean), 1e-6):
        spread = 0.1 * max(abs(mean), 1.0)
    return (mean + spread * (2 * torch.rand(values.shape, dtype=torch.float64) - 1)).to(like.dtype)

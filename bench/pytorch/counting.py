"""Counts what eager PyTorch does in a call: its operators that compute, with their bytes and operations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry


@dataclass(frozen=True)
class Operator:
    """One call of an operator: bytes of the tensors that it reads and writes, and floating-point operations.

    `products` says that these are multiply-adds of a matrix product or a convolution.
    """

    name: str
    read: int
    written: int
    operations: int
    products: bool


class Counted(TorchDispatchMode):
    """Sees the operators of what is called in its block. Those whose results share memory with an input are views."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Operator] = []

    @property
    def operations(self) -> int:
        """Of all operators together."""
        return sum(operator.operations for operator in self.operators)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = list(_tensors(result))
        if func.is_view or not made or _NOTHING & {func.overloadpacket.__name__}:
            return result
        read, written = _bytes(_tensors((args, kwargs or {}))), _bytes(made)
        known = flop_registry.get(func.overloadpacket)
        inner = max([t.numel() for t in [*_tensors((args, kwargs or {})), *made]], default=0)
        operations = int(known(*args, **(kwargs or {}), out_val=result)) if known else inner
        self.operators.append(Operator(func.overloadpacket.__name__, read, written, operations, known is not None))
        return result


# Operators that neither compute nor move anything.
_NOTHING = {"empty", "empty_like", "empty_strided", "new_empty", "_local_scalar_dense", "lift_fresh", "detach"}


def counted(model: torch.nn.Module, inputs: Sequence[Any]) -> Counted:
    """The operators of one call of a model."""
    counts = Counted()
    with torch.no_grad(), counts:
        model(*inputs)
    return counts


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))


def _bytes(tensors: Any) -> int:
    return sum(math.prod(each.shape) * each.element_size() for each in tensors)

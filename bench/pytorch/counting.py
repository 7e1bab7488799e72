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


# What a GPU has a kernel of its own for, and what falls apart into small operators elsewhere: counted as one.
_WHOLE = {"lstm", "gru", "rnn_tanh", "rnn_relu", "scaled_dot_product_attention"}
# Another operator that falls apart into more than this many has a kernel of its own on a GPU, most likely.
_MOST_PARTS = 200
# They read no more of their first tensor than their result holds,
_PICKING = {"embedding", "gather", "index_select", "index", "take"}
# or write no more of it, in place, than their largest other tensor holds.
_PUTTING = {"scatter_", "scatter_add_", "scatter_reduce_", "index_add_", "index_copy_", "index_put_", "index_fill_"}
# Operators that neither compute nor move anything.
_NOTHING = {"empty", "empty_like", "empty_strided", "new_empty", "_local_scalar_dense", "lift_fresh", "detach"}


class Counted(TorchDispatchMode):
    """Sees the operators of what is called in its block. Those whose results share memory with an input are views.

    The block has to be in inference mode: elsewhere PyTorch takes operators apart before a mode sees them. `names` are
    those of all operators, also of the parts of one that counts as a whole. `unknown` says why the operators are not
    those of a GPU, where they are not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Operator] = []
        self.names: list[str] = []
        self.unknown = ""

    @property
    def operations(self) -> int:
        """Of all operators together."""
        return sum(operator.operations for operator in self.operators)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name, first, unknown = func.overloadpacket.__name__, len(self.operators), self.unknown
        with self:
            result = func.decompose(*args, **kwargs)
        if result is NotImplemented:
            result = func(*args, **kwargs)
            self._count(func, args, kwargs, result)
        elif name in _WHOLE:
            parts, self.unknown = self.operators[first:], unknown
            causal = kwargs.get("is_causal", name == "scaled_dot_product_attention" and args[5:6] == (True,))
            operations = sum(part.operations for part in parts if part.products) // (2 if causal else 1)
            read, written = _bytes(_tensors((args, kwargs))), _bytes(_tensors(result))
            self.operators[first:] = [Operator(name, read, written, operations, True)]
            self.names.append(name)
        elif (count := len(self.operators) - first) > _MOST_PARTS:
            self.unknown = self.unknown or (
                f"{name} falls apart into {count} operators without a GPU, which most likely has fewer kernels for it"
            )
        return result

    def _count(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        name, made, taken = func.overloadpacket.__name__, list(_tensors(result)), list(_tensors((args, kwargs)))
        if func.is_view or not made or name in _NOTHING:
            return
        read, written = _bytes(taken), _bytes(made)
        inner = max(each.numel() for each in [*taken, *made])
        if name in _PICKING:
            inner = max(each.numel() for each in [*taken[1:], *made])
            read -= max(_bytes(taken[:1]) - written, 0)
        elif name in _PUTTING:
            inner = min(taken[0].numel(), max((each.numel() for each in taken[1:]), default=1))
            written = inner * taken[0].element_size()
            read = _bytes(taken[1:]) + (written if "add" in name or "reduce" in name else 0)
        known = flop_registry.get(func.overloadpacket)
        operations = int(known(*args, **kwargs, out_val=result)) if known else inner
        self.operators.append(Operator(name, read, written, operations, known is not None))
        self.names.append(name)


def counted(model: torch.nn.Module, inputs: Sequence[Any]) -> Counted:
    """The operators of one call of a model."""
    counts = Counted()
    with torch.inference_mode(), counts:
        model(*inputs)
    return counts


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))


def _bytes(tensors: Any) -> int:
    return sum(math.prod(each.shape) * each.element_size() for each in tensors)

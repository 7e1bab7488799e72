"""Reads a problem in KernelBench's form, and prints what a task card needs to know about it as JSON.

    python read.py FILE RESULT

RESULT is the file that the JSON is written to: the problem itself may print. An `error` in it is the problem's.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import math
import random
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from alike import alike, redrawn
from counting import counted
from problem import SEED, Problem, c_names, outputs_of

Position = tuple[int, int]  # an input, and a dimension of it
Sizes = dict[str, int]
_LOWEST = (1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 48, 64, 100, 128, 256)
_MOST_SYMBOLS = 4
# What the suite's checker allowed: whoever gives zeros passes there, if all elements are nearer to zero.
_SUITE_TOLERANCE = 1e-2
_DRAWS_OF_VALUES = 4  # that are tried where shapes may depend on values
_MOST_CHECKED = 40  # parameters that are looked at one by one


class Refused(Exception):
    """Why the problem makes no task."""


def main() -> None:
    """Read one problem."""
    path, result = sys.argv[1:]
    try:
        told: dict[str, Any] = Reading(path).told()
    except Refused as why:
        told = {"error": str(why)}
    except Exception as error:  # of the problem, which is anyone's
        told = {"error": _said(error, path)}
    Path(result).write_text(json.dumps(told), encoding="utf-8")


def _said(error: BaseException, path: str) -> str:
    """An exception with the line of the problem's file that it passed last."""
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines.append(error.lineno)
    words = error.msg if isinstance(error, SyntaxError) else str(error)
    where = f" in line {lines[-1]}" if lines else ""
    return f"{type(error).__name__}{where}: {words.rstrip('.')}"


class Reading:
    """One problem: what it is called on, which sizes may be others, and what is wrong with it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.problem = Problem(path)
        self.given = self.problem.inputs()
        arguments = self.problem.arguments(self.given)
        state = [name for name, _ in (*self.problem.model.named_parameters(), *self.problem.model.named_buffers())]
        self.names, self.paths = c_names(arguments, state)
        self.tensors = {k: x for k, x in enumerate(self.given) if isinstance(x, torch.Tensor)}
        self._on_meta = self._tried_on_meta()
        self.symbols = self._free_sizes()

    def told(self) -> dict[str, Any]:
        """All of it, for the card."""
        outputs = self._fitted()
        self._refuse_shapes_of_values()
        state = self._state()
        small = {name: min(self._first(name), max(low, 4)) for name, (_, low) in self.symbols.items()}
        unused, faults = self._faults(small)
        names = {position: name for name, (positions, _) in self.symbols.items() for position in positions}
        sizes = {name: {"given": self._first(name), "low": low, "of": self.names[places[0][0]], "dim": places[0][1]}
                 for name, (places, low) in self.symbols.items()}  # fmt: skip
        given = self._at({})
        count = counted(self._model_on("meta" if self._on_meta else "cpu"), given)
        return {
            "torch": torch.__version__,
            "training": self.problem.model.training,
            "sizes": sizes,
            "inputs": [self._input(k, names) for k in range(len(self.given))],
            "state": [each for each in state if each["path"] not in unused],
            "outputs": outputs,
            "unused": sorted(unused),
            "faults": faults,
            "operations": count.operations,
            "operators": count.names,
        }

    def _input(self, k: int, names: Mapping[Position, str]) -> dict[str, Any]:
        given = self.given[k]
        if not isinstance(given, torch.Tensor):
            return {"name": self.names[k], "value": given if isinstance(given, int | float) else None}
        shape = [names.get((k, d), n) for d, n in enumerate(given.shape)]
        return {"name": self.names[k], "shape": shape, "contiguous": given.is_contiguous(), **_values(given)}

    def _state(self) -> list[dict[str, Any]]:
        """Parameters, then buffers, in the model's order."""
        model = self.problem.model
        parts = [("parameter", *each) for each in model.named_parameters()]
        parts += [("buffer", *each) for each in model.named_buffers()]
        return [
            {"name": self.paths[path], "path": path, "kind": kind, "shape": list(t.shape), **_values(t.detach())}
            for kind, path, t in parts
        ]

    # ---- sizes ----------------------------------------------------------------------------------------------------

    def _first(self, name: str) -> int:
        """The size that get_inputs gives."""
        k, d = self.symbols[name][0][0]
        return self.tensors[k].shape[d]

    def _at(self, sizes: Mapping[Position, int], device: str | None = None) -> list[Any]:
        """Inputs of other sizes; on the meta device, which has no memory, unless another is named."""
        device = device or ("meta" if self._on_meta else "cpu")
        made = list(self.given)
        for k, x in self.tensors.items():
            shape = [sizes.get((k, d), n) for d, n in enumerate(x.shape)]
            made[k] = torch.empty(shape, dtype=x.dtype, device="meta") if device == "meta" else _drawn(x, shape)
        return made

    def _model_on(self, device: str) -> torch.nn.Module:
        model = copy.deepcopy(self.problem.model)
        return model.to(device) if device == "meta" else model

    def _tried_on_meta(self) -> bool:
        """Whether the model runs without memory, which most do: then the sizes of gigabytes cost nothing."""
        self._on_meta = True
        if not self.tensors:
            raise Refused("get_inputs gives no tensor")
        return self._shapes({}) is not None

    def _shapes(self, sizes: Mapping[Position, int]) -> list[tuple[int, ...]] | None:
        """Shapes of the outputs for inputs of these sizes, None where forward fails."""
        try:
            torch.manual_seed(SEED)
            return [tuple(each.shape) for each in self._outputs(self._at(sizes))]
        except Exception:
            return None

    def _outputs(self, inputs: list[Any]) -> list[torch.Tensor]:
        """What forward returns. Raises whatever it raises."""
        with torch.no_grad():
            return list(outputs_of(self._model_on("meta" if self._on_meta else "cpu")(*inputs)))

    def _why_it_fails(self) -> Exception:
        """What forward raises on the CPU, on what get_inputs gives or on other values of the same sizes."""
        others = "forward fails on other values than those that get_inputs gives"
        self._outputs(self.given)
        try:
            torch.manual_seed(SEED)
            self._outputs(self._at({}))
        except Exception as error:
            return Refused(f"{others}: {_said(error, self.path)}")
        return Refused(others)

    def _refuse_shapes_of_values(self) -> None:
        """Raises Refused where other values, of the same sizes, give outputs of other shapes."""
        if self._on_meta:  # which has no values
            return
        torch.manual_seed(SEED + 2)
        alike = [torch.full_like(x, x.flatten()[0].item()) if isinstance(x, torch.Tensor) and x.numel() else x
                 for x in self.given]  # fmt: skip
        seen = {tuple(each.shape for each in self._outputs(copy.deepcopy(self.given)))}
        for values in (*(self._at({}) for _ in range(_DRAWS_OF_VALUES)), alike):
            with contextlib.suppress(Exception):  # not every module takes any values
                seen.add(tuple(each.shape for each in self._outputs(values)))
        if len(seen) > 1:
            raise Refused("the shape of an output depends on the values of the inputs, and a card says sizes alone")

    def _free_sizes(self) -> dict[str, tuple[list[Position], int]]:
        """Sizes that may be others, by name: where they stand, and the least that works.

        Some stand in several places: they are tried alone, then with those of the same dimension, then with all that
        are equal. What forward refuses at some sizes (a number of heads has to divide it, say) is fixed.
        """
        places = [(k, d) for k, x in self.tensors.items() for d in range(x.dim()) if x.shape[d] > 0]
        size = {(k, d): self.tensors[k].shape[d] for k, d in places}
        found: dict[str, tuple[list[Position], int]] = {}
        taken: set[Position] = set()
        for first in places:
            if first in taken or len(found) == _MOST_SYMBOLS:
                continue
            alike = [p for p in places if p not in taken and size[p] == size[first]]
            for together in ([first], [p for p in alike if p[1] == first[1]], alike):
                if (low := self._lowest(together, size[first])) is not None:
                    found[f"{self.names[first[0]]}_dim{first[1]}"] = (together, low)
                    taken.update(together)
                    break
        return self._jointly_free(found)

    def _lowest(self, places: Sequence[Position], given: int) -> int | None:
        """The least size that works in these places, None where only the given one does."""

        def works(size: int) -> bool:
            return self._shapes(dict.fromkeys(places, size)) is not None

        if not all(works(size) for size in (given + 1, given + 2, given + 7, max(given - 1, 1))):
            return None
        return next((n for n in _LOWEST if n < given and works(n) and works(n + 1)), given if given > 1 else 1)

    def _jointly_free(self, found: dict[str, tuple[list[Position], int]]) -> dict[str, tuple[list[Position], int]]:
        """As many of them as may be others at once, and whose outputs' shapes follow from them."""
        while found:
            self.symbols = found
            if all(self._shapes(self._places(sizes)) is not None for sizes in self._draws(6)) and self._follow():
                break
            found = dict(list(found.items())[:-1])
        return found

    def _draws(self, count: int) -> list[Sizes]:
        rng = random.Random(SEED)
        return [
            {
                name: rng.randint(low, max(low + 9, min(self._first(name), 200)))
                for name, (_, low) in self.symbols.items()
            }
            for _ in range(count)
        ]

    def _places(self, sizes: Sizes) -> dict[Position, int]:
        return {p: size for name, size in sizes.items() for p in self.symbols[name][0]}

    def _follow(self) -> bool:
        try:
            self._fitted()
        except Refused:
            return False
        return True

    def _fitted(self) -> list[dict[str, Any]]:
        """Outputs with their shapes, each dimension a number or an expression over the sizes."""
        base = {name: self._first(name) for name in self.symbols}
        samples = [base, *self._draws(8)]
        for name, (_, low) in self.symbols.items():
            samples += [{**base, name: size} for size in (low, low + 1, low + 2, base[name] + 1, base[name] + 2)]
        shapes = [self._shapes(self._places(sizes)) for sizes in samples]
        first = shapes[0]
        if first is None:
            raise self._why_it_fails()
        if not first:
            raise Refused("forward returns no tensor")
        ranks = [[len(shape) for shape in each] for each in shapes if each is not None]
        if len(ranks) < len(samples) or any(each != ranks[0] for each in ranks):
            raise Refused("the number of outputs or of their dimensions depends on the sizes")
        torch.manual_seed(SEED)
        types = [str(each.dtype).removeprefix("torch.") for each in self._outputs(self._at({}))]
        fitted = []
        for k, shape in enumerate(first):
            dims = [_fit([each[k][d] for each in shapes if each is not None], samples) for d in range(len(shape))]
            fitted.append({"shape": dims, "dtype": types[k]})
        return fitted

    # ---- known faults ---------------------------------------------------------------------------------------------

    def _faults(self, small: Sizes) -> tuple[set[str], list[dict[str, str]]]:
        """Parts of the state that no output depends on, and known faults of such problems: kind, and words."""
        torch.manual_seed(SEED + 1)
        inputs = self._at(self._places(small), device="cpu")
        kept = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
        usual = self._run(inputs)
        if any(isinstance(x, torch.Tensor) and not torch.equal(x, old) for x, old in zip(inputs, kept, strict=True)):
            raise Refused("forward changes one of its inputs, which have to stay as they are")
        if not _same(usual, self._run(inputs)):
            raise Refused("forward gives another result each time (dropout in training mode, say)")
        faults: list[dict[str, str]] = []

        def fault(kind: str, words: str) -> None:
            faults.append({"kind": kind, "words": words})

        blind: list[set[int]] = []
        for k in self.tensors:
            changed = [self._run([*inputs[:k], _drawn(self.tensors[k], inputs[k].shape), *inputs[k + 1 :]])
                       for _ in range(2)]  # fmt: skip
            still = {n for n, out in enumerate(usual) if all(_same([out], [one[n]]) for one in changed)}
            blind.append(still)
            if len(still) == len(usual):
                fault("unused input", f"the input {self.names[k]} changes nothing: no output depends on it")
            else:
                for n in sorted(still):
                    fault("independent output", f"output {n} does not depend on the input {self.names[k]}")
                for n in sorted(set(range(len(usual))) - still):
                    if all(alike(one[n], usual[n]) for one in changed):
                        fault("hardly depends", _hardly(n, f"the input {self.names[k]}"))
        for n, out in enumerate(usual):
            values = out.double()
            spread = (values.max() - values.min()).item() if values.numel() else 0.0
            if blind and all(n in still for still in blind):
                fault("constant output", f"output {n} depends on no input")
            elif values.numel() > 1 and spread <= 1e-6 * max(values.abs().max().item(), 1e-30):
                fault("constant output", f"all elements of output {n} are equal, {values.flatten()[0].item():.4g}")
            largest = values.abs().max().item() if values.numel() else 0.0
            if largest <= _SUITE_TOLERANCE:
                fault(
                    "near zero",
                    f"all elements of output {n} lie within {_SUITE_TOLERANCE:g} of zero (the largest is "
                    f"{largest:.2g}), so zeros pass a check with an absolute tolerance of that size",
                )
            if not torch.isfinite(values).all():
                fault("not finite", f"output {n} has elements that are no finite numbers")
        for k, x in self.tensors.items():
            zeros = (x == 0).double().mean().item() if x.is_floating_point() and x.numel() else 0.0
            if 0.2 < zeros < 1:
                fault(
                    "structured input",
                    f"{zeros:.0%} of the input {self.names[k]} are exact zeros, and the judge draws inputs without "
                    "structure",
                )
        idle, weak = self._without_effect(inputs, usual)
        for path in weak:
            fault("hardly depends", _hardly(None, path))
        return idle, faults

    def _without_effect(self, inputs: list[Any], usual: list[torch.Tensor]) -> tuple[set[str], list[str]]:
        """Parts of the state that are no floating-point numbers, or that no output depends on; and those whose effect
        is below what the judge allows."""
        state = [*self.problem.model.named_parameters(), *self.problem.model.named_buffers()]
        idle = {path for path, tensor in state if not tensor.is_floating_point()}
        weak: list[str] = []
        looked_at = [path for path, tensor in state if tensor.is_floating_point()]
        for path in looked_at if len(looked_at) <= _MOST_CHECKED else ():

            def spoil(model: torch.nn.Module, path: str = path) -> None:
                one = {**dict(model.named_parameters()), **dict(model.named_buffers())}[path]
                one.data += 0.25 + torch.rand_like(one)

            def redraw(model: torch.nn.Module, path: str = path) -> None:
                one = {**dict(model.named_parameters()), **dict(model.named_buffers())}[path]
                one.data = redrawn(one)

            if _same(usual, self._run(inputs, spoil)):
                idle.add(path)
            elif all(map(alike, self._run(inputs, redraw), usual)):
                weak.append(path)
        return idle, weak

    def _run(
        self, inputs: list[Any], change: Callable[[torch.nn.Module], None] = lambda model: None
    ) -> list[torch.Tensor]:
        model = self._model_on("cpu")
        with torch.no_grad():
            change(model)
            return [each.clone() for each in outputs_of(model(*inputs))]


def _hardly(output: int | None, what: str) -> str:
    which = "no output depends" if output is None else f"output {output} does not depend"
    return f"{which} on {what} by more than the judge allows an error: a kernel without it may pass"


def _same(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return all(a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
               for a, b in zip(some, others, strict=True))  # fmt: skip


def _fit(seen: Sequence[int], samples: Sequence[Sizes]) -> int | str:
    """A dimension as a function of the sizes: constant, k n + c, (n + c) // s, or k times some of them."""
    if len(set(seen)) == 1:
        return seen[0]
    for name in samples[0]:
        n = [sizes[name] for sizes in samples]
        for step in range(1, 9):
            offsets = {out - size * step for out, size in zip(seen, n, strict=True)}
            if len(offsets) == 1:
                return _written(name, step, offsets.pop())
            if step > 1:
                for offset in range(-64, 65):
                    if all(out == (size + offset) // step for out, size in zip(seen, n, strict=True)):
                        return f"({_written(name, 1, offset)}) // {step}"
    for count in range(1, len(samples[0]) + 1):
        for chosen in itertools.combinations(samples[0], count):
            products = [math.prod(sizes[name] for name in chosen) for sizes in samples]
            factor = seen[0] // products[0] if products[0] else 0
            if factor and all(out == factor * product for out, product in zip(seen, products, strict=True)):
                return " * ".join([*([str(factor)] if factor > 1 else []), *chosen])
    raise Refused("a dimension of an output follows from the sizes in no way that a card can say")


def _written(name: str, factor: int, offset: int) -> str:
    product = name if factor == 1 else f"{factor} * {name}"
    return product if offset == 0 else f"{product} {'+' if offset > 0 else '-'} {abs(offset)}"


def _values(x: torch.Tensor) -> dict[str, Any]:
    """The element type, and how its values lie: least, greatest, mean, spread."""
    told: dict[str, Any] = {"dtype": str(x.dtype).removeprefix("torch.")}
    if x.is_complex():
        raise Refused("it has complex numbers, for which the judge has no type")
    if x.numel() == 0:
        return told
    values = x.double()
    told["whole"] = _is_whole(x)
    told |= {"min": values.min().item(), "max": values.max().item(), "mean": values.mean().item()}
    return {**told, "std": values.std(correction=0).item()}


def _is_whole(x: torch.Tensor) -> bool:
    """Whether it has whole numbers alone, such as a mask of zeros and ones in floating point."""
    return not x.is_floating_point() or (bool((x == x.round()).all()) and x.min().item() < x.max().item())


def _drawn(like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A tensor of that shape with values like those of another."""
    if like.numel() == 0:
        return torch.empty(list(shape), dtype=like.dtype)
    if not _is_whole(like):
        values = like.double()
        low, high = values.min().item(), values.max().item()
        return (low + (high - low) * torch.rand(list(shape), dtype=torch.float64)).to(like.dtype)
    low, high = int(like.min().item()), int(like.max().item())
    return torch.randint(low, high + 1, list(shape)).to(like.dtype)


if __name__ == "__main__":
    main()

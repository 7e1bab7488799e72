"""A problem in KernelBench's form: a module with `Model`, `get_inputs` and `get_init_inputs`, made under a fixed seed.

The programs of this folder run in a Python that has PyTorch, which need not be the one that runs cudamaster. So they
import nothing of it. A reference that `cudamaster import` wrote loads this file too.
"""

from __future__ import annotations

import importlib.util
import inspect
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

SEED = 42  # as the suite's own checker has it


class Problem:
    """The module of a file with its model. Raises whatever the file raises."""

    def __init__(self, path: str | Path) -> None:
        spec = importlib.util.spec_from_file_location(f"problem_{Path(path).stem}", path)
        if spec is None or spec.loader is None:
            raise ValueError("it is no Python file")
        self.module = importlib.util.module_from_spec(spec)
        torch.manual_seed(SEED)
        spec.loader.exec_module(self.module)
        if missing := [name for name in ("Model", "get_inputs", "get_init_inputs") if not hasattr(self.module, name)]:
            raise ValueError(f"it does not define {', '.join(missing)}")
        positional, named = _arguments_of_model(self.module.get_init_inputs())
        torch.manual_seed(SEED)
        self.model: torch.nn.Module = self.module.Model(*positional, **named)

    def inputs(self) -> list[Any]:
        """What `get_inputs` makes under the seed."""
        torch.manual_seed(SEED)
        return list(self.module.get_inputs())

    def arguments(self, inputs: Sequence[object]) -> list[str]:
        """Names of what `forward` is called on, one for each of the inputs."""
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        named = [p.name for p in inspect.signature(self.model.forward).parameters.values() if p.kind in kinds]
        return [named[k] if k < len(named) else f"input{k}" for k in range(len(inputs))]

    def bind(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Puts tensors in place of parameters and buffers of the model, by their names in it.

        A parameter takes the tensor itself, without a copy. `forward` may write to a buffer, which gets a copy.
        """
        parameters, owners = dict(self.model.named_parameters()), dict(self.model.named_modules())
        for name, tensor in tensors.items():
            if name in parameters:
                parameters[name].data = tensor
            else:
                owner, _, own = name.rpartition(".")
                owners[owner]._buffers[own] = tensor.clone()


# What no parameter of a wrapper can be called: words of C++, and what the harness calls its own.
_WORDS = """
    alignas alignof and asm auto bool break case catch char class const constexpr continue default delete do double
    else enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept
    not nullptr operator or private protected public register return short signed sizeof static struct switch
    template this throw true try typedef typename union unsigned using virtual void volatile while xor T c host
    device expected inputs sizes min max
"""
_TAKEN = {*keyword.kwlist, *_WORDS.split()}


def c_names(arguments: Sequence[str], state: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Names in C of the arguments of forward, and of parts of the model's state by their own names."""
    taken: set[str] = set()

    def named(text: str) -> str:
        name = re.sub(r"\W", "_", text.replace(".", "_"), flags=re.ASCII)
        while name in _TAKEN or name in taken or not re.match(r"[A-Za-z_]", name):
            name = f"{name}_" if re.match(r"[A-Za-z_]", name) else f"p{name}"
        taken.add(name)
        return name

    return [named(each) for each in arguments], {each: named(each) for each in state}


def outputs_of(result: object) -> Iterator[torch.Tensor]:
    """The tensors of a result: one, or those of tuples, lists and mappings, in their order."""
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, Mapping):
        for each in result.values():
            yield from outputs_of(each)
    elif isinstance(result, Sequence) and not isinstance(result, str):
        for each in result:
            yield from outputs_of(each)
    elif result is not None:
        raise ValueError(f"forward returns a {type(result).__name__}, which is no tensor")


def _arguments_of_model(given: Any) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of `Model` as get_init_inputs gives them: a list, a mapping, or a list of these two."""
    if isinstance(given, Mapping):
        return [], dict(given)
    given = list(given)
    if len(given) == 2 and isinstance(given[0], list) and isinstance(given[1], dict):
        return given[0], given[1]
    return given, {}

"""The libraries of the extra `train`, quiet: whether they are there, and the GPUs that PyTorch is to see."""

from __future__ import annotations

import importlib.util
import logging
import os
import warnings
from collections.abc import Sequence
from importlib.metadata import version

from cudamaster.core.errors import UsageError
from cudamaster.devices.cuda import LocalGpu

_NEEDED = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers")


def must_be_there() -> None:
    """Raise UsageError without the extra `train`."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"Training a model needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} missing here.",
            "Install the extra: .venv/bin/uv pip install -e '.[train]' (docs/training.md).",
        )


def versions() -> dict[str, str]:
    """The versions of the libraries that are there: what a checkpoint means depends on them."""
    return {name: version(name) for name in _NEEDED if importlib.util.find_spec(name) is not None}


def gpus_for(device: str, there: Sequence[LocalGpu]) -> tuple[LocalGpu, ...]:
    """The GPUs `there` that a model with this setting goes to; PyTorch sees no others in this process from now on.

    So no library spreads a model over GPUs that measure. It has to be called before PyTorch looks for GPUs. Raises
    UsageError for a GPU that is not there.
    """
    named = device.partition(":")[2]
    if device == "cpu" or (device == "auto" and not there):
        chosen: Sequence[LocalGpu] = ()
    elif not there:
        raise UsageError(f"model.device is {device}, and there is no GPU here.", "Write auto or cpu.")
    else:
        numbers = [int(number) for number in named.split(",")] if named else [0]
        if max(numbers) >= len(there):
            what = f"model.device is {device}, and there are {len(there)} GPUs here."
            raise UsageError(what, f"Write cuda:0 to cuda:{len(there) - 1}.")
        chosen = [there[number] for number in dict.fromkeys(numbers)]
    if chosen:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in chosen)
    return tuple(chosen)


def sees_gpus() -> bool:
    """Whether PyTorch can compute on the GPUs that it is to see."""
    import torch

    return bool(torch.cuda.is_available())


def finish_on_gpus() -> None:
    """Wait for what the model still computes, and give back the memory that it does not use now."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def be_quiet() -> None:
    """No bars, notes and warnings of the libraries, and nothing is sent anywhere: a line of ours says how far it is."""
    os.environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    # Said aloud, it is no reason for a warning at each process that is started: those are other programs.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    warnings.filterwarnings("ignore", category=FutureWarning)
    logging.getLogger("trl").setLevel(logging.ERROR)
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()

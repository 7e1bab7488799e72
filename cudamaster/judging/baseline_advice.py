"""What to do about a baseline that fails, which is no candidate's doing."""

from __future__ import annotations

from cudamaster.core import resources
from cudamaster.tasks import hgemm

_SIZES = (
    "If your kernel does not take these sizes, say so: to `cudamaster new` with --multiple or --fixed-size, or in the "
    "card with `multiple_of` in `held_out` and `held_out_large`, `fixed`, and other cases in `verify`."
)


def if_it_fails(task: str) -> str:
    """Of a baseline that has an error or a wrong result: one that comes with CUDAMaster, or a user's."""
    if (resources.bench() / "tasks" / f"{task}.yaml").is_file() or hgemm.is_meant(task):
        return "Run `cudamaster baselines` to see which baselines fail here."
    return f"{_SIZES} Otherwise correct the kernel."


def if_no_truth(what: str) -> str:
    """Of a baseline that cannot be its own reference; `what` is the judge's reason."""
    if what.endswith("was never written"):
        return (
            "An output has to be written as a whole. Scratch memory is no output and no parameter of a task: allocate "
            "it inside the function, or in one around it that becomes the task (`new --wrapper`). An array that keeps "
            "what it does not write is `inout`."
        )
    if "past its end" in what or "before its" in what:
        return f"{_SIZES} Otherwise correct its length in the card, or the kernel."
    return "Correct the baseline, widen `sound` in the card, or write a reference."

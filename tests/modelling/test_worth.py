"""What parts of the model are worth (benchmarks/gpu_model_worth.py): each can be left out, and is back afterwards."""

from __future__ import annotations

import gpu_model_fitting as fitting
import gpu_model_worth as worth
import pytest
from counted_by_hand import call, launch
from gpu_model_fitting import Example

from cudamaster.modelling import gpu, launch_time, memory
from cudamaster.modelling.constants import shipped
from cudamaster.modelling.measured import Time

H200 = gpu.load()
PARTS = worth.every(H200)


@pytest.mark.parametrize("part", PARTS, ids=[part.name for part in PARTS])
def test_a_part_is_left_out_and_comes_back(part: worth.Without) -> None:
    before = [getattr(module, name) for module, name, _ in part.functions]
    ranges = dict(fitting.OF_MODEL), dict(fitting.OF_GPU)
    with part.in_place():
        assert [getattr(module, name) for module, name, _ in part.functions] == [each for *_, each in part.functions]
        assert not {*part.figures} & {*fitting.OF_MODEL, *fitting.OF_GPU}
        of_gpu, constants = worth._set(part.figures, H200, shipped().constants)
        both = [
            Example(call(launch(1000, loads=loads, stores=1)), Time("relu", "fp32", name, "N=1", 20.0))
            for name, loads in (("baseline", 4), ("1_quicker", 2))
        ]
        assert min(worth.errors(part.of(both), of_gpu, constants)) > 0
    assert [getattr(module, name) for module, name, _ in part.functions] == before
    assert ranges == (fitting.OF_MODEL, fitting.OF_GPU)


def test_names_differ_and_functions_are_the_models() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS)
    assert all(module in (launch_time, memory) for part in PARTS for module, *_ in part.functions)

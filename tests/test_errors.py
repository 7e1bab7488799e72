"""Errors of the package, wherever they were raised."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor

import pytest

from cudamaster.core.errors import BaselineError, CudaMasterError, UsageError


def _fails() -> None:
    raise BaselineError("relu does not compile.", "Run `cudamaster doctor`.")


def test_an_error_of_another_process_arrives_as_it_was():
    """An audit's processes raise them too; what does not survive the way back ends the pool, and nobody learns why."""
    with ProcessPoolExecutor(1) as pool, pytest.raises(BaselineError, match="relu does not compile") as caught:
        pool.submit(_fails).result()
    assert caught.value.fix == "Run `cudamaster doctor`."


def _kinds(kind: type[CudaMasterError]) -> list[type[CudaMasterError]]:
    return [kind, *(below for one in kind.__subclasses__() for below in _kinds(one))]


def test_every_kind_keeps_its_reason_and_fix():
    """Those with a signature of their own would need a way of their own."""
    assert UsageError in _kinds(CudaMasterError)
    for kind in _kinds(CudaMasterError):
        again = pickle.loads(pickle.dumps(kind("a reason", "a fix")))
        assert type(again) is kind
        assert (again.reason, again.fix, str(again)) == ("a reason", "a fix", "a reason a fix")

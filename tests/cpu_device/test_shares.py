"""Parts of the judge: the reference in shares, what it is asked about, what is wrong, and when timing may stop."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize("what", ["order", "everywhere", "shares"])
def test_shares_are_the_whole(build: Callable[..., object], what: str) -> None:
    program = build("shares")
    done = program.run(what)  # type: ignore[attr-defined]
    assert done.exit_code == 0, done.stderr


@pytest.mark.slow
def test_the_judge_is_as_its_definition_says(build: Callable[..., object]) -> None:
    """Its short cuts change no verdict, no worst error and no tolerance."""
    done = build("verdicts").run()  # type: ignore[attr-defined]
    assert done.exit_code == 0, done.stderr


def test_a_sparse_row_may_be_summed_in_any_order(build: Callable[..., object]) -> None:
    """Atomics add in an order of their own; a baseline that happened on a lucky one must not make that wrong."""
    done = build("any_order").run()  # type: ignore[attr-defined]
    assert done.exit_code == 0, done.stderr


@pytest.mark.slow
def test_timing_goes_on_where_calls_are_slow_now_and_then(build: Callable[..., object]) -> None:
    """The spread of the middle half of the turns does not show them; fewer turns would call such a kernel faster."""
    done = build("turns").run()  # type: ignore[attr-defined]
    assert done.exit_code == 0, done.stderr


def test_no_call_sees_inputs_of_another(build: Callable[..., object]) -> None:
    """Nor structure, where it is made anew; nor do calls that are timed anew in place of others."""
    done = build("turn_inputs").run()  # type: ignore[attr-defined]
    assert done.exit_code == 0, done.stderr

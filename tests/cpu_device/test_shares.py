"""Holds the reference that several threads make to the one that one makes: the same elements, to the last bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize("what", ["order", "everywhere", "shares"])
def test_shares_are_the_whole(build: Callable[..., object], what: str) -> None:
    program = build("shares")
    done = program.run(what)  # type: ignore[attr-defined]
    assert done.exit_code == 0, done.stderr

"""What the fuzz tests share: how many examples, and how text is damaged."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st


def examples(count: int) -> settings:
    """Settings of a test: `count` examples, always the same; a profile with other than the usual 100 scales it."""
    usual = settings.default.max_examples <= 100
    return settings(
        max_examples=max(1, count * settings.default.max_examples // 100),
        derandomize=usual,
        database=None,
        deadline=None,  # `within` measures what matters, and stops it
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fails what takes longer, Python code that never comes back included."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"still busy after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@st.composite
def damaged(draw: st.DrawFn, text: str, pieces: Sequence[str], rounds: int = 4) -> str:
    """`text` with stretches deleted, repeated, moved or replaced, and `pieces` put in between."""
    for _ in range(draw(st.integers(1, rounds))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 80)))
        kind = draw(st.sampled_from(("insert", "delete", "repeat", "move", "replace", "truncate")))
        put = draw(st.one_of(st.sampled_from(list(pieces)), st.text(max_size=6)))
        if kind == "insert":
            text = text[:start] + put + text[start:]
        elif kind == "delete":
            text = text[:start] + text[end:]
        elif kind == "repeat":
            text = text[:end] + text[start:end] * draw(st.integers(1, 40)) + text[end:]
        elif kind == "move":
            target = draw(st.integers(0, start))
            text = text[:target] + text[start:end] + text[target:start] + text[end:]
        elif kind == "replace":
            text = text[:start] + put + text[end:]
        else:
            text = text[:start]
    return text

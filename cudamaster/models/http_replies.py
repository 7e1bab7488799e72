"""Changes to the HTTP client that LiteLLM uses: no reply fills the memory, and none is lost for its token counts."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

MOST_BYTES = 128 << 20  # of a reply, hundreds of times what a model writes


class Endless(BaseException):
    """A reply is longer than any model writes. No `except Exception` mistakes this for a failed connection."""


@functools.cache
def bound_replies() -> None:
    """Make the HTTP client, which reads whole replies into memory, end one that could fill it."""
    import httpx

    read = httpx.Response.iter_bytes

    def bounded(response: httpx.Response, chunk_size: int | None = None) -> Iterator[bytes]:
        length = 0
        for chunk in read(response, chunk_size):
            length += len(chunk)
            if length > MOST_BYTES:
                raise Endless
            yield chunk

    setattr(httpx.Response, "iter_bytes", bounded)  # noqa: B010


@functools.cache
def mend_usage() -> None:
    """Make the HTTP client keep only what can be counted of a reply's `usage`.

    LiteLLM raises for a token count that is not a number. The text beside it was paid for, and would be paid for again.
    """
    import httpx

    read = httpx.Response.json

    def mended(response: httpx.Response, **options: Any) -> Any:
        reply = read(response, **options)
        if isinstance(reply, dict) and reply.get("usage") is not None:
            reply["usage"] = _countable(reply["usage"])
        return reply

    setattr(httpx.Response, "json", mended)  # noqa: B010


def _countable(usage: object) -> dict[str, object]:
    """A `usage` with None for each token count that is not a whole number; empty if it is not an object at all."""
    if not isinstance(usage, dict):
        return {}
    return {
        name: _whole(value) if name.endswith("_tokens") else _countable(value) if isinstance(value, dict) else value
        for name, value in usage.items()
    }


def _whole(value: Any) -> int | None:
    try:
        return int(value) if float(value).is_integer() else None
    except (TypeError, ValueError, OverflowError):
        return None

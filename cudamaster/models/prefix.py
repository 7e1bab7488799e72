"""Finds where a prompt stops being the same from call to call: the part that a provider can cache.

Prompts begin with what stays (role, contract, device, task) and end with what changes. The requests themselves show
where the one ends, so no prompt has to mark it.
"""

from __future__ import annotations

import itertools

from cudamaster.models.protocol import Request


class StablePrefix:
    """Remembers the common beginning of all requests of a role about a task."""

    def __init__(self) -> None:
        self._seen: dict[tuple[object, ...], str] = {}

    def of(self, request: Request) -> str:
        """The whole lines of the first user message that all such requests so far had in common.

        Empty at the first request, when nothing is known yet, and if the first line changes each time.
        """
        text = next((message.content for message in request.messages if message.role == "user"), "")
        key = (request.role, request.facts.get("task"), request.facts.get("precision"))
        before = self._seen.get(key)
        if before is None:
            self._seen[key] = text
            return ""
        lines = zip(before.splitlines(keepends=True), text.splitlines(keepends=True), strict=False)
        common = "".join(line for line, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], lines))
        self._seen[key] = common
        return common

"""The CPU device for tests of something else than what its memory checker finds."""

from collections.abc import Sequence

from cudamaster.devices.cpu.device import CpuDevice


class PlainCpuDevice(CpuDevice):
    """Without the memory checker: one build in place of two and each case once, half the time."""

    has_debug_build = False

    def flags_of_builds(self, flags: Sequence[str]) -> Sequence[Sequence[str]]:
        """Of the plain build alone: each of the others takes a run of the preprocessor, and is rarely made here."""
        return super().flags_of_builds(flags)[:1]

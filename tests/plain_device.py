"""The CPU device for tests of something else than what its memory checker finds."""

from cudamaster.devices.cpu.device import CpuDevice


class PlainCpuDevice(CpuDevice):
    """Without the memory checker: one build in place of two and each case once, half the time."""

    has_debug_build = False

"""Devices, where a candidate is built, checked and timed: `cuda` is a GPU, `cpu` executes the kernels on the host."""

NAMES = ("cuda", "cpu")  # for --device; `auto` takes the first of them that is there

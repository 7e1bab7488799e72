"""Devices, where a candidate is built, checked and timed: `cuda` is a GPU, `cpu` executes the kernels on the host."""

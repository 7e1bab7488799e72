"""Kernels with known answers: what the executor must do as a GPU does it."""

import pytest

CHECKS = ["launches", "barriers", "warps", "atomics", "memory", "groups", "refusals", "intrinsics", "access", "control"]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("reversed_threads", [False, True], ids=["ascending", "descending"])
def test_known_answers(build, check, reversed_threads):
    """Each feature gives the known answer, whatever the order of threads and blocks."""
    ran = build("features").run(check, reversed_threads=reversed_threads)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_known_answers_under_the_sanitizer(build, check):
    """The debug build gives the same answers, and AddressSanitizer has nothing to say about the executor."""
    ran = build("features", debug=True).run(check)
    assert ran.exit_code == 0, ran.stderr
    assert "AddressSanitizer" not in ran.stderr


def test_device_printf_goes_to_stderr(build):
    """What a kernel prints is seen, and not on stdout."""
    assert "device says 42" in build("features").run("intrinsics").stderr


def test_wmma_products(build):
    """All shapes, layouts and types of wmma give the plain product."""
    ran = build("products").run()
    assert ran.exit_code == 0, ran.stderr

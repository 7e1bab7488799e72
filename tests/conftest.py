"""What all tests share: builds are cached beside the checkout's other builds, GPU tests skip with a reason."""

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("CUDAMASTER_CACHE", str(Path(__file__).parent.parent / ".cache"))
for _name in [name for name in os.environ if name.startswith("CUDAMASTER_") and name != "CUDAMASTER_CACHE"]:
    del os.environ[_name]  # a developer's own models and servers are no part of a test
# Nor are their configuration files and tasks.
os.environ |= {"CUDAMASTER_PROJECT": "", "CUDAMASTER_CONFIG": str(Path(__file__).parent.parent / ".cache" / "no-files")}
os.environ["CUDAMASTER_DATA"] = str(Path(__file__).parent / "no_data")
# No test pulls the plug, and to wait for the disk takes a tenth of the time.
os.fsync = lambda _file: None
# Whoever runs the tests in the background ignores signals, and every program that is started here inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `make test` asks for."""
    parser.addoption("--quick", action="store_true", help="leave out tests marked slow; at least one of a kind stays")


def pytest_configure(config: pytest.Config) -> None:
    """No deadlines for the examples of Hypothesis, and fewer of them where the short tests are asked for."""
    # How long an example takes says how busy the machine is.
    settings.register_profile("default", deadline=None)
    settings.register_profile("quick", max_examples=40, deadline=None)
    if config.getoption("--quick"):
        settings.load_profile("quick")


def is_slow(item: pytest.Item) -> bool:
    """Whether a test is marked slow, and none of the few of its function that stay: `slow(but=[ids])`."""
    mark = item.get_closest_marker("slow")
    if mark is None:
        return False
    call = getattr(item, "callspec", None)
    return call is None or call.id not in mark.kwargs.get("but", ())


def must_be_known(items: list[pytest.Item]) -> None:
    """Raise for an id to keep that no test has: with a parameter renamed, a kind of check would be lost unseen."""
    ids: dict[str, set[str]] = {}
    keeps: dict[str, set[str]] = {}
    for item in items:
        mark, call = item.get_closest_marker("slow"), getattr(item, "callspec", None)
        if mark is not None and mark.kwargs:
            name = item.nodeid.partition("[")[0]
            keeps[name] = set(mark.kwargs["but"])
            ids.setdefault(name, set()).add(call.id if call is not None else "")
    for name, kept in keeps.items():
        if missing := sorted(kept - ids[name]):
            raise pytest.UsageError(f"{name}: slow(but=...) keeps {missing[0]!r}, which is no id of its parameters")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow where that is asked for, and skip what this machine cannot run, saying why."""
    from cudamaster.devices.choose import why_not_cuda
    from cudamaster.devices.cuda import find_nvcc

    if not any("::" in word for word in config.args):
        must_be_known(items)
    if config.getoption("--quick"):
        slow = [item for item in items if is_slow(item)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not is_slow(item)]
    reasons = {"gpu": why_not_cuda(), "nvcc": None if find_nvcc() else "nvcc is not installed"}
    for item in items:
        for mark, reason in reasons.items():
            if reason is not None and item.get_closest_marker(mark):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage among what tests make alone: what they are collected into stays until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()

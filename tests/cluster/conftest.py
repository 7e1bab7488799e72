"""A local cluster of several Ray nodes for all tests of this folder, on the CPU device."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cudamaster.cluster.fleet import Fleet, Station, connect

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


@dataclass
class Nodes:
    """The cluster and its nodes: the head in order, one to be killed, and one with its cache on a disk that is full.

    `temporary` is where their processes make temporary files. It tells them from those of other clusters, which tests
    that run beside these may have.
    """

    cluster: Any
    head: Any
    doomed: Any
    full: Any
    full_cache: Path
    temporary: Path

    @property
    def address(self) -> str:
        """HOST:PORT of the head."""
        return str(self.cluster.address)


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Three nodes on this machine, each with more CPUs than it has: several commands have an actor on each at once."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    small, temporary = tmp_path_factory.mktemp("small"), tmp_path_factory.mktemp("temporary")
    own = {"TMPDIR": str(temporary)}
    # A disk of its own where this user may have one; elsewhere its cache stops being a folder (`fleet`).
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(small)], capture_output=True, check=False)
    cluster = Cluster()
    try:
        head = node(cluster, include_dashboard=False, env_vars=own)
        doomed = node(cluster, env_vars=own)
        full = node(cluster, env_vars={**own, "CUDAMASTER_CACHE": str(small / "cache")})
        yield Nodes(cluster, head, doomed, full, small / "cache", temporary)
    finally:
        cluster.shutdown()
        subprocess.run(["umount", "-l", str(small)], capture_output=True, check=False)


def node(cluster: Any, **more: Any) -> Any:
    """One more node. On a machine that is busy with other tests it can miss a limit of Ray's own, of 30 seconds."""
    for left in reversed(range(4)):
        try:
            return cluster.add_node(num_cpus=8, object_store_memory=100 * 2**20, include_log_monitor=False, **more)
        except Exception:
            if not left:
                raise
    raise AssertionError


@pytest.fixture(scope="session")
def fleet(nodes: Nodes) -> Iterator[Fleet]:
    with connect(nodes.address, "cpu") as found:
        assert found.notes == ()
        assert len(found.stations) == 3
        if not os.path.ismount(nodes.full_cache.parent):
            nodes.full_cache.rename(nodes.full_cache.with_name("was-here"))
            nodes.full_cache.write_text("no folder\n")
        yield found


def on(fleet: Fleet, node: Any) -> Station:
    """The station on a node."""
    return next(one for one in fleet.stations if one.node.endswith(node.node_id[:6]))

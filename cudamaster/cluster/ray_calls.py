"""Calls of Ray: the one module that imports it. Actors, their messages, and what became of an actor that is gone."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cudamaster.core.errors import DeviceError, UsageError, one_line

if TYPE_CHECKING:
    from cudamaster.cluster.messages import Message

AUTO = "auto"
_ANSWERS_S = 10.0  # a head node that takes no connection in this time is not there
_AGAIN_S = 1.0
_AT_ONCE = 64  # calls of one actor; devices keep measurements apart by themselves


class Lost(Exception):
    """An actor is gone with its process or node, and what it did is lost.

    `returns` says that only the connection broke: the actor is there again.
    """

    def __init__(self, why: str, *, returns: bool = False) -> None:
        super().__init__(why)
        self.returns = returns


@dataclass(frozen=True)
class Node:
    """A node of the cluster that is alive, and what it has for actors. `name` is different for each."""

    id: str
    name: str
    cpus: int
    gpus: int


def connect(address: str) -> None:
    """Join a cluster as a program of its own. Raises UsageError and DeviceError."""
    if address != AUTO and (address.startswith("ray://") or not _is_place(address)):
        raise UsageError(
            f"{address!r} is no address of a cluster's head node.",
            "Write --ray HOST:6379 on a machine that is part of the cluster, or --ray last for the cluster that this "
            "machine is part of.",
        )
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ |= {"RAY_ENABLE_AUTO_CONNECT": "0"}  # a late call would start a cluster of its own
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # silences a warning about a change to come
    try:
        import ray
    except ImportError as error:
        what = "--ray needs Ray, which is not installed."
        raise UsageError(what, "Run `pip install 'cudamaster[ray]'` here and on all nodes.") from error
    start = (
        "Start one: `ray start --head` on one machine, `ray start --address=HOST:6379` on the others and, with "
        "--num-cpus=0, here; or name another one. docs/cluster.md says more."
    )
    named = os.environ.get("RAY_ADDRESS", "") if address == AUTO else address
    if _is_place(named) and (why := _no_answer(named)) is not None:
        raise DeviceError(f"No Ray cluster answers at {named}: {why}.", start)
    with suppress(Exception):  # it prints what its nodes log between our lines, and into our JSON
        import ray._private.worker as of_ray

        of_ray._worker_logs_enabled = False
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        ray.init(
            address=address,
            namespace=f"cudamaster-{secrets.token_hex(4)}",
            log_to_driver=False,
            logging_level=logging.CRITICAL,
        )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = f"at {named}" if named else "that this machine is part of"
        said = one_line(error, 300).split(". ")[0].rstrip(".")
        raise DeviceError(f"There is no Ray cluster {where}: {said}.", start) from error
    finally:
        for number, handler in handlers.items():  # Ray has a handler of its own, and the command's is wanted
            if handler is not None:
                signal.signal(number, handler)


def _is_place(address: str) -> bool:
    host, colon, port = address.rpartition(":")
    return bool(host and colon and port.isdecimal() and "/" not in host)


def _no_answer(address: str) -> str | None:
    """Why nobody answers at HOST:PORT. Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _ANSWERS_S).close()
    except (OSError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None


def disconnect() -> None:
    """Leave the cluster, which ends all of our actors."""
    import ray

    with suppress(Exception):
        ray.shutdown()


def place() -> str:
    """HOST:PORT of the head of the cluster that was joined."""
    import ray

    return str(ray.get_runtime_context().gcs_address)


def nodes() -> list[Node]:
    """The nodes that are alive."""
    import ray

    every: Any = ray.nodes
    found = [node for node in every() if node["Alive"]]
    hosts = [node["NodeManagerHostname"] for node in found]
    return [
        Node(
            node["NodeID"],
            host if hosts.count(host) == 1 else f"{host}/{node['NodeID'][:6]}",
            int(node["Resources"].get("CPU", 0)),
            int(node["Resources"].get("GPU", 0)),
        )
        for node, host in zip(found, hosts, strict=True)
    ]


def start(kind: type, arguments: Sequence[object], node: Node, *, gpus: int = 0, cpus: int = 0) -> Any:
    """An actor of a class on a node, which has so many GPUs to itself. It ends with this program."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    made: Any = ray.remote(kind)
    actor = made.options(
        num_gpus=gpus,
        num_cpus=cpus,
        max_concurrency=_AT_ONCE,
        max_restarts=0,
        max_task_retries=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
    )
    return actor.remote(*arguments)


def waiting(node: Node, function: Any) -> Any:
    """A reference to the result of a function on a node, which need not have this package."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node.id, soft=False)
    return ray.remote(function).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote()


def asked(actor: Any, method: str, *arguments: object) -> Any:
    """A reference to what a method of an actor gives."""
    return getattr(actor, method).remote(*arguments)


def answer(reference: Any, limit_s: float | None = None) -> Any:
    """What a reference stands for. Raises Lost, and TimeoutError after `limit_s` seconds."""
    import ray

    try:
        return ray.get(reference, timeout=limit_s)
    except ray.exceptions.GetTimeoutError as error:
        raise TimeoutError from error
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:
        raise Lost(_short(error)) from error


def messages(actor: Any, method: str, *arguments: object) -> Iterator[Message]:
    """The messages that a method of an actor yields, each as soon as it is there. Raises Lost."""
    import ray

    try:
        for reference in getattr(actor, method).options(num_returns="streaming").remote(*arguments):
            yield ray.get(reference)
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.ActorUnavailableError as error:
        returns = _returns(actor)
        raise Lost("the connection broke" if returns else _short(error), returns=returns) from error
    except ray.exceptions.RayError as error:
        raise Lost(_short(error)) from error


def _returns(actor: Any) -> bool:
    """Whether an actor that could not be reached is there again; false once it is known to be gone."""
    import ray

    while True:
        try:
            ray.get(actor.ping.remote())
        except ray.exceptions.ActorUnavailableError:
            time.sleep(_AGAIN_S)
        except ray.exceptions.RayError:
            return False
        else:
            return True


def end(actors: Sequence[Any], grace_s: float) -> None:
    """End actors with all programs that they run, in at most `grace_s` seconds for those that answer."""
    import ray

    with suppress(Exception):
        ray.wait([actor.end.remote() for actor in actors], num_returns=len(actors), timeout=grace_s)
    for actor in actors:
        with suppress(Exception):
            ray.kill(actor)


def _short(error: Exception) -> str:
    """What it comes to; of other errors what Ray says in its first sentence."""
    import ray

    if isinstance(error, ray.exceptions.ActorUnavailableError):
        return "it cannot be reached"
    if isinstance(error, ray.exceptions.RayActorError):
        return "its process or its node ended"
    said = one_line(error, 200)
    return said.split(". ")[0].rstrip(".") or type(error).__name__

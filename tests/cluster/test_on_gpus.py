"""On real GPUs: a node for each of this machine's, and one without a GPU that compiles for them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from small_cards import small_card

from cudamaster.cluster.fleet import connect
from cudamaster.cluster.workbench import ClusterWorkbench
from cudamaster.core.values import Hold, Precision
from cudamaster.devices.cuda import find_gpus

KERNEL = Path(__file__).parents[2] / "cudamaster/playbook/relu/fp32/1_wide_loads.cu"


@pytest.mark.gpu
def test_each_gpu_measures_what_a_node_without_one_compiled() -> None:
    pytest.importorskip("ray")
    from gpus import cluster

    uuids = [gpu.uuid for gpu in find_gpus()]
    with cluster(uuids, "each", compiling=True) as address, connect(address, "auto") as fleet:
        assert fleet.notes == ()
        assert fleet.device == "cuda"
        assert sorted(fleet.units) == sorted(uuids)
        benches = [ClusterWorkbench(fleet, small_card("relu"), Precision.FP32, unit=unit) for unit in uuids]
        held: dict[str, list[Hold]] = {unit: [] for unit in uuids}
        lines: list[str] = []
        for bench, unit in zip(benches, uuids, strict=True):
            bench.on_hold, bench.on_move = held[unit].append, lines.append
        candidate = replace(benches[0].baseline, code=KERNEL.read_text())
        with ThreadPoolExecutor() as pool:
            verdicts = list(pool.map(lambda bench: bench.evaluate(candidate, to_beat=0.1), benches))
            findings = list(
                pool.map(lambda pair: pair[0].findings(candidate, pair[1]), zip(benches, verdicts, strict=True))
            )
    assert lines == []
    for verdict, found, unit in zip(verdicts, findings, uuids, strict=True):
        assert verdict.correct, verdict.log
        assert verdict.score is not None
        assert verdict.hardware["unit"] == unit
        assert "ptxas" in verdict.build["compile log"]
        assert not list(Path(verdict.build["folder"]).glob("candidate.local.o"))  # it was not linked here
        assert found.candidate == candidate.id
        assert held[unit]
        assert {hold.unit for hold in held[unit]} == {unit}

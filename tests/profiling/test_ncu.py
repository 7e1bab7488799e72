"""Reading what Nsight Compute writes, on text recorded on an H200 (version 2025.3.1; columns left out).

That machine lets everyone read its counters. For no_permission.txt a library in front of the driver answered the making
of a profiler's object as the driver does where only administrators may (NV_ERR_INSUFFICIENT_PERMISSIONS). The words are
Nsight Compute's.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cudamaster.core.values import Profile
from cudamaster.devices import ncu
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.ncu import NoProfile
from cudamaster.devices.protocol import Ran
from cudamaster.guards.names import forbidden
from cudamaster.guards.symbols import CUDA_ALLOWED_SYMBOLS
from cudamaster.profiling.thresholds import load

DATA = Path(__file__).parent / "data"
METRICS = load().filtered
COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"


def recorded(name: str) -> str:
    return (DATA / f"{name}.txt").read_text()


def parsed(text: str, calls: int = 1) -> Profile:
    profile = ncu.parse(text, candidate="c0ffee", case="N=65536", metrics=METRICS, calls=calls)
    assert isinstance(profile, Profile)
    return profile


def reason(text: str) -> str:
    result = ncu.parse(text, candidate="c0ffee", case="N=65536", metrics=METRICS)
    assert isinstance(result, NoProfile)
    return result.reason


def test_one_kernel() -> None:
    """Values carry the name of the candidate and case, durations are in microseconds, names lose their parameters."""
    profile = parsed(recorded("one_kernel"))
    [kernel] = profile.kernels
    assert (profile.candidate, profile.case, profile.source) == ("c0ffee", "N=65536", "Nsight Compute")
    assert (kernel.kernel, kernel.launches, kernel.duration_us) == ("spmv_csr_kernel_optimized", 1, 8.0)
    assert set(kernel.metrics) == set(METRICS) - {ncu.DURATION}


def test_several_kernels_are_ordered_by_time() -> None:
    """The dominating kernel comes first; its two launches are added, its metrics weighted by their time."""
    first, second = parsed(recorded("several_kernels")).kernels
    assert (first.kernel, first.launches) == ("merge_runs_kernel_optimized", 2)
    assert first.duration_us == pytest.approx(15.008 + 17.760)
    assert first.metrics[COMPUTE] == pytest.approx((28.24 * 15.008 + 29.37 * 17.760) / (15.008 + 17.760))
    assert (second.kernel, second.launches) == ("sort_tiles_kernel_optimized", 1)
    assert second.duration_us == pytest.approx(6.528)


def test_a_launch_is_described_by_the_longest() -> None:
    """Registers and the like are those of one launch that was made; a mean of two never was."""
    text = recorded("several_kernels")
    short = next(line for line in text.splitlines() if '"15,008"' in line)
    assert '"52"' in short
    changed = text.replace(short, short.replace('"52"', '"200"'))
    registers = "launch__registers_per_thread"
    result = ncu.parse(changed, candidate="c", case="k", metrics=[registers])
    assert isinstance(result, Profile)
    assert result.kernels[0].metrics[registers] == 52


def test_many_launches() -> None:
    """Sixteen passes of one kernel, from 2.6 µs to milliseconds: separators of thousands are read, not cut at."""
    [kernel] = parsed(recorded("many_launches")).kernels
    assert kernel.launches == 16
    assert kernel.duration_us > 8000
    assert kernel.metrics[COMPUTE] < 0.5  # the long last passes run on a thread or two; the short ones show 4.7


def test_counts_are_per_call() -> None:
    """Three profiled calls: launches and time are those of one; a count is added up, a rate is averaged."""
    [kernel] = parsed(recorded("three_calls"), calls=3).kernels
    assert kernel.launches == 1
    assert kernel.duration_us == pytest.approx((4.224 + 4.320 + 4.160) / 3)
    text = recorded("three_calls").replace("profiler__replayer_passes", "lts__t_sectors.sum")
    result = ncu.parse(text, candidate="c", case="k", metrics=["lts__t_sectors.sum"], calls=3)
    assert isinstance(result, Profile)
    assert result.kernels[0].metrics["lts__t_sectors.sum"] == 10


def test_absent_metric_is_absent() -> None:
    """Nsight Compute leaves an unknown metric out without a word; so do we."""
    wanted = [*METRICS, "sm__no_such_metric.avg", "l1tex__bogus.sum"]
    profile = ncu.parse(recorded("absent_metric"), candidate="c", case="k", metrics=wanted)
    assert isinstance(profile, Profile)
    assert set(profile.kernels[0].metrics) == set(METRICS) - {ncu.DURATION}


def test_all_that_is_there() -> None:
    """Without names every figure is taken, and no text or column that is no metric."""
    profile = ncu.parse(recorded("all_sections"), candidate="c", case="k", metrics=None)
    assert isinstance(profile, Profile)
    names = set(profile.kernels[0].metrics)
    assert len(names) > 25
    assert {"launch__registers_per_thread", COMPUTE} < names
    assert not names & {"launch__kernel_name", "Device", "CC", "ID", ncu.DURATION}
    command = ncu.command(Path("/opt/ncu"), None, ["./worker"], Path("l"))
    assert command[command.index("--set") + 1] == "full"
    assert "--metrics" not in command


@pytest.mark.parametrize("printed", ["n/a", "", "nan", "inf", "no data"])
def test_what_is_no_figure_is_absent(printed: str) -> None:
    """A metric that could not be collected is never a zero, and does not spoil the others."""
    text = recorded("one_kernel")
    hit_rate = text.splitlines()[-1].split('","')[
        text.splitlines()[-3].split('","').index("lts__t_sector_hit_rate.pct")
    ]
    [kernel] = parsed(text.replace(f'"{hit_rate}"', f'"{printed}"')).kernels
    assert "lts__t_sector_hit_rate.pct" not in kernel.metrics
    assert COMPUTE in kernel.metrics


def test_names_of_all_sections() -> None:
    """The metric names of the paper's table 6 are those of a run with its six sections, but for two (see the YAML)."""
    header = next(line for line in recorded("all_sections").splitlines() if line.startswith('"ID"'))
    lacking = {name for name in load().full if f'"{name}"' not in header}
    assert lacking == {
        "sm__inst_issued.avg.pct_of_peak_sustained_active",
        "sm__instruction_throughput.avg.pct_of_peak_sustained_active",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (recorded("no_permission"), "NVreg_RestrictProfilingToAdminUsers=0"),
        (recorded("no_kernels"), "the call launched no kernel"),
        (recorded("application_error"), "returned an error code (70)"),
        (recorded("no_program"), "does not exist"),
        ("", "no table"),
        ("==PROF== Disconnected from process 4913\n", "no table"),
        ("\n".join(recorded("one_kernel").splitlines()[:-1]), "no table"),
        (recorded("one_kernel").replace(ncu.DURATION, "gpu__time.sum"), "no duration"),
        (recorded("one_kernel").replace('"8,000"', '"n/a"'), "no duration"),
    ],
)
def test_why_there_is_no_profile(text: str, expected: str) -> None:
    """Each failure gives a reason that can be shown; forbidden counters concern every candidate."""
    assert expected in reason(text)
    missing = ncu.parse(text, candidate="c0ffee", case="N=65536", metrics=METRICS)
    assert isinstance(missing, NoProfile)
    assert missing.of_machine == (text == recorded("no_permission"))


@pytest.mark.parametrize("name", ["one_kernel", "several_kernels", "three_calls"])
def test_a_row_that_is_cut_off_is_no_profile(name: str) -> None:
    """As a killed ncu or a full disk leaves it: neither half a figure nor a launch without its last metrics."""
    text = recorded(name).rstrip("\n")
    start = text.rindex("\n") + 1
    for end in range(start + 1, len(text)):
        assert reason(text[:end]) == "what Nsight Compute wrote is cut off or damaged"


@pytest.mark.parametrize(
    "printed",
    [
        "sort_kernel_optimized",
        "sort_kernel_optimized(float *, int)",
        "void sort_kernel_optimized<4, float>(T2 *, int)",
        "void <unnamed>::sort_kernel_optimized<(int)4>(float *)",
        "ours::sort_kernel_optimized(const std::pair<int, int> *)",
        "void ours::<unnamed>::sort_kernel_optimized<void (*)(int), (Mode)1>(T1 *)",
    ],
)
@pytest.mark.parametrize("name", ["sort_kernel_optimized", "k", "mask_kernel", "sort_kernel", "empty_kernel"])
def test_kernel_names(printed: str, name: str) -> None:
    """Whatever form a name is printed in, launches of one kernel are put together under its plain name.

    That is so whatever the name, be it one that a kernel of the harness has too: what runs between the brackets is the
    candidate's, and nobody hides a launch by calling it as ours are called.
    """
    text = recorded("one_kernel")
    quoted = next(line for line in text.splitlines() if line.startswith('"0"')).split('","')[4]
    [kernel] = parsed(text.replace(quoted, printed.replace("sort_kernel_optimized", name))).kernels
    assert (kernel.kernel, kernel.duration_us) == (name, 8.0)


def test_command_profiles_only_what_is_bracketed() -> None:
    """Collection is off at first, no kernel is chosen by name, clocks are not set, the worker comes last."""
    made = ncu.command(Path("/opt/ncu"), ["a__b.sum", "c__d.pct"], ["./worker", "--exact"], Path("l"))
    assert made[0] == "/opt/ncu"
    for option, value in (
        ("--profile-from-start", "off"),
        ("--clock-control", "none"),
        ("--print-units", "base"),
        ("--metrics", "a__b.sum,c__d.pct"),
        ("--log-file", "l"),
    ):
        assert made[made.index(option) + 1] == value
    assert made[made.index("./worker") :] == ["./worker", "--exact"]
    assert not any(word.startswith("--kernel-name") for word in made)
    for bracket in ("cudaProfilerStart", "cudaProfilerStop"):  # which are nobody's but the worker's
        assert forbidden(bracket, "", "(") is not None
        assert not any(re.fullmatch(pattern, bracket) for pattern in CUDA_ALLOWED_SYMBOLS)


JUDGE = JudgeRequest(judge=("judge",))


class TestProfile:
    """The whole way, with a device that writes what Nsight Compute wrote."""

    def _profile(
        self, log: str | None, monkeypatch: pytest.MonkeyPatch, *, expired: bool = False
    ) -> Profile | NoProfile:
        def run(request: JudgeRequest, report: Path, limit_s: float) -> Ran:
            if log is not None:
                words = request.candidate
                assert request.judge == ("judge",)
                assert words[-3:] == ("worker", "--exact", "--unconfined")
                Path(words[words.index("--log-file") + 1]).write_text(log)
            return Ran(exit_code=0, signal=None, expired=expired, stderr="", seconds=1.0)

        monkeypatch.setattr(ncu, "find_ncu", lambda: Path("/opt/ncu"))
        return ncu.profile(run, JUDGE, Path("worker"), candidate="c0ffee", case="N=65536", metrics=METRICS)

    def test_profile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The log file is what is read."""
        result = self._profile(recorded("several_kernels"), monkeypatch)
        assert isinstance(result, Profile)
        assert len(result.kernels) == 2

    def test_no_log(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A run that leaves no log is a reason, not a crash."""
        assert isinstance(self._profile(None, monkeypatch), NoProfile)

    def test_stopped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A run that was stopped is no profile, even where a table was begun."""
        result = self._profile(recorded("one_kernel"), monkeypatch, expired=True)
        assert result == NoProfile("Nsight Compute was stopped after 120 s")

    def test_not_installed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Without ncu nothing is run, and the reason says where it comes from."""
        monkeypatch.setattr(ncu, "find_ncu", lambda: None)
        nothing = lambda *_: pytest.fail("ran")  # noqa: E731
        result = ncu.profile(nothing, JUDGE, tmp_path, candidate="c", case="k", metrics=METRICS)
        assert isinstance(result, NoProfile)
        assert "CUDA toolkit" in result.reason
        assert result.of_machine


def test_find_ncu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The one that the user names goes before the PATH; one that cannot be executed does not count."""
    program = tmp_path / "ncu"
    program.write_text("#!/bin/sh\n")
    monkeypatch.setenv("CUDAMASTER_NCU", str(program))
    assert ncu.find_ncu() != program
    program.chmod(0o755)
    assert ncu.find_ncu() == program

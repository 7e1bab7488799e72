"""What still holds if a guard has failed: candidates that no guard has seen, each in its own worker.

Each attack is compiled into a wrapper that also does the task rightly, with whatever headers and functions it wants,
and linked to a worker without the guards and without making its symbols local. It runs on the device that is there.
"""

import contextlib
import http.server
import json
import os
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from attacks import Seen, attack
from small_cards import small_card

from cudamaster.build.building import Builder
from cudamaster.core.values import Precision, Status
from cudamaster.devices.choose import choose
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.protocol import Device, Ran
from cudamaster.judging.judge_process import Trial, Trials
from cudamaster.judging.report_lines import End, Line, Time, of
from cudamaster.judging.verdicts import judge, parse

CARD = small_card("dot_product")


@pytest.fixture(scope="module")
def device() -> Device:
    """A GPU if there is one."""
    return choose()


@pytest.fixture(scope="module")
def builder(device: Device) -> Builder:
    return Builder(CARD, Precision.FP32, device)


@pytest.mark.slow
def test_an_attack_that_does_nothing_is_a_candidate_like_others(builder: Builder, tmp_path: Path) -> None:
    """Without an attack the candidate is right: what the tests below see is the attack's doing."""
    seen = attack(builder, tmp_path, 'std::fprintf(stderr, "call by %d\\n", getpid());', calls=10)
    assert seen.judgement.status is Status.CORRECT, seen.judgement.detail
    for case in seen.judgement.cases:
        assert case.timing is None or len(case.timing.candidate_us) >= 10
    calls = Counter(re.findall(r"call by \d+", seen.ran.stderr))
    assert len(calls) == 2  # pairs of processes take turns, in series
    assert min(calls.values()) >= 2 * sum(case.timing is not None for case in seen.judgement.cases)
    assert "no network, no other processes" in seen.judgement.hardware["isolation"]


# Each gives a negative number and errno when it is refused.
FORBIDDEN = {
    "socket": "return socket(AF_INET, SOCK_STREAM, 0);",
    "unix socket": "return socket(AF_UNIX, SOCK_STREAM, 0);",
    "fork": "long child = fork(); if (child == 0) _exit(0); return child;",
    "exec": 'char* words[] = {(char*)"/bin/true", nullptr}; return execv("/bin/true", words);',
    "system": 'return std::system("true") == 0 ? 0 : -1;',
    "signal to the judge": "return kill(getppid(), SIGKILL);",
    "signal to its thread": "return syscall(SYS_tgkill, getppid(), getppid(), SIGKILL);",
    "signal by another call": "return syscall(SYS_pidfd_open, getppid(), 0);",
    "signal by a limit on the judge's time": "return prlimit(getppid(), RLIMIT_CPU, nullptr, &had);",
    "signal to the owner of a file": "return owned([](int to) { return fcntl(to, F_SETOWN, getppid()); });",
    "signal to another owner of a file": """return owned([](int to) {
                         f_owner_ex judge{F_OWNER_PID, getppid()}; return fcntl(to, F_SETOWN_EX, &judge); });""",
    "signal to the owner of a socket": """return owned([](int to) {
                         int judge = getppid(); return ioctl(to, FIOSETOWN, &judge); });""",
    "let go of the GPU": 'return flock(open("/proc/self/maps", O_RDONLY), LOCK_UN);',
    "leave memory behind": "return shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);",
    "another scheduling": "sched_param none{0}; return sched_setparam(0, &none);",
    "ptrace": "return ptrace(PTRACE_ATTACH, getppid(), nullptr, nullptr);",
    "judge's memory": """char here[8]; iovec mine{here, 8}, theirs{(void*)0x400000, 8};
                         return process_vm_readv(getppid(), &mine, 1, &theirs, 1, 0);""",
    "judge's memory as a file": 'return open(("/proc/" + std::to_string(getppid()) + "/mem").c_str(), O_RDONLY);',
    "judge's command line": 'return open(("/proc/" + std::to_string(getppid()) + "/cmdline").c_str(), O_RDONLY);',
    "new session": "return setsid();",
    "write to /tmp": 'return open("/tmp/attacked", O_WRONLY | O_CREAT, 0600);',
    "read a key": 'return open("KEY", O_RDONLY);',
    "remove a key": 'return unlink("KEY");',
    "empty a key": 'return truncate("KEY", 0);',
    "open a key to all": 'return chmod("KEY", 0666);',
    "give a key away": 'return chown("KEY", 1, 1);',
    "change a key's time": 'return utimensat(AT_FDCWD, "KEY", nullptr, 0);',
    "label a key": 'return setxattr("KEY", "user.label", "x", 1, 0);',
    # Emptying needs no right to write where only opening is looked at; of a device it would do nothing.
    "empty by opening": 'return open("/dev/urandom", O_RDONLY | O_TRUNC);',
    "read the users": 'return open("/etc/passwd", O_RDONLY);',
}


@pytest.fixture(scope="module")
def forbidden(builder: Builder, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A candidate that tries all of it, one after the other."""
    folder = tmp_path_factory.mktemp("forbidden")
    (folder / "key").write_text("a secret")
    body = "".join(f"say({json.dumps(name)}, [&]() -> long {{ {part} }}());\n" for name, part in FORBIDDEN.items())
    return attack(builder, folder, body.replace('"KEY"', json.dumps(str(folder / "key"))))


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_a_worker_may_not_do(forbidden: Seen, name: str) -> None:
    """The system says no, and the candidate's result is judged as ever."""
    said = [line for line in forbidden.ran.stderr.splitlines() if line.startswith(f"{name}: ")]
    assert said, forbidden.ran.stderr
    assert not [line for line in said if line.endswith("DONE")]
    assert forbidden.judgement.status is Status.CORRECT, forbidden.judgement.detail


@pytest.mark.slow
def test_a_worker_reaches_no_server(builder: Builder, tmp_path: Path) -> None:
    """A server on this machine hears nothing of a candidate that would post its inputs."""
    heard = []

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.path)

    with serving(Listener) as port:
        body = (
            "int there = socket(AF_INET, SOCK_STREAM, 0); sockaddr_in to{}; to.sin_family = AF_INET;"
            f"to.sin_port = htons({port}); to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);"
            'if (connect(there, (sockaddr*)&to, sizeof to) == 0) (void)!write(there, "GET / HTTP/1.0\\r\\n\\r\\n", 18);'
        )
        attack(builder, tmp_path, body)
    assert heard == []


@contextlib.contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[int]:
    server = http.server.HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()


@pytest.mark.slow
def test_the_environment_holds_no_secret(builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of models do not reach a candidate."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    body = 'for (char** text = environ; *text != nullptr; ++text) std::fprintf(stderr, "%s\\n", *text);'
    seen = attack(builder, tmp_path, body)
    assert "PATH=" in seen.ran.stderr
    assert "sk-secret" not in seen.ran.stderr


def test_the_seed_is_on_no_command_line(builder: Builder, tmp_path: Path) -> None:
    """Once it has begun, the judge's own command line does not tell it either."""
    report, worker = tmp_path / "report.jsonl", str(builder.baseline_worker())
    request = JudgeRequest((str(builder.judge()),), (worker,), (worker,), seed=271828182845)
    with subprocess.Popen([*request.command, "--report", str(report)]) as judge_process:
        while not report.is_file() or not report.read_text():
            time.sleep(0.01)
        shown = Path(f"/proc/{judge_process.pid}/cmdline").read_bytes()
        judge_process.kill()
    assert b"--seed" in shown
    assert b"271828182845" not in shown
    assert json.loads(report.read_text().splitlines()[0])["seed"] == "271828182845"


def test_a_report_that_a_candidate_prints_is_none(builder: Builder, tmp_path: Path) -> None:
    """Its output is apart from the harness's channel: none of its descriptors leads to the report."""
    forged = json.dumps(json.dumps({"event": "end", "ok": True, "t": 1.0}))
    body = f"const char* line = {forged}; for (int to = 0; to < 64; ++to) (void)!write(to, line, strlen(line));"
    seen = attack(builder, tmp_path, f"{body} _exit(0);")
    assert seen.judgement.status is Status.FAULT
    assert not of(End, seen.lines)


# Where the places of slots in the memory shared with the judge lie, as mskb/arena.h has it: a look at it that no kernel
# has, since a worker of the CPU device works on copies.
SHARED = """
struct Shared {
    unsigned char* base = nullptr;
    size_t x, stride;
    explicit Shared(size_t n) {
        auto up = [](size_t at) { return (at + 255) / 256 * 256; };
        x = up(4096 + 4 + 2 * 4096);
        stride = up(up(x + 4 * n + 2 * 4096) + 4 * n + 4096);
        FILE* maps = std::fopen("/proc/self/maps", "r");
        char line[512];
        while (base == nullptr && std::fgets(line, sizeof line, maps))
            if (std::strstr(line, "memfd:mskb")) base = (unsigned char*)std::strtoull(line, nullptr, 16);
        std::fclose(maps);
    }
    float* out(int place) const { return (float*)(base + place * stride + 4096); }
    float* inputs(int place) const { return (float*)(base + place * stride + x); }
    bool plain(int place) const {
        int values = 0;
        for (int i = 0; i < 64; ++i) {
            float value = std::fabs(inputs(place)[i]);
            values += value > 1e-4f && value <= 1.0f;
        }
        return values > 48;
    }
    int place_of(const float* X) const {
        for (int place = 0; place < 16; ++place)
            if (std::memcmp(inputs(place), X, 256) == 0) return place;
        return -1;
    }
};
"""
READER = """
if (N == 65536) {
    Shared shared(N);
    float own[64];
    cudaMemcpy(own, X, sizeof own, cudaMemcpyDeviceToHost);
    int open = 0;
    for (int place = 0; place < 16; ++place) open |= shared.plain(place) << place;
    std::fprintf(stderr, "%d in %d reads %d\\n", getpid(), shared.place_of(own), open);
}
"""


@pytest.mark.slow
def test_inputs_of_calls_to_come_cannot_be_read(builder: Builder, tmp_path: Path) -> None:
    """Calls are prepared together: a candidate that did all of them at the first would look fast."""
    if not builder.device.emulated:
        pytest.skip("on a GPU the memory is not in the process's own address space")
    seen = attack(builder, tmp_path, READER, calls=60, head=SHARED)
    assert seen.judgement.status is Status.CORRECT, seen.judgement.detail
    hidden, behind, places = 0, 0, set()
    calls: dict[str, tuple[int, int]] = {}
    for process, place, plain in re.findall(r"(\d+) in (\d+) reads (\d+)", seen.ran.stderr):
        assert 1 << int(place) & int(plain)  # its own inputs are there
        places.add(int(place))
        if process in calls:
            behind += 1
            hidden += not 1 << int(place) & calls[process][1]
        calls[process] = (int(place), int(plain))
    # The next call's inputs were hidden, but where the next one begins another series: its inputs were not there yet.
    assert behind > 60
    assert hidden > behind / 2
    assert len(places) > 8  # where a call's buffers lie says nothing of when it is made


LATE = """
static double result; static float of[64]; static bool waits; static int number;
if (N == 65536 && ++number > 3) {
    Shared shared(N);
    if (int place = waits ? shared.place_of(of) : -1; place >= 0) *shared.out(place) = (float)result;
    waits = number % 3 == 0;
    static float x[65536], y[65536];
    cudaMemcpy(x, X, sizeof x, cudaMemcpyDeviceToHost);
    cudaMemcpy(y, Y, sizeof y, cudaMemcpyDeviceToHost);
    std::memcpy(of, x, sizeof of);
    result = 0;
    for (int i = 0; i < N; ++i) result += (double)x[i] * y[i];
    if (waits) return;
}
"""


@pytest.mark.slow
def test_a_result_may_not_come_late(builder: Builder, tmp_path: Path) -> None:
    """Every third call delivers nothing, and the call after it delivers both: the seal of the first is broken."""
    if not builder.device.emulated:
        pytest.skip("on a GPU the memory is not in the process's own address space")
    found = set()
    for seed in range(1, 4):  # by which series and places are drawn
        seen = attack(builder, tmp_path, LATE, calls=60, head=SHARED, more=["--seed", str(seed)])
        assert seen.judgement.status in (Status.FAULT, Status.WRONG)
        assert "at a timed call" in seen.judgement.detail
        found |= set(re.findall("changed by calls after them|as it was before the call", seen.judgement.detail))
    assert "changed by calls after them" in found


@pytest.mark.slow
def test_a_call_may_not_rest(builder: Builder, tmp_path: Path) -> None:
    """One call in twelve does nothing: what each timed call left is held against the baseline's."""
    body = "static int number; if (N == 65536 && ++number > 3 && number % 12 == 0) return;"
    for seed in range(4):
        seen = attack(builder, tmp_path, body, calls=40, more=["--seed", str(seed)])
        assert seen.judgement.status is Status.WRONG
        assert "as it was before the call" in seen.judgement.detail
        assert "at a timed call" in seen.judgement.detail


def test_a_forged_reply_is_no_result(builder: Builder, tmp_path: Path) -> None:
    """A worker can't answer in advance, by which a call would seem to take no time."""
    body = (
        "struct { long number; double seconds; int error; char name[64]; char detail[320];"
        " long seal; long asked; } reply{7, 1e-9};"
        "for (int to = 3; to < 64; ++to) (void)!send(to, &reply, sizeof reply, MSG_DONTWAIT);"
    )
    seen = attack(builder, tmp_path, body, limit_s=1)
    assert seen.judgement.status is Status.FAULT
    assert "answered before it was asked" in seen.judgement.detail


@pytest.mark.slow(but=["std::abort();-fault-signal 6|abort"])
@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("_exit(0);", Status.FAULT, "ended by itself with exit code 0"),
        ("std::abort();", Status.FAULT, "signal 6|abort"),
        ("*(volatile int*)8 = 1;", Status.FAULT, "signal 11|llegal"),
        ("for (;;) pause();", Status.TIMEOUT, "longer than its limit"),
        ("for (volatile int forever = 1; forever;) {}", Status.TIMEOUT, "longer than its limit"),
    ],
)
def test_a_worker_that_ends_badly_costs_itself_alone(
    builder: Builder, tmp_path: Path, body: str, status: Status, said: str
) -> None:
    """It is the candidate's verdict, reported by the judge, and the next candidate is judged as usual."""
    seen = attack(builder, tmp_path, body, limit_s=1)
    assert seen.judgement.status is status
    assert re.search(said, seen.judgement.detail), seen.judgement.detail
    assert attack(builder, tmp_path, "").judgement.status is Status.CORRECT


def test_a_crash_of_host_code_says_where(builder: Builder, tmp_path: Path) -> None:
    """No debugger may look into a worker."""
    if not builder.device.emulated:
        pytest.skip("on a GPU nobody handles the signal")
    seen = attack(builder, tmp_path, "*(volatile int*)8 = 1;")
    assert "host code crashed: signal 11 on address 0x8, a fault, at 0x" in seen.judgement.log


@pytest.mark.slow
def test_nothing_outlives_a_judge_that_is_killed(builder: Builder, tmp_path: Path) -> None:
    """Workers end with their judge, also one that hangs."""
    body = 'std::fprintf(stderr, "worker %d\\n", getpid()); for (;;) pause();'
    seen = attack(builder, tmp_path, body, limit_s=100, judge_limit_s=6)
    found = re.search(r"worker (\d+)", seen.ran.stderr)
    assert seen.ran.expired
    assert found is not None
    status = Path(f"/proc/{found[1]}/status")
    for _ in range(100):  # a process takes a while to leave a GPU
        if not status.exists() or "State:\tZ" in status.read_text():
            return
        time.sleep(0.1)
    pytest.fail(f"worker {found[1]} is still there")


def test_output_has_a_limit(builder: Builder, tmp_path: Path) -> None:
    """A candidate that prints without end is stopped, and little of it is kept."""
    body = "std::string line(1 << 20, 'x'); for (;;) std::fputs(line.c_str(), stderr);"
    seen = attack(builder, tmp_path, body, limit_s=60)
    assert seen.judgement.status is Status.FAULT
    assert "signal 25" in seen.judgement.detail
    assert len(seen.ran.stderr) < 1 << 20


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        ("no network, no other processes, system files read-only, no others", False),
        ("network and processes are open (no seccomp), files are open (no Landlock)", True),
        ("not confined: this system has neither seccomp nor Landlock", True),
    ],
)
def test_what_the_system_could_not_take_away_is_noted(text: str, noted: bool) -> None:
    begin = {"event": "begin", "seed": "1", "t": 0.0}
    ran = Ran(exit_code=0, signal=None, expired=False, stderr="", seconds=1.0)
    judged = judge(lines(begin, {"event": "isolation", "text": text, "t": 0.0}), ran, CARD.cases)
    assert judged.hardware["isolation"] == text
    assert bool(judged.notes) == noted


@pytest.mark.slow
def test_host_memory_has_a_limit(builder: Builder, tmp_path: Path) -> None:
    """A candidate that fills the host's memory is stopped, and says so."""
    if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 8 << 30:
        pytest.skip("less host memory than the limit and room beside it")
    body = "for (;;) { char* more = (char*)malloc(1 << 28); if (more) memset(more, 1, 1 << 28); }"
    seen = attack(builder, tmp_path, body, limit_s=60)
    assert seen.judgement.status is Status.FAULT
    assert "out of host memory" in seen.judgement.detail


TIMED = next(case for case in CARD.cases if case.sweep)
RAN = Ran(exit_code=0, signal=None, expired=False, stderr="", seconds=1.0)


def timed(*, contradicted: bool) -> list[dict[str, Any]]:
    """A report on one case, in which the judge's clock does or does not contradict what the candidate reports."""
    begin = {"event": "begin", "seed": "1", "t": 0.0}
    check = {"event": "check", "index": 0, "stage": "check", "ok": True, "damage": "", "outputs": [], "t": 0.0}
    times: dict[str, Any] = {"event": "time", "index": 0, "t": 0.0, "baseline_us": [50.0] * 5, "empty_us": [9.0] * 5}
    times |= {"candidate_us": [10.0] * 5, "contradicted": contradicted, "overstated": 5.0 if contradicted else 1.1}
    return [begin, check, times, {"event": "end", "ok": True, "t": 0.0}]


def lines(*told: dict[str, Any]) -> list[Line]:
    """Lines as they are read from a report."""
    return parse("".join(json.dumps(line) + "\n" for line in told))


class Reporting:
    """A device whose judge reports these, one after the other."""

    def __init__(self, *reports: list[dict[str, Any]]) -> None:
        self.reports = list(reports)

    def run(self, _request: JudgeRequest, report: Path, *_: Any, **__: Any) -> Ran:
        """Write the next report."""
        report.write_text("".join(json.dumps(line) + "\n" for line in self.reports.pop(0)))
        return RAN


@pytest.mark.parametrize(("again", "status"), [(False, Status.CORRECT), (True, Status.REJECTED)])
def test_a_disturbance_is_no_lie(builder: Builder, again: bool, status: Status) -> None:
    """Times that the judge's clock contradicts are measured once more; a liar lies again."""
    device = Reporting(timed(contradicted=True), timed(contradicted=again))
    trials = Trials(CARD, builder, cast(Device, device), CpuDevice.protocol, calls=5, seed=1)
    judged = trials.run(Trial(JudgeRequest(baseline=("b",), candidate=("c",), seed=1), [TIMED], 60))
    assert judged.status is status
    assert device.reports == []
    assert any("a second time, since the first time the process of the candidate says" in note for note in judged.notes)
    assert judged.seconds.total == 2 * RAN.seconds


def test_times_that_the_judge_does_not_bear_out_are_refused() -> None:
    """A worker whose clock lies: calls of 50 µs are said to take 10."""
    case, ran = TIMED, RAN
    begin, check, times, end = timed(contradicted=True)
    judged = judge(lines(begin, check, times, end), ran, [case])
    assert judged.status is Status.REJECTED
    assert "is 5 times as fast by its own clock as by the harness's" in judged.detail
    assert judge(lines(begin, check, times, end), ran, [case], doubted=()).status is Status.CORRECT
    honest = timed(contradicted=False)
    assert judge(lines(*honest), ran, [case]).status is Status.CORRECT
    slow_baseline = {**times, "contradicted": False, "rival_contradicted": True}
    assert judge(lines(begin, check, slow_baseline, end), ran, [case]).status is Status.CORRECT
    lying_rival = judge(lines(begin, check, slow_baseline, end), ran, [case], doubted=("candidate", "rival"))
    assert lying_rival.status is Status.REJECTED
    assert "the process of the kernel that it is compared with says" in lying_rival.detail
    assert replace(judged, status=Status.CORRECT).speed is not None


@pytest.mark.parametrize("said_us", [0.0, -3.0])
def test_no_call_takes_no_time(said_us: float) -> None:
    """The case would have no time, and P would be that of the others."""
    begin, check, times, end = timed(contradicted=False)
    times |= {"candidate_us": [50.0, 50.0, said_us, 50.0, 50.0]}
    judged = judge(lines(begin, check, times, end), RAN, [TIMED])
    assert judged.status is Status.REJECTED
    assert "says that a call took no time" in judged.detail


def test_calls_that_were_timed_anew_are_noted() -> None:
    begin, check, times, end = timed(contradicted=False)
    judged = judge(lines(begin, check, {**times, "retaken": 2}, end), RAN, [TIMED])
    assert judged.status is Status.CORRECT
    assert judged.notes == ("calls of 1 of 1 cases were timed anew: the harness's clock had contradicted them",)


SLOW_CLOCK = """
#include <chrono>
#include <ctime>
std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
    static long begin;
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    long now = time.tv_sec * 1000000000L + time.tv_nsec;
    if (begin == 0) begin = now;
    return time_point(std::chrono::nanoseconds(begin + (long)((now - begin) * RATE)));
}
"""


@pytest.mark.gpu
@pytest.mark.parametrize(("rate", "status"), [(1.0, Status.CORRECT), (0.5, Status.REJECTED)])
def test_a_slow_clock_is_contradicted(builder: Builder, tmp_path: Path, rate: float, status: Status) -> None:
    """A worker whose clock runs at half the speed says that its calls of some 10 µs took half of that."""
    seen = attack(builder, tmp_path, "", calls=30, head=SLOW_CLOCK.replace("RATE", str(rate)))
    assert seen.judgement.status is status, seen.judgement.detail
    if status is Status.REJECTED:
        assert "by its own clock as by the harness's" in seen.judgement.detail
        assert any(time.retaken for time in of(Time, seen.lines))


def test_no_call_takes_longer_than_the_judge_waited(builder: Builder, tmp_path: Path) -> None:
    """It would make up for calls that are said to be short, and make a rival look like a liar."""
    seen = attack(builder, tmp_path, "", head=SLOW_CLOCK.replace("RATE", "1e6"))
    assert seen.judgement.status is Status.FAULT
    assert "a time that cannot have passed" in seen.judgement.detail

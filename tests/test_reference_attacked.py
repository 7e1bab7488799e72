"""What a candidate that no guard has seen can do to a reference in Python: to its process, and to what it is asked.

The process that computes what outputs have to be runs as the same user, beside the candidate's worker.
"""

import json
import re
from pathlib import Path

import pytest
from attacks import Seen, attack

from cudamaster.build.building import Builder
from cudamaster.core.values import Precision, Status
from cudamaster.devices.choose import choose
from cudamaster.tasks import cards

# Cases of one size, so that a thread knows where the buffers of the next one will lie.
CARD = """
id: 1
name: twice
title: Twice
category: dense
summary: Doubles a vector.
formula: y[i] = 2 * x[i]
sizes: {N: null, step: 0}
parameters:
  - {name: x, type: T, role: input, length: N, meaning: vector}
  - {name: y, type: T, role: output, length: N, meaning: its double}
  - {name: N, type: int, meaning: elements}
  - {name: step, type: int, meaning: of no meaning}
inputs: ["uniform(x, -1, 1)"]
sweep: [{N: 200000}]
verify: [{N: [200000], step: [1, 2, 3]}]
held_out: [{N: [1, 500], step: [0, 9]}]
held_out_large: [{N: [150000, 200000], step: [0, 9]}]
weight: N
floor: {bytes_read: 4 * N, bytes_written: 4 * N, operations: N}
precisions: [fp32]
truth: python
"""
KERNEL = """
#include <cuda_runtime.h>
__global__ void twice_kernel(const float* x, float* y, int N) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += gridDim.x * blockDim.x) y[i] = 2 * x[i];
}
extern "C" void twice(const float* x, float* y, int N, int step) {
    twice_kernel<<<64, 32>>>(x, y, N);
}
"""
REFERENCE = """
import os
def say(word):
    with open(SAID, "a") as file:
        file.write(f"{word} ")
say(os.getpid())
def reference(x):
    say("zeros" if not x.any() else "numbers")
    return 2 * x
"""
# Each gives a negative number where it is refused; the last process is no other user's.
REACH = """
#include <dirent.h>
#include <sys/prctl.h>
template <class Try> static long reached(const Try& attempt) {
    for (int pid = getppid() - 20; pid < getppid() + 200; ++pid) {
        const bool own = access(("/proc/self/task/" + std::to_string(pid)).c_str(), F_OK) == 0;
        if (!own && pid != getppid() && attempt(pid) >= 0) return pid;
    }
    errno = EPERM;
    return -1;
}
static std::string of(int pid, const char* file) { return "/proc/" + std::to_string(pid) + "/" + file; }
static long leads(const char* what) {
    for (int own = 0; own < 1024; ++own) {
        char to[256] = {};
        if (readlink(("/proc/self/fd/" + std::to_string(own)).c_str(), to, 255) <= 0) continue;
        if (std::strstr(to, what)) return own;
    }
    errno = EPERM;
    return -1;
}
static long sockets() {
    int count = 0;
    for (int own = 0; own < 1024; ++own) {
        char byte;
        count += recv(own, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno == EAGAIN;
    }
    errno = EPERM;
    return count > 1 ? count : -1; // the one that leads to the judge
}
"""
FORBIDDEN = {
    "signal": "return reached([](int pid) { return kill(pid, 0); });",
    "signal to its thread": "return reached([](int pid) { return syscall(SYS_tgkill, pid, pid, 0); });",
    "handle": "return reached([](int pid) { return syscall(SYS_pidfd_open, pid, 0); });",
    "limit on its time": "return reached([](int pid) { return prlimit(pid, RLIMIT_CPU, nullptr, &had); });",
    "limit on its memory": "return reached([](int pid) { return prlimit(pid, RLIMIT_AS, nullptr, &had); });",
    "trace": "return reached([](int pid) { return ptrace(PTRACE_SEIZE, pid, nullptr, nullptr); });",
    "memory": """return reached([](int pid) { char here[8]; iovec mine{here, 8}, theirs{(void*)0x400000, 8};
                 return process_vm_readv(pid, &mine, 1, &theirs, 1, 0); });""",
    "memory as a file": 'return reached([](int pid) { return open(of(pid, "mem").c_str(), O_RDONLY); });',
    "maps": 'return reached([](int pid) { return open(of(pid, "maps").c_str(), O_RDONLY); });',
    "command line": 'return reached([](int pid) { return open(of(pid, "cmdline").c_str(), O_RDONLY); });',
    "socket": 'return reached([](int pid) { return open(of(pid, "fd/3").c_str(), O_RDWR); });',
    "file": 'return reached([](int pid) { return open(of(pid, "fd/4").c_str(), O_RDWR); });',
    "file by its path": 'return reached([](int pid) { return open(of(pid, "fd/4").c_str(), O_PATH); });',
    "size of its file": "return reached([](int pid) { struct stat seen;"
    ' return stat(of(pid, "fd/4").c_str(), &seen); });',
    "name of its file": "return reached([](int pid) { char to[64];"
    ' return readlink(of(pid, "fd/4").c_str(), to, 64); });',
    "time that it works": 'return reached([](int pid) { return open(of(pid, "stat").c_str(), O_RDONLY); });',
    "cores": "return reached([](int pid) { cpu_set_t one; CPU_ZERO(&one); CPU_SET(0, &one);"
    " return sched_setaffinity(pid, sizeof one, &one); });",
    "list of processes": 'return opendir("/proc") == nullptr ? -1 : 0;',
    "own descriptor of the file": 'return leads("mskb-reference");',
    "own descriptor of the socket": "return sockets();",
    "text of the reference": 'return open("REFERENCE", O_RDONLY);',
    # What is written to such a file is no memory of the process that the judge limits, and the reference would be
    # killed with everybody else.
    "memory that is nobody's": 'return memfd_create("more", 0);',
    "secret memory": "return syscall(447, 0);",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("twice")
    texts = {
        "tasks/twice.yaml": CARD,
        "fp32/twice.cu": KERNEL,
        "reference/twice.py": REFERENCE.replace("SAID", repr(str(folder / "said"))),
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def builder(folder: Path) -> Builder:
    return Builder(cards.load(str(folder / "tasks" / "twice.yaml")), Precision.FP32, choose())


@pytest.fixture(scope="module")
def reaching(builder: Builder, folder: Path) -> Seen:
    """A candidate that tries all of it, one after the other, in each of its calls."""
    parts = [f"say({json.dumps(name)}, [&]() -> long {{ {part} }}());\n" for name, part in FORBIDDEN.items()]
    body = "".join(parts).replace('"REFERENCE"', json.dumps(str(builder.card.reference_path)))
    body += 'std::fprintf(stderr, "beside %d\\n", getppid());'
    return attack(builder, folder, body, head=REACH)


@pytest.mark.parametrize("name", FORBIDDEN)
def test_the_process_of_the_reference_is_out_of_reach(reaching: Seen, folder: Path, name: str) -> None:
    """The system says no, and the candidate's result is judged as ever."""
    beside = re.search(r"beside (\d+)", reaching.ran.stderr)
    assert beside is not None
    pids = [int(word) for word in (folder / "said").read_text().split() if word.isdigit()]
    assert any(int(beside[1]) - 20 <= pid < int(beside[1]) + 200 for pid in pids)  # among those that were tried
    said = [line for line in reaching.ran.stderr.splitlines() if line.startswith(f"{name}: ")]
    assert said
    assert not [line for line in said if line.endswith("DONE")]
    assert reaching.judgement.status is Status.CORRECT, reaching.judgement.detail


# A thread that a candidate leaves running sees the memory shared with the judge on the CPU device. As soon as inputs of
# the next case are there, it makes zeros of them, and takes that back when the baseline has written its output: the
# right result for them is 0, which takes no kernel to write.
CHANGED = """
#include <thread>
static float* slot() {
    FILE* maps = std::fopen("/proc/self/maps", "r");
    char line[512];
    float* base = nullptr;
    while (base == nullptr && std::fgets(line, sizeof line, maps))
        if (std::strstr(line, "memfd:mskb")) base = (float*)std::strtoull(line, nullptr, 16);
    std::fclose(maps);
    return base;
}
static void change() {
    constexpr size_t N = 200000, guard = 1024;
    volatile float *x = slot() + guard, *y = x + (N + 2 * guard + 63) / 64 * 64;
    static float kept[N];
    for (bool zeros = false;;) {
        const bool poison = y[0] != y[0];
        if (!zeros && poison && x[N - 1] != 0) {
            std::memcpy(kept, (const float*)x, sizeof kept);
            std::memset((float*)x, 0, sizeof kept);
            zeros = true;
        } else if (zeros && !poison) {
            std::memcpy((float*)x, kept, sizeof kept);
            zeros = false;
        }
    }
}
"""
# The first call begins it; from then on the candidate writes zeros.
LAZY = """
static bool began = false;
if (!began) std::thread(change).detach();
else { cudaMemset(y, 0, N * sizeof(float)); return; }
began = true;
"""


def test_inputs_that_a_candidate_changes_are_not_what_the_reference_gets(
    builder: Builder, folder: Path, tmp_path: Path
) -> None:
    if not builder.device.emulated:
        pytest.skip("on a GPU the memory is not in the process's own address space")
    (folder / "said").unlink(missing_ok=True)
    seen = attack(builder, tmp_path, LAZY, head=CHANGED)
    said = (folder / "said").read_text().split()[1:]
    assert (len(said) > 6, "zeros" in said) == (True, False)
    assert seen.judgement.status is not Status.CORRECT

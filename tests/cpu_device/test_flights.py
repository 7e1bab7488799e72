"""Copies on their way, which the checker keeps by lines of memory: the same answers as a list of them gives."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from cudamaster.devices.cpu import toolchain

KNOWLEDGE = """
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>
namespace executor { namespace check {
struct Access { uint32_t segment; unsigned thread; bool writes; };
inline bool conflict(const Access& a, const Access& b) { return (a.writes || b.writes) && a.thread != b.thread; }
} }
"""
# Ten segments are a block's.
CHECK = """
#pragma once
#include "flights.h"
namespace executor { namespace check {
struct Clock { uint32_t block_of(uint32_t segment) const { return segment / 10; } };
struct State { Clock clock; };
inline State& state() { static State one; return one; }
} }
"""
# Copies of up to 40 chunks over some ten lines take off and land in any order, and accesses of 1 to 16 bytes are made.
PROGRAM = """
#include "check.h"
#include <algorithm>
#include <cstdio>
#include <random>
using namespace executor::check;
struct Copy { uintptr_t address; size_t bytes; uintptr_t first, end; Access access; };
int main() {
    long asked = 0, found = 0, wrong = 0;
    for (unsigned seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        auto any = [&](unsigned below) { return (unsigned)(random() % below); };
        unsigned shift = seed % 2 ? 2 : 4, chunk = 1u << shift;
        Flights flights(shift);
        std::vector<Copy> list;
        for (int step = 0; step < 300; ++step) {
            unsigned what = any(4);
            if (what == 0) {
                uintptr_t address = 0x10000 + any(80) * chunk;
                size_t bytes = any(40) * chunk + (any(8) ? 0 : any(chunk));
                Copy copy{address, bytes, address, address + bytes / chunk * chunk, {any(30), any(4), any(2) == 1}};
                if (!list.empty() && any(2)) { // the bytes of another one
                    Access own = copy.access;
                    copy = list[any((unsigned)list.size())];
                    copy.access = own;
                }
                flights.take_off((const char*)copy.address, copy.bytes, copy.access);
                list.push_back(copy);
            } else if (what == 1 && !list.empty()) {
                Copy copy = list[any((unsigned)list.size())];
                uint32_t block = copy.access.segment / 10;
                flights.land((const char*)copy.address, copy.bytes, block, copy.access.thread);
                list.erase(std::find_if(list.begin(), list.end(), [&](const Copy& one) {
                    return one.first == copy.first && one.end == copy.end &&
                           one.access.thread == copy.access.thread && one.access.segment / 10 == block;
                }));
            } else {
                uintptr_t address = 0x10000 + any(130 * chunk);
                size_t bytes = 1u << any(5);
                Access now{99, any(4), any(2) == 1};
                bool expected = false;
                for (const Copy& one : list)
                    for (uintptr_t at = address >> shift; at <= (address + bytes - 1) >> shift; ++at)
                        expected |= one.first <= at << shift && at << shift < one.end && conflict(one.access, now);
                ++asked;
                found += expected;
                wrong += (flights.in_the_way(address, bytes, now) != nullptr) != expected;
            }
            bool none = std::all_of(list.begin(), list.end(), [](const Copy& one) { return one.first == one.end; });
            wrong += flights.empty() != none;
        }
    }
    std::printf("%d %d %ld", asked > 10000, found > 1000 && asked - found > 1000, wrong);
}
"""


def test_copies_are_in_the_way_until_they_land(tmp_path: Path) -> None:
    """Whichever lines they cross, whoever else copies the same bytes, and in whatever order they land."""
    runtime = Path(toolchain.__file__).parent / "runtime" / "check"
    for name in ("flights.cpp", "flights.h"):
        shutil.copy(runtime / name, tmp_path)
    for name, text in (("knowledge.h", KNOWLEDGE), ("check.h", CHECK), ("main.cpp", PROGRAM)):
        (tmp_path / name).write_text(text)
    program = tmp_path / "main"
    command = [toolchain.compiler(), "-std=c++17", "-O1", "main.cpp", "flights.cpp", "-o", str(program)]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "1 1 0"

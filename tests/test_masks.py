"""The mask of inputs of calls to come (bench/include/mskb/mask.h): bits of ChaCha, which undo themselves."""

import subprocess
from pathlib import Path

from cudamaster.devices.cpu.device import CpuDevice

PROGRAM = """
#include <cstdio>
#include <vector>
#include "mskb/mask.h"

int main() {
    uint32_t bits[16];
    mskb::mask_bits(mskb::MaskKey{}, 0, 0, bits);
    for (uint32_t word : bits)
        for (int byte = 0; byte < 4; ++byte)
            std::printf("%02x", word >> (8 * byte) & 255);
    std::puts("");
    mskb::MaskKey key{{1, 2, 3, 4, 5, 6, 7, 8}};
    for (size_t bytes : {1, 63, 64, 65, 1000}) {
        std::vector<unsigned char> data(bytes, 'x');
        size_t same = 0;
        for (int time = 0; time < 2; ++time) {
            for (size_t i = 0; i < mskb::mask_blocks(bytes); ++i)
                mskb::mask_block(data.data(), bytes, key, 3, i);
            for (size_t k = 0; k < bytes; ++k)
                same += data[k] == 'x';
            if (time == 0)
                std::printf("%zu of %zu as they were, ", same, bytes), same = 0;
        }
        std::printf("then %zu\\n", same);
    }
}
"""


def test_masks_are_chacha_and_undo_themselves(tmp_path: Path) -> None:
    """The first block for the key 0 is that of the published test vector for ChaCha8."""
    device = CpuDevice()
    compiled = device.compile(PROGRAM, [], "masks", tmp_path)
    assert compiled.object is not None, compiled.log
    linked = device.link([compiled.object], tmp_path / "masks")
    assert linked.object is not None, linked.log
    first, *rest = subprocess.run([linked.object], capture_output=True, text=True, check=True).stdout.splitlines()
    assert first.startswith("3e00ef2f895f40d67f5bb8e81f09a5a12c840ec3ce9a7f3b181be188ef711a1e")
    for line in rest:
        same, _, bytes_, *_, again = line.replace(",", "").split()
        assert int(same) <= 1 + int(bytes_) // 50
        assert again == bytes_

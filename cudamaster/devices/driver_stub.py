"""A stand-in for the driver's library at link time.

Programs that make tensor maps call the driver directly, so the linker asks for libcuda.so. The driver brings
libcuda.so.1; the name without the number comes with some installations of the toolkit and in no package of NVIDIA's. A
library with the driver's name inside and the functions that candidates may call is all that a linker needs.
"""

from __future__ import annotations

from pathlib import Path

from cudamaster.devices.cpu import toolchain
from cudamaster.devices.process import require_room, run_limited

# The functions that guards/symbols.py lets through.
_FUNCTIONS = ("EncodeTiled", "EncodeIm2col", "EncodeIm2colWide", "ReplaceAddress")
_LIMIT_S = 60.0


def made(folder: Path) -> Path | None:
    """The folder with the stand-in libcuda.so, made in `folder`; None where the compiler fails. Raises DeviceError.

    Whoever runs the program gets the driver's own library: it has the same name inside, libcuda.so.1.
    """
    place = folder / "driver"
    place.mkdir(exist_ok=True)
    text = "".join(f'extern "C" int cuTensorMap{name}() {{ return 0; }}\n' for name in _FUNCTIONS)
    (place / "driver.cpp").write_text(text, encoding="utf-8")
    command = [toolchain.working_compiler(), "-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libcuda.so.1",
               "driver.cpp", "-o", "libcuda.so"]  # fmt: skip
    ran = run_limited(command, _LIMIT_S, folder=place)
    require_room(ran)
    return place if ran.exit_code == 0 else None

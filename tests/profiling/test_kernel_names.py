"""Names that nvcc 13.0 gave kernels, and which machine code a GPU runs."""

from __future__ import annotations

import pytest

from cudamaster.devices.kernel_names import architecture_for, plain_name


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z28dot_product_kernel_optimizedPfPKfS1_i", "dot_product_kernel_optimized"),
        ("_Z20foo_kernel_optimizedILi4EEvPf", "foo_kernel_optimized"),
        ("_ZN4ours20mix_kernel_optimizedILi8EEEvP13__nv_bfloat16PfPi", "mix_kernel_optimized"),
        ("_ZN4oursL20mix_kernel_optimizedILi4EEEvPKfP14__nv_bfloat162PfPi", "mix_kernel_optimized"),
        ("_ZN29_GLOBAL__N__821a5d49_4_b_cu_w22spill_kernel_optimizedEPfi", "spill_kernel_optimized"),
        ("copy_kernel_optimized", "copy_kernel_optimized"),
        ("_Z1kPf", "k"),
        ("_ZL1kPf", "k"),
        ("_Z4scan3BoxPf", "scan"),
        ("_ZN4mine5innerL11fill_kernelIfEEvPT_", "fill_kernel"),
        ("_ZN4mine45_GLOBAL__N__e7637efe_12_any_names_cu_c4ab57e66hiddenIfLi32EEEvPT_i", "hidden"),
        ("_Zwhatever", "_Zwhatever"),
    ],
)
def test_plain_names(symbol: str, name: str) -> None:
    assert plain_name(symbol) == name


@pytest.mark.parametrize(
    ("capability", "built", "runs"),
    [
        ((9, 0), ["sm_80", "sm_90"], "sm_90"),
        ((9, 0), ["sm_90", "sm_90a"], "sm_90a"),
        ((8, 9), ["sm_80", "sm_86", "sm_90"], "sm_86"),
        ((8, 0), ["sm_86"], None),  # newer than the GPU
        ((9, 0), ["sm_80"], None),  # another generation
        ((10, 3), ["sm_100a", "sm_100"], "sm_100"),  # "a" is for 10.0 alone
        ((10, 3), ["sm_100f"], "sm_100f"),
        ((12, 0), ["sm_120"], "sm_120"),
        ((9, 0), ["compute_90"], None),
        ((9, 0), [], None),
    ],
)
def test_the_machine_code_that_a_gpu_runs(capability: tuple[int, int], built: list[str], runs: str | None) -> None:
    assert architecture_for(capability, built) == runs

"""CUDAMaster: makes the CUDA kernels of MSKernelBench fast, and proves that they are.

As a library (docs/library.md):

    load_task, evaluate, evaluate_by_paper, compare, optimize, profile, sanitize    what the commands are for
    bundle, read_bundle, reproduce, reproduce_claim                                 a result that others can check
    choose_device                                                                   made once, passed to them
    TaskCard, Verdict, Compared, Run, Profiles ...                                  what they take and return

Importing the package does nothing: no files, no prints, no network, no litellm. Each name is imported when it is first
used.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudamaster.bundles.contents import Bundle
    from cudamaster.bundles.reproduction import Reproduction, Word
    from cudamaster.core.errors import (
        BaselineError,
        BudgetSpent,
        BundleError,
        CardError,
        CudaMasterError,
        DeviceError,
        ModelError,
        RunFolderError,
        UsageError,
    )
    from cudamaster.core.speed import Change, Comparison
    from cudamaster.core.values import (
        Bottleneck,
        Candidate,
        CaseVerdict,
        Findings,
        Precision,
        Profile,
        Role,
        Status,
        Verdict,
    )
    from cudamaster.devices.protocol import Device
    from cudamaster.library.bundles import bundle, read_bundle, reproduce, reproduce_claim
    from cudamaster.library.faults import Sanitized, sanitize
    from cudamaster.library.profiles import Profiled, Profiles, profile
    from cudamaster.library.searching import Run, optimize
    from cudamaster.library.subjects import choose_device, load_task
    from cudamaster.library.verdicts import Compared, compare, evaluate, evaluate_by_paper
    from cudamaster.models.protocol import Model, Reply, Request, Usage
    from cudamaster.strategies.protocol import Observer
    from cudamaster.strategies.result import Result
    from cudamaster.tasks.cards import TaskCard

__version__ = "0.1.0"

# The module of each name, as above.
_MODULES = {
    "bundles.contents": ("Bundle",),
    "bundles.reproduction": ("Reproduction", "Word"),
    "core.errors": (
        "BaselineError",
        "BudgetSpent",
        "BundleError",
        "CardError",
        "CudaMasterError",
        "DeviceError",
        "ModelError",
        "RunFolderError",
        "UsageError",
    ),
    "core.speed": ("Change", "Comparison"),
    "core.values": (
        "Bottleneck",
        "Candidate",
        "CaseVerdict",
        "Findings",
        "Precision",
        "Profile",
        "Role",
        "Status",
        "Verdict",
    ),
    "devices.protocol": ("Device",),
    "library.bundles": ("bundle", "read_bundle", "reproduce", "reproduce_claim"),
    "library.faults": ("Sanitized", "sanitize"),
    "library.profiles": ("Profiled", "Profiles", "profile"),
    "library.searching": ("Run", "optimize"),
    "library.subjects": ("choose_device", "load_task"),
    "library.verdicts": ("Compared", "compare", "evaluate", "evaluate_by_paper"),
    "models.protocol": ("Model", "Reply", "Request", "Usage"),
    "strategies.protocol": ("Observer",),
    "strategies.result": ("Result",),
    "tasks.cards": ("TaskCard",),
}
__all__ = [
    "BaselineError",
    "Bottleneck",
    "BudgetSpent",
    "Bundle",
    "BundleError",
    "Candidate",
    "CardError",
    "CaseVerdict",
    "Change",
    "Compared",
    "Comparison",
    "CudaMasterError",
    "Device",
    "DeviceError",
    "Findings",
    "Model",
    "ModelError",
    "Observer",
    "Precision",
    "Profile",
    "Profiled",
    "Profiles",
    "Reply",
    "Reproduction",
    "Request",
    "Result",
    "Role",
    "Run",
    "RunFolderError",
    "Sanitized",
    "Status",
    "TaskCard",
    "Usage",
    "UsageError",
    "Verdict",
    "Word",
    "__version__",
    "bundle",
    "choose_device",
    "compare",
    "evaluate",
    "evaluate_by_paper",
    "load_task",
    "optimize",
    "profile",
    "read_bundle",
    "reproduce",
    "reproduce_claim",
    "sanitize",
]


def __getattr__(name: str) -> object:
    """The value of a name in `__all__`, imported when it is first asked for."""
    for module, names in _MODULES.items():
        if name in names:
            from importlib import import_module

            globals()[name] = getattr(import_module(f"cudamaster.{module}"), name)
            return globals()[name]
    raise AttributeError(f"module 'cudamaster' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

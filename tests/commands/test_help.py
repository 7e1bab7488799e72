"""`--help`: what it says, and that it is quick."""

import subprocess
import sys

from command_line import run


def test_help_names_commands_and_exit_codes() -> None:
    """The first thing that a person types answers."""
    done = run("--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("optimize", "evaluate", "tasks", "doctor", "Exit codes"))


def test_help_imports_nothing_heavy() -> None:
    """`--help` stays quick because nothing heavy is imported for it."""
    heavy = ("litellm", "numpy", "skimage", "pydantic", "tree_sitter", "rich", "jinja2", "yaml")
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom cudamaster.cli import main\n"
        f"CliRunner().invoke(main, ['--help'])\nprint([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_is_not_cut_and_tells_of_the_strategies() -> None:
    from cudamaster.strategies.registry import STRATEGIES

    for command in ("", "metrics"):
        assert "..." not in run(*command.split(), "--help").stdout.partition("Commands:")[2]
    told = " ".join(run("optimize", "--help").stdout.split())
    assert all(strategy.summary in told for strategy in STRATEGIES.values())

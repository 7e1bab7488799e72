"""`cudamaster completion`: the script that teaches a shell our commands, options and names."""

from __future__ import annotations

import click

from cudamaster.cli import options
from cudamaster.cli.completing import PROGRAM, VARIABLE
from cudamaster.cli.output import print_json

_FILES = {
    "bash": "~/.local/share/bash-completion/completions/cudamaster",
    "zsh": "a file _cudamaster in a folder of $fpath",
    "fish": "~/.config/fish/completions/cudamaster.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_FILES)))
@options.as_json
def completion(shell: str, as_json: bool) -> None:
    """Print the script with which SHELL completes commands, options, tasks, strategies and run folders.

    \b
    For this session:  source <(cudamaster completion bash)      (zsh: the same)
                       cudamaster completion fish | source
    For good:          write it to the file that your shell reads, see docs/install.md.
    """
    from click.shell_completion import get_completion_class

    from cudamaster.cli import main
    from cudamaster.core.errors import DeviceError

    made = get_completion_class(shell)
    assert made is not None
    try:
        script = made(main, {}, PROGRAM, VARIABLE).source()
    except FileNotFoundError as error:  # click asks bash for its version
        raise DeviceError(f"There is no {shell}.", "Install it, or name the shell that you use.") from error
    if as_json:
        print_json({"shell": shell, "file": _FILES[shell], "script": script})
    else:
        click.echo(script)

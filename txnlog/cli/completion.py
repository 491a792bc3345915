"""``txnlog completion``: the script that teaches a shell our commands and options."""

from __future__ import annotations

import os
from pathlib import PurePath

import click
from click.shell_completion import get_completion_class

from txnlog.cli.output import print_exact

__all__ = ["completion"]

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def completion(context: click.Context, shell: str | None) -> None:
    """Print a shell completion script.

    For bash, zsh or fish; by default for $SHELL.

    Example for ~/.bashrc: eval "$(txnlog completion bash)"
    """
    name = shell or PurePath(os.environ.get("SHELL", "")).name
    complete = get_completion_class(name) if name in SHELLS else None
    if complete is None:
        raise click.UsageError(f"name the shell: one of {', '.join(SHELLS)}", ctx=context)
    program = context.find_root()
    print_exact(complete(program.command, {}, "txnlog", "_TXNLOG_COMPLETE").source())

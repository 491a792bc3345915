"""``txnlog completion``: the script that teaches a shell our commands and options."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from txnlog.cli.output import print_exact

__all__ = ["completion"]

SHELLS = ("bash", "zsh", "fish")

if TYPE_CHECKING:
    _Item = CompletionItem[Any]
else:
    _Item = CompletionItem  # that of click 8.2 takes no type


class _Bash(BashComplete):
    """Completion for bash, which cuts a line into words at more than spaces: ``file:///log`` is three of its
    words.

    So the script hands on the line as it was typed. Bash puts an answer in the place of its own last word:
    what stands before that is left out of the answer.
    """

    source_template = BashComplete.source_template.replace(
        "COMP_CWORD=$COMP_CWORD",
        'COMP_CWORD=$COMP_CWORD COMP_TYPED="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS"',
    )
    _typed = ""
    """The part of the word before the place that bash puts an answer into."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one that is completed, and that word as far as it was typed."""
        line = os.environ.get("COMP_TYPED")
        if line is None:
            return super().get_completion_args()
        *words, last = split_arg_string(f"{line}.")  # with it, an empty word is completed
        incomplete = last[:-1]
        value = incomplete.partition("=")[2] if re.match("-[^=]*=", incomplete) else incomplete
        if not _is_quoted(line):
            breaks = set(os.environ.get("COMP_WORDBREAKS", ""))
            self._typed = value[: max((at for at, one in enumerate(value, 1) if one in breaks), default=0)]
        return words[1:], incomplete

    def format_completion(self, item: _Item) -> str:
        """Return an answer for bash."""
        return f"{item.type},{str(item.value).removeprefix(self._typed)}"


def _is_quoted(line: str) -> bool:
    """Return whether the line ends within quotes, in which bash cuts nothing."""
    try:
        shlex.split(line)
    except ValueError as error:
        return "quotation" in str(error)
    return False


add_completion_class(_Bash)


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

"""The reference part of docs/cli.md, made from the command line itself.

``python -m tests.meta.cli_reference`` writes it anew.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from tests.meta.markdown import ROOT
from txnformat.errors import TxnLogError
from txnlog.cli.app import application
from txnlog.cli.failures import EXIT_CODES

__all__ = ["DOCUMENT", "commands", "exit_codes", "reference", "written"]

DOCUMENT = ROOT / "docs" / "cli.md"
BEGIN = "<!-- the rest is made by: python -m tests.meta.cli_reference -->"


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its whole name; those of a group in its place."""
    for name, command in application.commands.items():
        if isinstance(command, click.Group):
            for sub, inner in command.commands.items():
                yield f"{name} {sub}", inner
        else:
            yield name, command


def exit_codes() -> dict[int, list[type[TxnLogError]]]:
    """Return the classes of errors by exit code."""
    found: dict[int, list[type[TxnLogError]]] = {}
    for cls, code in EXIT_CODES.items():
        found.setdefault(code, []).append(cls)
    return found


def reference() -> str:
    """Return the reference as Markdown."""
    return "\n".join(line for name, command in commands() for line in _section(name, command)).strip() + "\n"


def _section(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"txnlog {name}")
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"## txnlog {name}", "", f"`txnlog {name} {usage}`", "")
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    for paragraph in paragraphs:
        yield from (" ".join(paragraph.split()), "")
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    if not options:
        return
    yield from ("| option | |", "|---|---|")
    for option in options:
        yield f"| {_option(option)} | {_help(option)} |"
    yield ""


def _option(option: click.Option) -> str:
    names = " ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    value = option.metavar or (
        "|".join(option.type.choices) if isinstance(option.type, click.Choice) else option.type.name.upper()
    )
    return f"{names} `{value}`".replace("|", "\\|")


def _help(option: click.Option) -> str:
    text = option.help or ""
    if option.show_default and option.default is not None:
        text += f" Default: {option.default}."
    if option.envvar:
        text += f" Default: the environment variable `{option.envvar}`."
    return text.replace("|", "\\|")


def written() -> str:
    """Return what docs/cli.md should be: what is written by hand, and the reference."""
    head = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)[0]
    return f"{head}{BEGIN}\n\n{reference()}"


if __name__ == "__main__":
    DOCUMENT.write_text(written(), encoding="utf-8")

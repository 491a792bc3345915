#!/usr/bin/env python3
"""Print a template of rights with its names filled in: ``render.py aws writer BUCKET=my-bucket ROOT=log``.

Python alone is enough. Without names it says which the template has; without a template, which templates
there are. A name is checked before it is written: a wildcard or a quote in one would make a right wider than
it looks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["NAMES", "main", "names_of", "rendered", "templates"]

HERE = Path(__file__).resolve().parent

_PATH = r"[A-Za-z0-9_][A-Za-z0-9._-]*(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)*"
NAMES: Mapping[str, tuple[str, str]] = {
    "BUCKET": (r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", "the bucket"),
    "ROOT": (_PATH, "the path of the log in its bucket or container, without slashes at its ends"),
    "TOPIC": (
        r"[A-Za-z0-9.-][A-Za-z0-9._-]{0,248}-[0-9a-f]{8}",
        "the directory of a topic: log.state.topic(name).directory",
    ),
    "SUBSCRIPTION": (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "the id of the Azure subscription"),
    "GROUP": (r"[A-Za-z0-9_][A-Za-z0-9._-]{0,89}", "the resource group of the storage account"),
    "PROJECT": (r"[a-z][a-z0-9-]{4,28}[a-z0-9]", "the id of the Google project"),
    "MEMBER": (
        r"(?:user|group|serviceAccount):[A-Za-z0-9._+-]+@[A-Za-z0-9.-]+",
        "an account, such as serviceAccount:writer@project.iam.gserviceaccount.com",
    ),
}
"""Placeholders: the pattern of a value, and its meaning."""

_PLACEHOLDER = re.compile(r"@([A-Z]+)@")


def templates() -> list[str]:
    """Return the templates, as ``aws/writer.json``."""
    return sorted(
        path.relative_to(HERE).as_posix()
        for path in HERE.glob("*/*")
        if path.suffix in {".json", ".condition"}
    )


def names_of(template: str) -> list[str]:
    """Return the placeholders of a template."""
    return sorted(set(_PLACEHOLDER.findall((HERE / template).read_text(encoding="utf-8"))))


def rendered(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its names filled in.

    Parameters
    ----------
    template : str
        One of :func:`templates`.
    values : mapping
        The value of each of its placeholders.

    Raises
    ------
    ValueError
        A placeholder has no value, a value no placeholder, or a value is not a name of its kind.
    """
    needed = names_of(template)
    for name in needed:
        if name not in values:
            raise ValueError(f"{name} is missing: {NAMES[name][1]}")
    for name, value in values.items():
        if name not in needed:
            raise ValueError(f"{template} has no {name}; it has {', '.join(needed)}")
        if re.fullmatch(NAMES[name][0], value) is None:
            raise ValueError(f"{value!r} is not {NAMES[name][1]}")
    text = (HERE / template).read_text(encoding="utf-8")
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def main(arguments: Sequence[str]) -> int:
    """Print what the command line asks for; return the exit code: 0, or 2 for a wrong command line."""
    words = [word for word in arguments if "=" not in word]
    values = dict(word.split("=", 1) for word in arguments if "=" in word)
    known = {template.removesuffix(".json").replace("/", " "): template for template in templates()}
    template = known.get(" ".join(words))
    if template is None:
        print("usage: render.py CLOUD TEMPLATE NAME=VALUE ...", file=sys.stderr)
        for name, one in known.items():
            print(f"  {name:24} {' '.join(names_of(one))}", file=sys.stderr)
        return 2
    try:
        sys.stdout.write(rendered(template, values))
    except ValueError as error:
        print(f"render.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

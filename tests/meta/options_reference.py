"""docs/options.md, made from the descriptions that the code has.

``python -m tests.meta.options_reference`` writes them anew.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from spark_datasource.options import declared
from spark_datasource.options.values import Option
from tests.meta.markdown import ROOT
from txnformat.consumers.settings import ConsumerSettings
from writers.settings import ProducerSettings

__all__ = ["OPTIONS_PAGE", "generated", "options_page"]

OPTIONS_PAGE = ROOT / "docs" / "options.md"
COMMAND = "python -m tests.meta.options_reference"
TITLES = {"read": "Reads", "write": "Batch writes", "stream write": "Streaming writes"}

_HEAD = f"""# Options

<!-- made by: {COMMAND} -->

Every option of Spark, and every argument of producers and consumers, from the code.

<!-- not run: the pages below have whole examples -->
```python
spark.read.format("txnlog").option("topic", "orders").option("isolation", "snapshot")
```

Names of options of Spark are case-insensitive. An unknown option is an error that names the nearest known one; an
option with an empty value is an error, too: leave it out for its default. Pages with examples: [read](spark-read.md),
[write](spark-write.md), [streams](spark-streams.md). `storage.<name>`, with every read and write, says how to reach
the store ([names](storage.md#s3-in-python)). Settings of topics are in [retention](operate.md#retention).
"""


OPTIONS = {"read": declared.READ, "write": declared.WRITE, "stream write": declared.STREAM_WRITE}


def table(use: str) -> str:
    """Return the table of the options of one use, with links relative to docs/."""
    lines = [f"| {use} option | type | default | example | meaning |", "|---|---|---|---|---|"]
    lines += [row for each in OPTIONS[use].values() for row in _rows(use, each)]
    return "\n".join(lines)


def _rows(use: str, each: Option) -> Iterator[str]:
    """Yield the row of an option, and one of its other name."""
    only = {"batch": " Batch only.", "stream": " Streams only."}.get(each.only, "") if use == "read" else ""
    yield _row(each.name, each.kind.type, each.default, f"`{each.example}`", text_of(each) + only)
    if each.alias is not None:
        meaning = f"Another name of `{each.name}`, close to Kafka's."
        yield _row(each.alias, each.kind.type, "", f"`{each.example}`", meaning)


def _row(name: str, *cells: str) -> str:
    return "| " + " | ".join((f"`{name}`", *cells)).replace("|  |", "| |") + " |"


def text_of(option: Option) -> str:
    """Return what an option is for: its own text, or the string below its field."""
    if option.text:
        return option.text
    for cls in (declared.ReadOptions, declared.WriteOptions, declared.StreamWriteOptions):
        for field in dataclasses.fields(cls):
            if option in field.metadata.get("options", ()):
                return _texts(cls)[field.name]
    raise KeyError(option.name)


def options_page() -> str:
    """Return what docs/options.md should be."""
    parts = [_HEAD, *_index()]
    for use in OPTIONS:
        parts += [f"## {TITLES.get(use, use.capitalize() + 's')}", table(use)]
    parts += [
        "## Producers",
        "Arguments of `Producer(log, …)`. Durations are milliseconds, sizes bytes.",
        _settings(ProducerSettings),
        "## Consumers",
        "Arguments of `Consumer(log, …)`.",
        _settings(ConsumerSettings),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _index() -> Iterator[str]:
    """Yield the list of all names of Spark's options, and where each can be given."""
    yield "## All options of Spark"
    known = [
        {name: each for each in options.values() for name in (each.name, each.alias) if name is not None}
        for options in OPTIONS.values()
    ]
    lines = [f"| option | {' | '.join(OPTIONS)} |", "|---|" + "---|" * len(OPTIONS)]
    for name in sorted({name for options in known for name in options}, key=str.lower):
        found = [options.get(name) for options in known]
        cells = [
            "" if each is None else "yes" if each.name == name else f"as `{each.name}`" for each in found
        ]
        lines.append(f"| `{name}` | {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |"))
    yield "\n".join(lines)


def _settings(cls: type[Any]) -> str:
    """Return the table of a settings class, from its fields and the texts below them."""
    texts = _texts(cls)
    lines = ["| argument | type | default | meaning |", "|---|---|---|---|"]
    for each in dataclasses.fields(cls):
        default = each.default.value if isinstance(each.default, Enum) else each.default
        shown = f"{default:,}" if type(default) is int else f"`{default!r}`"
        kind = str(each.type).replace("|", "\\|")
        lines.append(f"| `{each.name}` | `{kind}` | {shown} | {texts[each.name]} |")
    return "\n".join(lines)


def _texts(cls: type[Any]) -> dict[str, str]:
    """Return the string below each field of a dataclass, in one line of Markdown.

    Raises
    ------
    KeyError
        (By the caller.) A field has none.
    """
    (body,) = (node.body for node in ast.parse(inspect.getsource(cls)).body if isinstance(node, ast.ClassDef))
    texts: dict[str, str] = {}
    for before, node in itertools.pairwise(body):
        if isinstance(before, ast.AnnAssign) and isinstance(node, ast.Expr):
            target, text = before.target, ast.literal_eval(node.value)
            assert isinstance(target, ast.Name)
            texts[target.id] = re.sub(r"``(.+?)``", r"`\1`", " ".join(text.split())).replace("|", "\\|")
    return texts


def generated() -> dict[Path, str]:
    """Return every page that this makes, by its file."""
    return {OPTIONS_PAGE: options_page()}


if __name__ == "__main__":
    for path, content in generated().items():
        path.write_text(content, encoding="utf-8")

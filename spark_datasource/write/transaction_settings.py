"""Settings of a SparkTransaction, and the options of its writes."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_datasource.options.declared import VERSION_MAX
from spark_datasource.options.delegation import TRANSACTION
from spark_datasource.options.storage import PREFIX
from spark_datasource.options.write import parse_write_options
from txnformat.errors import InvalidInputError, repr_of
from txnformat.keys import TRANSACTIONAL_ID_BYTES_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ID_PREFIX", "as_whole", "place_problems", "problems_of", "write_options"]

ID_PREFIX = "spark/"
"""How the transactional ids of Spark transactions begin."""

_APP_ID_BYTES_MAX = TRANSACTIONAL_ID_BYTES_MAX - len(ID_PREFIX)
_OWN_OPTIONS = frozenset({"path", "txnappid", "txnversion", TRANSACTION})


def place_problems(spark: Any, root: object) -> list[str]:
    """Return what is wrong with a session, and with the place of a log."""
    problems = []
    if not (hasattr(spark, "createDataFrame") and hasattr(spark, "conf")):
        problems.append(f"spark is {repr_of(spark, 100)}, not a SparkSession")
    if not isinstance(root, str | os.PathLike) or not os.fspath(root):
        way_out = ": pass its url" if isinstance(getattr(root, "url", None), str) else ""
        problems.append(f"root is {repr_of(root, 100)}, not the path or URL of a log{way_out}")
    return problems


def problems_of(spark: Any, root: object, app_id: object, version: object) -> list[str]:
    """Return every problem of the settings."""
    problems = place_problems(spark, root)
    if not _is_app_id(app_id):
        problems.append(
            f"app_id is {repr_of(app_id, 100)}, not a text of 1 to {_APP_ID_BYTES_MAX} UTF-8 bytes that "
            "stays the same over restarts"
        )
    number = as_whole(version)
    if version is not None and (number is None or not 0 <= number <= VERSION_MAX):
        problems.append(f"version is {repr_of(version, 100)}, not a whole number from 0 to 2^63 - 1")
    return problems


def as_whole(value: object) -> int | None:
    """Return an integer of any type, numpy's too; None for what is none. A boolean is none."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]  # the question
    except TypeError:
        return None


def _is_app_id(app_id: object) -> bool:
    try:
        return isinstance(app_id, str) and 1 <= len(app_id.encode()) <= _APP_ID_BYTES_MAX
    except UnicodeEncodeError:
        return False


def write_options(
    df: DataFrame, topic: object, options: Mapping[str, object], storage: Sequence[tuple[str, str]], path: str
) -> dict[str, str]:
    """Return the options of a write, all checked."""
    own = [name for name in options if name.lower() in _OWN_OPTIONS or name.lower().startswith(PREFIX)]
    problems = [
        f"option {name} belongs to the transaction: give it to SparkTransaction" for name in sorted(own)
    ]
    given = {name: value for name, value in options.items() if value is not None and name not in own}
    problems += [
        f"option {name} is {repr_of(value, 100)}; use a text, a number or a boolean"
        for name, value in given.items()
        if not isinstance(value, str | bool) and as_whole(value) is None
    ]
    if topic is not None and not isinstance(topic, str):
        problems.append(f"the topic is {repr_of(topic, 100)}, not a name")
    if problems:
        raise InvalidInputError(problems, kind="invalid-option")
    texts = {
        name: value if isinstance(value, str) else str(value if whole is None else whole).lower()
        for name, value in given.items()
        for whole in (as_whole(value),)
    }
    if topic is not None:
        texts["topic"] = str(topic)
    texts |= {PREFIX + name: value for name, value in storage}
    parse_write_options({**texts, "path": path}, df.columns if topic is None else ())
    return texts

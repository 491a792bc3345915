"""Which Spark can read tables."""

from __future__ import annotations

import re
from typing import Any

from txnformat.errors import InvalidInputError

__all__ = ["SPARK_MIN", "check_spark"]

SPARK_MIN = (4, 1)
"""The oldest minor version of Spark: older ones do not take Arrow data from Python data sources as this one
hands it over."""


def check_spark(spark: Any) -> None:
    """Raise InvalidInputError of kind ``unsupported-spark`` about a session of a Spark that is too old; of
    Connect its server decides.
    """
    found = re.match(r"(\d+)\.(\d+)", str(spark.version))
    if found is not None and (int(found[1]), int(found[2])) < SPARK_MIN:
        oldest = ".".join(map(str, SPARK_MIN))
        raise InvalidInputError(
            f"this Spark cannot read tables of a log: it is {spark.version}, expected {oldest} or later",
            kind="unsupported-spark",
            hint=f"use Spark {oldest} or later, or read the topic in Python by log.read",
            got=str(spark.version),
            expected=oldest,
        )

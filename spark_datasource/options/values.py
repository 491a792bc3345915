"""Values of options: what Spark passed on as text, each parsed once, and all that is wrong with them.

Spark lower-cases the keys and turns every value into text. Every problem is found before anything else happens,
and all of them are in one error; an unknown option is an error that names the nearest known one.
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Mapping, Sequence

from spark_datasource.failures import USE_VIEW
from spark_datasource.options.names import parse_names
from spark_datasource.options.storage import NO_STORAGE, PREFIX, S3aSettings, Storage, storage_for
from spark_datasource.worker.logs import absolute
from txnformat.digits import whole
from txnformat.errors import InvalidInputError
from txnformat.moments import as_moment_ms

__all__ = ["LATER", "READ", "STREAM_WRITE", "WRITE", "OptionValues", "path_of", "storage_of"]

READ = (
    "path", "topic", "subscribe", "subscribePattern", "isolation", "isolationLevel", "order", "startingOffsets", "endingOffsets",
    "startingTimestamp", "endingTimestamp", "columns", "where", "minPartitions", "maxBytesPerPartition", "failOnDataLoss",
    "endExpired", "versionAsOf", "timestampAsOf", "maxRowsPerTrigger", "maxOffsetsPerTrigger", "maxBytesPerTrigger",
)  # fmt: skip
WRITE = (
    "path", "topic", "txnAppId", "txnVersion", "allowDifferentRepeat", "partitions", "keyColumns", "timestampColumn", "createTopics",
)  # fmt: skip
STREAM_WRITE = (
    "path", "topic", "txnAppId", "allowMissingBatches", "allowDifferentRepeat", "partitions", "keyColumns", "timestampColumn", "createTopics",
    "checkpointLocation", "queryName",
)  # fmt: skip
LATER = (
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "assign",
)  # fmt: skip
_EMPTY_IS_MISSING = {"path", "topic"}
"""Options that have to be given, in lower case: an empty one has an error of its own."""


class OptionValues:
    """The texts that Spark passed on, and what is wrong with them.

    Parameters
    ----------
    others : mapping of str to sequence of str
        Options that are for something else, by what that is.
    """

    def __init__(
        self, options: Mapping[str, str], known: Sequence[str], others: Mapping[str, Sequence[str]]
    ) -> None:
        self._values = {key.lower(): str(value).strip() for key, value in options.items()}
        self.problems: list[str] = []
        names = {name.lower(): name for name in known}
        later = {name.lower(): name for name in LATER}
        elsewhere = {name.lower(): (name, what) for what in reversed(list(others)) for name in others[what]}
        if "provider" in self._values:  # CREATE TABLE: Spark passes properties of its own, not the options
            raise InvalidInputError(
                "tables of a catalog are not supported by this version",
                kind="unsupported-operation",
                hint=f"use {USE_VIEW}",
            )
        for key in sorted(self._values.keys() & names.keys() - _EMPTY_IS_MISSING):
            # Often a variable that was not set. A default in its place would be a guess: without txnAppId, not once.
            if not self._values[key]:
                self.problems.append(f"option {names[key]} is empty; give it a value, or leave it out")
        for key in sorted(self._values.keys() - names.keys()):
            if key == "paths":
                self.problems.append("load one path: a read covers one log")
            elif key.startswith(PREFIX):
                pass  # looked at with the path
            elif key in later:
                self.problems.append(f"option {later.get(key, key)} is not supported by this version")
            elif key in elsewhere:
                name, what = elsewhere[key]
                self.problems.append(f"option {name} is for {what} only")
            else:
                nearest = difflib.get_close_matches(key, names, n=1)
                advice = f"did you mean {names[nearest[0]]}?" if nearest else f"there are {', '.join(known)}"
                self.problems.append(f"there is no option {key!r:.100}; {advice}")

    def finish(self) -> None:
        """Raise when there was any problem."""
        if self.problems and not self._values:
            self.problems.append(
                "no option arrived at all, which is how Spark reads and writes tables of a catalog: drop such a table, and "
                f"use {USE_VIEW}"
            )
        if self.problems:
            raise InvalidInputError(self.problems, kind="invalid-option")

    def has(self, name: str) -> bool:
        """Whether an option was given, known or not."""
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        """Return an option's text; None when it is absent or empty."""
        return self._values.get(name.lower()) or None

    def storage(self) -> dict[str, str]:
        """Return the options ``storage.<name>``, without the prefix."""
        return {
            key.removeprefix(PREFIX): value for key, value in self._values.items() if key.startswith(PREFIX)
        }

    def one_of(self, name: str, alias: str) -> str | None:
        """Return the text of an option that has two names."""
        value, other = self.text(name), self.text(alias)
        if value is not None and other is not None and value != other:
            self.problems.append(f"options {name} and {alias} mean the same and differ")
        return value if value is not None else other

    def names(self, name: str) -> tuple[str, ...] | None:
        """Return a comma-separated list of names, which may stand in backquotes."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse_names(text)
        except ValueError as error:
            self.problems.append(f"option {name} {error}")
            return None

    def integer(self, name: str, minimum: int) -> int | None:
        """Return an integer of at least ``minimum``."""
        text = self.text(name)
        if text is None:
            return None
        value = whole(text.strip())
        if value is None or value < minimum:
            self.problems.append(f"option {name} is {text!r:.100}; use an integer from {minimum} on")
            return None
        return value

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return "true" or "false"."""
        text = self.text(name)
        if text is not None and text.lower() not in ("true", "false"):
            self.problems.append(f"option {name} is {text!r:.100}; use true or false")
        return default if text is None else text.lower() == "true"

    def timestamp(self, name: str) -> int | None:
        """Return milliseconds since the epoch: given as such, or as ISO 8601 with a zone."""
        text = self.text(name)
        if text is None:
            return None
        try:
            digits = text.removeprefix("-")
            if (number := whole(digits)) is not None:
                return number if digits == text else -number
            moment = datetime.datetime.fromisoformat(text)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            self.problems.append(
                f"option {name} is {text!r:.100}; use milliseconds since the epoch, or ISO 8601 with a zone, "
                "such as 2026-01-31T12:00:00Z"
            )
            return None
        # In integers: a float of seconds is a millisecond off for some times. Rounded up: "at or after".
        since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return -(-since // datetime.timedelta(milliseconds=1))

    def moment(self, name: str) -> int | None:
        """Return milliseconds since the epoch, as Python's ``timestamp_as_of`` takes them."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return as_moment_ms(text, f"option {name}")
        except InvalidInputError as error:
            self.problems.append(f"{error.problems[0]}; {error.hint}")
            return None


def path_of(found: OptionValues) -> str:
    """Return the absolute path or URL of the log; that it is missing is a problem."""
    text = found.text("path")
    if text is None:
        if not found.has("paths"):  # load([...]), a problem already
            found.problems.append(
                "the path of the log is missing; pass it to load(), save(), start() or option path"
            )
        return ""
    return absolute(text)


def storage_of(found: OptionValues, path: str, s3a: S3aSettings | None) -> Storage:
    """Return the storage options for a path; what is wrong with them is a problem."""
    try:
        return storage_for(path, found.storage(), s3a)
    except InvalidInputError as error:
        found.problems.extend(error.problems)
        return NO_STORAGE

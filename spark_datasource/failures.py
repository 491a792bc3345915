"""How an error of txnlog leaves this package: one clean message with a stable code; and how spans leave it.

Spark shows users the text of an exception that crossed its process border, never the exception itself, and
prints our whole traceback with it. So every method that Spark calls is wrapped: the traceback is cut, and the
message begins with a code made of the error's kind: ``unknown-topic`` is ``[TXNLOG_UNKNOWN_TOPIC]``.

Spark ends its Python processes as it likes, and never lets Python end: where these are traced, a method hands
its spans over before it returns. An object that Spark pickles takes along, as its ``trace``, the span that it
was made in.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from txnformat import errors
from txnformat.errors import InvalidInputError, TxnLogError
from txnformat.spans import flush, under

__all__ = [
    "USE_VIEW",
    "cause_of",
    "clean_errors",
    "clean_iterator",
    "code_of",
    "coded",
    "error_in",
    "unsupported",
]

_CODED = re.compile(r"txnformat\.errors\.(\w+): \[TXNLOG_([A-Z0-9_]+)\] ([^\n]*)")
"""One of our errors in the text of one of Spark's: Python's last line of a traceback."""

USE_VIEW = "CREATE TEMPORARY VIEW name USING txnlog OPTIONS (topic '...', path '...')"
"""The way out for tables of a catalog, whose options Spark does not pass on."""

FLUSH_SECONDS = 1
"""How long a method waits for the exporter; what takes longer goes on behind it, if the process lives."""

P = ParamSpec("P")
T = TypeVar("T")


def cause_of(error: Exception) -> str:
    """Return the text of an error of Spark in one line; an error of Java only names the call in its first
    one.
    """
    lines = [
        line for line in str(error).splitlines() if not line.startswith("An error occurred while calling ")
    ]
    return lines[0].removeprefix(": ") if lines else type(error).__name__


def code_of(error: TxnLogError) -> str:
    """Return the code that a message of ``error`` begins with: ``TXNLOG_`` and the kind in upper case."""
    return "TXNLOG_" + error.kind.replace("-", "_").upper()


def coded(error: TxnLogError) -> TxnLogError:
    """Return ``error`` itself, without traceback and with its code before the message (put there once)."""
    prefix = f"[{code_of(error)}] "
    if not str(error).startswith(prefix):
        error.args = (prefix + " ".join(str(error).splitlines()),)
    return error.with_traceback(None)


def clean_errors(method: Callable[P, T]) -> Callable[P, T]:
    """Wrap a method that Spark calls."""

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with under(getattr(args[0], "trace", None) if args else None):
                return method(*args, **kwargs)
        except TxnLogError as error:
            raise coded(error) from None
        finally:
            flush(FLUSH_SECONDS)

    return wrapper


def clean_iterator(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Wrap a generator method that Spark calls."""

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from method(*args, **kwargs)
        except TxnLogError as error:
            raise coded(error) from None
        finally:
            flush(FLUSH_SECONDS)

    return wrapper


def unsupported(what: str, hint: str) -> InvalidInputError:
    """Return the error about something that Spark offers and this version does not do."""
    return InvalidInputError(f"{what} not supported by this version", kind="unsupported-operation", hint=hint)


def error_in(text: str) -> TxnLogError | None:
    """Return the error of txnlog that the text of an error of Spark tells of: its class, kind and message;
    else None.
    """
    found = _CODED.search(text)
    cls = getattr(errors, found[1], None) if found is not None else None
    if found is None or not isinstance(cls, type) or not issubclass(cls, TxnLogError):
        return None
    error: TxnLogError = cls(found[3].strip(), kind=found[2].lower().replace("_", "-"))
    return error

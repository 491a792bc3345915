"""From the storage option to a key client."""

from __future__ import annotations

from importlib import import_module

from txnformat.errors import InvalidInputError
from txnformat.store.encrypted.key_client import CLIENT_OPTION, FORMS, KeyClient, KeySource
from txnformat.store.encrypted.key_file import KeyFile

__all__ = ["make_client"]


def make_client(source: KeySource) -> KeyClient:
    """Return a key client. Raises InvalidInputError of kind ``invalid-storage-option``."""
    kind, _, rest = source.client.partition(":")
    if kind in ("file", "env"):
        return KeyFile(kind, rest)
    try:
        found = getattr(import_module(kind), rest)
    except Exception as error:  # noqa: BLE001  # whatever the module raises while it is imported
        raise _unusable(f"cannot be imported: {type(error).__name__}") from None
    # A class only: the name of any function, with a text of the caller's choice, would be a way to run
    # anything.
    if not isinstance(found, type) or not all(
        callable(getattr(found, name, None)) for name in ("wrap", "unwrap")
    ):
        raise _unusable("is not a class with the methods wrap and unwrap")
    try:
        client: KeyClient = found(source.config)
    except Exception as error:  # noqa: BLE001  # whatever the class raises
        raise _unusable(f"cannot be made: {type(error).__name__}") from None
    return client


def _unusable(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"the class that the storage option {CLIENT_OPTION} names {what}",
        kind="invalid-storage-option",
        hint=FORMS + "; it is needed wherever the log is opened, on executors of Spark, too",
    )

"""Key clients: what wraps and unwraps the data keys of a log by a master key, which txnlog never sees.

A key client is a class with one argument, a text, that both calls can be made on from many threads::

    class MyKeys:
        def __init__(self, config: str) -> None: ...
        def wrap(self, key: bytes, context: str) -> tuple[str, bytes]: ...
        def unwrap(self, master_key: str, wrapped: bytes, context: str) -> bytes: ...

The storage option ``key_client`` names it, as ``package.module:MyKeys``, and every process that opens the log
imports it: executors of Spark, too. No data key is in the option.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from txnformat.errors import InvalidInputError, StorageError
from txnformat.store.secrets import masked

__all__ = [
    "CLIENT_OPTION",
    "CONFIG_OPTION",
    "FORMS",
    "KeyClient",
    "KeyRefusedError",
    "KeySource",
    "key_source",
    "refused",
]

CLIENT_OPTION = "key_client"
CONFIG_OPTION = "key_client_config"

_CLASS = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FORMS = "write file:/path/keys.json, env:NAME of a variable, or package.module:Class"


class KeyRefusedError(Exception):
    """The key client does not have the master key, or may not use it, or the wrapped key is another one's.

    Its text may show: it holds no secret.
    """


class KeyClient(Protocol):
    """Wraps and unwraps data keys. Safe for use by many threads."""

    def wrap(self, key: bytes, context: str) -> tuple[str, bytes]:
        """Return the name of the newest master key, and ``key`` wrapped by it.

        ``context`` is no secret: it goes with the wrapped key, which opens with an equal context only (the
        encryption context of AWS, additional authenticated data elsewhere).
        """
        ...

    def unwrap(self, master_key: str, wrapped: bytes, context: str) -> bytes:
        """Return the key. Raises KeyRefusedError; whatever else it raises counts as an outage."""
        ...


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where a process gets its key client; pickles, and does not show the configuration."""

    client: str
    """As the storage option says it."""
    config: str = field(default="", repr=False)


def key_source(options: Mapping[str, str]) -> tuple[KeySource | None, dict[str, str]]:
    """Return where the key client comes from, None without one, and the options of the store itself.

    Raises InvalidInputError of kind ``invalid-storage-option``.
    """
    own: dict[str, str] = {}
    rest: dict[str, str] = {}
    for name, value in options.items():
        (own if name.lower() in (CLIENT_OPTION, CONFIG_OPTION) else rest)[name] = value
    if not own:
        return None, dict(options)
    if len({name.lower() for name in own}) < len(own):
        raise InvalidInputError("a storage option is given twice", kind="invalid-storage-option")
    given = {name.lower(): value for name, value in own.items()}
    client, config = given.get(CLIENT_OPTION), given.get(CONFIG_OPTION, "")
    if not isinstance(client, str) or not isinstance(config, str):
        raise InvalidInputError(
            f"storage option {CONFIG_OPTION} needs {CLIENT_OPTION}, and both are texts",
            kind="invalid-storage-option",
            hint=FORMS,
        )
    kind, _, rest_of = client.partition(":")
    if not rest_of or (kind not in ("file", "env") and not _CLASS.fullmatch(client)):
        raise InvalidInputError(
            f"storage option {CLIENT_OPTION} does not say where keys are",
            kind="invalid-storage-option",
            hint=FORMS,
        )
    if (kind == "env" and not _VARIABLE.fullmatch(rest_of)) or (
        kind == "file" and rest_of.lstrip().startswith("{")
    ):
        # The user may have put the keys there: the text must not show.
        raise InvalidInputError(
            f"storage option {CLIENT_OPTION} has something other than the "
            f"{'name of a variable' if kind == 'env' else 'path of a file'}",
            kind="invalid-storage-option",
            hint=FORMS,
        )
    if config and kind in ("file", "env"):
        raise InvalidInputError(
            f"storage option {CONFIG_OPTION} is for a class", kind="invalid-storage-option", hint=FORMS
        )
    return KeySource(client, config), rest


def refused(error: Exception, url: str, master_key: str) -> StorageError:
    """Return the error about what a key client raised."""
    if isinstance(error, KeyRefusedError):
        return StorageError(
            "the key client does not open the log's key",
            kind="key-refused",
            hint="give the key client the master key that the log was made with, and the right to use it",
            store=url,
            master_key=master_key,
            cause=masked(str(error)),
        )
    # The text of another library may hold what must not show.
    return StorageError(
        "the key client failed",
        kind="key-client-failed",
        hint="try again; see the key client's own log",
        transient=True,
        store=url,
        master_key=master_key,
        cause=type(error).__name__,
    )

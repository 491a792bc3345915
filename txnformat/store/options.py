"""Shared parts of the storage options of all remote stores: how names and texts become values, without a
value ever showing.
"""

from __future__ import annotations

import base64
import difflib
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

from txnformat.digits import seconds
from txnformat.errors import InvalidInputError, StorageError
from txnformat.store.secrets import CHARS_MIN, hidden, masked

__all__ = [
    "RemoteOptions",
    "check_bundle",
    "check_environment",
    "is_customer_key",
    "own_value",
    "same_endpoint",
    "shown_name",
]

CUSTOMER_KEY_BYTES = 32
_NAME = re.compile(r"[A-Za-z_.\-]{1,32}")
_ENDPOINT = re.compile(r"https?://[A-Za-z0-9._\-\[\]:]+(/[A-Za-z0-9._~/\-]*)?")
_AWS_HOST = re.compile(r"(?:.+\.)?amazonaws\.com(?:\.cn)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions:
    """Parsed options, each a field; hashable, so that one process makes one client for equal ones."""

    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of options, in lower case."""
    secrets: ClassVar[Sequence[str]] = ()
    """Names of the options whose values are secret."""

    def __repr__(self) -> str:
        given = [each.name for each in fields(self) if getattr(self, each.name) != each.default]
        return f"{type(self).__name__}({', '.join(f'{name}=…' for name in given)})"

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the options, without aliases."""
        return tuple(each.name for each in fields(cls))

    @classmethod
    def parse(cls, options: Mapping[Any, Any]) -> Self:
        """Return the options that ``options`` names; the case of names does not matter.

        Raises InvalidInputError of kind ``invalid-storage-option``: every problem.
        """
        problems: list[str] = []
        found = _parsed(cls.names(), cls.aliases, options, problems)
        values = {name: cls.value(name, text, problems) for name, text in found.items()}
        problems += cls.contradictions(values)
        if problems:
            raise InvalidInputError(problems, kind="invalid-storage-option")
        return cls(**values)

    @classmethod
    def canonical(cls, options: Mapping[str, str]) -> dict[str, str]:
        """Return options under their own names in place of aliases; unknown names stay."""
        return {cls.aliases.get(name.lower(), name.lower()): value for name, value in options.items()}

    @classmethod
    def value(cls, name: str, text: str, problems: list[str]) -> Any:
        """Return the value that ``text`` stands for; what is wrong goes to ``problems``, without the text."""
        if name == "anon":
            return own_value("true-or-false", name, text, problems)
        if name.endswith("_s"):
            return own_value("seconds", name, text, problems)
        return own_value(name, name, text, problems)

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> list[str]:
        """Return what is wrong with the options together."""
        return []

    def secret_values(self) -> list[str | None]:
        """Return the values that may never show."""
        return [getattr(self, name) for name in self.secrets]

    def mask(self, text: str) -> str:
        """Return ``text`` without the credentials."""
        for value in self.secret_values():
            if value and len(value) >= CHARS_MIN:
                text = hidden(text, value)
        return masked(text)


def _parsed(
    names: Iterable[str], aliases: Mapping[str, str], options: Mapping[Any, Any], problems: list[str]
) -> dict[str, str]:
    """Return the texts of options under their own names; empty ones are left out, and what is wrong goes to
    ``problems``.
    """
    known = list(names)
    found: dict[str, str] = {}
    for given, value in options.items():
        name = str(given).lower()
        name = aliases.get(name, name)
        if name not in known:
            problems.append(_unknown(str(given), known, aliases))
        elif not isinstance(value, str):
            problems.append(f"storage option {name} is {type(value).__name__}; use text")
        elif found.get(name, value) != value:
            problems.append(f"storage option {name} is given twice, with two values")
        elif value.strip():
            found[name] = value.strip()
    return found


def own_value(
    kind: str,
    name: str,
    text: str,
    problems: list[str],
) -> Any:
    """Return the value that ``text`` stands for; what is wrong goes to ``problems``, without the text.

    ``kind``: ``true-or-false``, ``seconds``, ``customer-key``, ``endpoint_url`` or ``verify``; of any other
    the text is the value.
    """
    match kind:
        case "true-or-false":
            if text.lower() not in ("true", "false"):
                problems.append(f"storage option {name} must be true or false")
            return text.lower() == "true"
        case "verify":
            return {"true": True, "false": False}.get(text.lower(), text)
        case "seconds":
            found = seconds(text)
            if found is None or not 0.0 < found <= 3600.0:
                problems.append(f"storage option {name} must be a number of seconds, above 0, at most 3600")
            return found
        case "customer-key":
            if not is_customer_key(text):
                problems.append(f"storage option {name} must be a key of 32 bytes, in base64")
            return text
        case "endpoint_url":
            if not _ENDPOINT.fullmatch(text) or not _has_host(text):
                problems.append(
                    "storage option endpoint_url must be http://host[:port] or https://host[:port]"
                )
            return text.rstrip("/")
        case _:
            return text


def is_customer_key(text: str) -> bool:
    """Return whether a text is a key of AES-256 in base64."""
    try:
        return len(base64.b64decode(text, validate=True)) == CUSTOMER_KEY_BYTES
    except ValueError:
        return False


def shown_name(name: str) -> str:
    """Return the name of an option for a message; one that looks like no name may be a secret with ``=``
    behind it.
    """
    return (
        repr(name)
        if _NAME.fullmatch(name)
        else "of that name (it does not look like a name, so it is not shown)"
    )


def same_endpoint(one: str | None, other: str | None) -> bool:
    """Return whether two endpoints are one, as far as credentials go: scheme, host and port; all of AWS are
    one.
    """
    return _origin(one) == _origin(other)


def check_environment(
    endpoint_url: str | None, own: str | None, has_credentials: bool, hint: str, **values: Any
) -> None:
    """Refuse credentials of the environment for another endpoint than the environment's own (StorageError,
    kind ``credentials-missing``).

    ``own``: the endpoint that the environment names. Where it names none, its credentials are for any that
    the options name. ``has_credentials``: whether the environment holds credentials, and the options name
    none.
    """
    if endpoint_url is None or not own or not has_credentials or same_endpoint(endpoint_url, own):
        return
    raise StorageError(
        "the credentials of the environment belong to an endpoint other than endpoint_url, and txnlog "
        "does not "
        "send them there",
        kind="credentials-missing",
        hint=hint,
        endpoint_url=endpoint_url,
        **values,
    )


def _origin(endpoint: str | None) -> tuple[str, str, int | None]:
    if not endpoint:
        return "", "aws", None
    parts = urlsplit(endpoint.lower())
    host = parts.hostname or ""
    try:
        port = parts.port
    except ValueError:  # the client says what is wrong with it
        port = -1
    if _AWS_HOST.fullmatch(host):
        return "", "aws", None
    return parts.scheme, host, port or {"http": 80, "https": 443}.get(parts.scheme)


def _has_host(endpoint: str) -> bool:
    """Return whether an endpoint has a host, and a port that can be."""
    try:
        parts = urlsplit(endpoint)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def check_bundle(verify: bool | str) -> None:
    """Refuse a CA bundle that is not there, or holds no certificate, before anything is sent.

    Its path does not show.

    Raises StorageError of kind ``invalid-storage-option``.
    """
    if isinstance(verify, bool) or Path(verify).is_dir():
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(verify)
    except (OSError, ValueError) as error:
        raise StorageError(
            "the storage option verify must be true, false, or the path of a readable CA bundle",
            kind="invalid-storage-option",
            hint="name a file with certificates in PEM, or leave it out; nothing was sent",
            cause=type(error).__name__
            if not isinstance(error, OSError)
            else error.strerror or type(error).__name__,
        ) from None


def _unknown(name: str, known: list[str], aliases: Mapping[str, str]) -> str:
    if not _NAME.fullmatch(name):
        return f"there is no storage option {shown_name(name)}; there are {', '.join(known)}"
    nearest = difflib.get_close_matches(name.lower(), [*known, *aliases], n=1)
    advice = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(known)}"
    return f"there is no storage option {shown_name(name)}; {advice}"

"""Storage options of the clouds: what each of them has, and how text becomes options. Values never show."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from txnformat.errors import InvalidInputError, StorageError
from txnformat.store.options import own_value, parsed, same_endpoint
from txnformat.store.secrets import CHARS_MIN, hidden, masked

__all__ = ["CloudOptions", "check_environment", "is_name"]

_BUCKET = re.compile(r"[a-z0-9$][a-z0-9._-]{1,221}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudOptions:
    """Options of every cloud; hashable, so that one process makes one client for equal ones."""

    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of options, in lower case."""
    secrets: ClassVar[Sequence[str]] = ()
    """Names of the options whose values are secret."""
    credentials: ClassVar[Sequence[str]] = ()
    """Names of the options that say who asks; without any of them the environment does."""

    anon: bool = False
    """Requests are not signed: what is public."""
    endpoint_url: str | None = None
    """``http(s)://host[:port][/path]`` of an emulator, or of another cloud."""
    verify: bool | str = True
    """Whether TLS certificates are checked, or the path of a CA bundle to check them with, too."""
    connect_timeout_s: float = 5.0
    """Seconds until a connection must stand."""
    read_timeout_s: float = 20.0
    """Seconds without a byte of an answer after which a request counts as lost."""
    request_timeout_s: float = 60.0
    """Seconds that one request may take in all, more for large ones; and a call, with its repeats and pauses."""

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
        found = parsed(cls.names(), cls.aliases, options, problems)
        values = {name: cls.value(name, text, problems) for name, text in found.items()}
        if values.get("anon") and any(name in values for name in cls.credentials):
            problems.append(f"storage option anon excludes {', '.join(cls.credentials)}")
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

    def write_headers(self) -> dict[str, str]:
        """Return the headers of every request that makes an object."""
        return {}

    def has_expired(self, now_ms: int) -> bool:
        """Return whether the credentials themselves say that their time is over."""
        return False

    def names_credentials(self) -> bool:
        """Return whether these options say who asks."""
        return self.anon or any(getattr(self, name) for name in self.credentials)


def is_name(container: str) -> bool:
    """Return whether a bucket or container can have this name."""
    return bool(_BUCKET.fullmatch(container))


def check_environment(options: CloudOptions, own: str | None, has_credentials: bool) -> None:
    """Refuse credentials of the environment for another endpoint than the environment's own.

    Parameters
    ----------
    options : CloudOptions
        What the caller gave.
    own : str or None
        The endpoint that the environment names. Where it names none, its credentials are for any that the options name.
    has_credentials : bool
        Whether the environment holds credentials.

    Raises
    ------
    StorageError
        Kind ``credentials-missing``.
    """
    if options.endpoint_url is None or options.names_credentials() or not own or not has_credentials:
        return
    if not same_endpoint(options.endpoint_url, own):
        raise StorageError(
            "the credentials of the environment belong to an endpoint other than endpoint_url, and txnlog does not "
            "send them there",
            kind="credentials-missing",
            hint="pass the credentials for this endpoint as storage options, or set anon to true",
            endpoint_url=options.endpoint_url,
        )

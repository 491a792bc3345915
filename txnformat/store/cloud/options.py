"""Storage options of the clouds: what each of them has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from txnformat.store.options import RemoteOptions, check_environment

__all__ = ["CloudOptions", "is_name"]

_BUCKET = re.compile(r"[a-z0-9$][a-z0-9._-]{1,221}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CloudOptions(RemoteOptions):
    """Options of every cloud."""

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
    """Seconds that one request may take in all, more for large ones; and a call, with its repeats and pauses.
    """

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> list[str]:
        """See :meth:`RemoteOptions.contradictions`."""
        ways = [name for name in cls.credentials if name in values]
        found = []
        if values.get("anon") and ways:
            found.append(f"storage option anon excludes {', '.join(cls.credentials)}")
        if len(ways) > 1:
            found.append(f"give one of the storage options {', '.join(ways)}")
        return found

    def write_headers(self) -> dict[str, str]:
        """Return the headers of every request that makes an object."""
        return {}

    def has_expired(self, now_ms: int) -> bool:
        """Return whether the credentials themselves say that their time is over."""
        return False

    def check_environment(self, own: str | None, has_credentials: bool) -> None:
        """See :func:`~txnformat.store.options.check_environment`."""
        names_credentials = self.anon or any(getattr(self, name) for name in self.credentials)
        hint = "pass the credentials for this endpoint as storage options, or set anon to true"
        check_environment(self.endpoint_url, own, has_credentials and not names_credentials, hint)


def is_name(container: str) -> bool:
    """Return whether a bucket or container can have this name."""
    return bool(_BUCKET.fullmatch(container))

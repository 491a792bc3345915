"""The meanings that an answer of a remote store can have for a user, or its absence; how each client reads
them is beside that client.

A request was *refused* only if the answer proves that it was not applied and never will be. A timeout, a
reset, 409, 429 and 5xx prove nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from txnformat.errors import StorageError, UnsupportedStoreError

__all__ = [
    "ARCHIVED",
    "BUSY",
    "CONDITION",
    "CONFLICT",
    "CONTAINER",
    "DENIED",
    "EXPIRED",
    "FULL",
    "LOST",
    "MISSING",
    "NO_STORE",
    "OTHER",
    "REDIRECTED",
    "SETTINGS",
    "SKEW",
    "TLS",
    "UNREACHABLE",
    "WRONG",
    "AnswerTooLargeError",
    "Failure",
    "Meaning",
    "RequestFailedError",
    "Words",
    "told",
]


class AnswerTooLargeError(Exception):
    """The answer has more bytes than it may have (``most``, inclusive); reading ended there.

    ``got`` is what it says, if it does.
    """

    def __init__(self, most: int, got: int | None, *, of_object: bool = False) -> None:
        self.most = most
        self.got = got
        self.of_object = of_object
        super().__init__(f"more than {most} bytes")


class Failure(NamedTuple):
    """One failed request."""

    error: StorageError
    refused: bool
    """Proven: not applied, and never will be."""
    sent: bool
    """False: no byte of the request reached the store."""
    status: int = 0
    """HTTP status; 0 without an answer of the store."""
    code: str = ""
    """The store's error code; empty without one."""
    too_large: AnswerTooLargeError | None = None
    """The object in the answer had more bytes than it may have, where a client reads it no further."""


class RequestFailedError(Exception):
    """One request failed; for use within the adapters."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.error)


class Words(NamedTuple):
    """How one store calls things, for messages."""

    container: str
    """The word for what objects lie in."""
    credentials: str
    """How to give credentials: a hint."""
    rights: str
    """The rights that txnlog needs: a hint."""


class Meaning(NamedTuple):
    """The meaning of an answer; {container}, {credentials} and {rights} stand for the store's words."""

    kind: str
    what: str
    hint: str


CONTAINER = Meaning(
    "bucket-missing",
    "the {container} does not exist",
    "create it, or correct its name; txnlog makes no {container}s",
)
DENIED = Meaning("permission-denied", "the store denies access", "{rights}")
WRONG = Meaning("credentials-invalid", "the store does not accept the credentials", "{credentials}")
EXPIRED = Meaning(
    "credentials-expired",
    "the credentials have expired",
    "renew them, then open the log or start the query again; committed data is safe",
)
MISSING = Meaning("credentials-missing", "no credentials were found", "{credentials}")
SKEW = Meaning(
    "clock-skew", "this machine's clock is too far from the store's time", "set the clock (NTP) and try again"
)
CONDITION = Meaning(
    "unsupported-store",
    "the store does not know conditional requests",
    "use a store that creates an object only where there is none, in one step",
)
UNREACHABLE = Meaning(
    "endpoint-unreachable",
    "the store cannot be reached",
    "check the network, the names in the URL, and the storage option endpoint_url",
)
TLS = Meaning(
    "tls-failed",
    "the store's certificate is not accepted",
    "check endpoint_url, or set the storage option verify to the path of a CA bundle",
)
SETTINGS = Meaning(
    "invalid-storage-option",
    "the client does not accept these storage options; nothing was sent",
    "see the cause, and the table of options in docs/storage.md",
)
FULL = Meaning(
    "disk-full",
    "the store is full, or a quota is used up",
    "free space or raise the quota, then try again; committed data is safe",
)
LOST = Meaning("connection-lost", "the store gave no complete answer", "try again")
NO_STORE = Meaning(
    "endpoint-no-store",
    "the server at the endpoint does not answer like the store",
    "check the storage option endpoint_url: another server, a portal or a proxy answers there",
)
BUSY = Meaning("store-unavailable", "the store is overloaded or failing", "try again")
CONFLICT = Meaning("store-conflict", "another request to the same object was in the way", "try again")
REDIRECTED = Meaning(
    "endpoint-redirects",
    "the endpoint answers with a redirect to another place, which is not followed",
    "set the storage option endpoint_url to the store itself; a portal or a proxy may be in the way",
)
ARCHIVED = Meaning(
    "object-archived", "the object is in an archive", "restore it; keep the log out of archiving rules"
)
OTHER = Meaning("store-refused", "the store refused the request", "see the cause")


def told(
    meaning: Meaning,
    doing: str,
    where: str,
    cause: str,
    *,
    words: Words,
    transient: bool = False,
    values: Mapping[str, str] | None = None,
) -> StorageError:
    """Return the error that tells a meaning. ``doing``: the request. ``where``: what it was about."""
    kind, what, hint = (part.format(**words._asdict()) for part in meaning)
    cls = UnsupportedStoreError if kind == CONDITION.kind else StorageError
    return cls(
        what,
        kind=kind,
        hint=hint,
        transient=transient,
        object=where,
        request=doing,
        cause=cause,
        **(values or {}),
    )

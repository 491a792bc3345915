"""The meaning for a user of an answer of a cloud, or of its absence, and what it proves about the request.

obstore's exceptions are texts: a sentence with the HTTP status and the body of the answer, and behind it a description of the Rust values. The status, the
store's error code and the kind of a broken connection are read from there. A text that cannot be read proves nothing, so the outcome is then called unclear.

A request was *refused* only if the answer proves that it was not applied and never will be. A timeout, a reset, 409, 429 and 5xx prove nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from txnformat.errors import StorageError, UnsupportedStoreError

__all__ = ["Failure", "RequestFailedError", "Words", "failure_of"]


class Words(NamedTuple):
    """How one cloud calls things, for messages."""

    container: str
    """The word for what objects lie in."""
    credentials: str
    """How to give credentials: a hint."""
    rights: str
    """The rights that txnlog needs: a hint."""


class Failure(NamedTuple):
    """One failed request."""

    error: StorageError
    refused: bool
    """Proven: not applied, and never will be."""
    sent: bool
    """False: no byte of the request reached the store."""
    status: int = 0
    """HTTP status; 0 without an answer."""
    code: str = ""
    """The store's error code; empty without one."""

    @property
    def exists(self) -> bool:
        """Whether an object was there where one was to be created."""
        return self.status == 412 or self.code in _EXISTS

    @property
    def is_missing(self) -> bool:
        """Whether there is no such object."""
        return self.status == 404 and self.error.kind == "object-missing"


class RequestFailedError(Exception):
    """One request failed; for use within the adapter."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.error)


_EXISTS = frozenset(
    {"BlobAlreadyExists", "UnauthorizedBlobOverwrite", "PreconditionFailed", "ConditionNotMet"}
)
"""An account that may only create is told of a taken name by the second."""

_Meaning = tuple[str, str, str]
"""Kind, sentence, hint; {container}, {credentials} and {rights} stand for the cloud's words."""

_CONTAINER: _Meaning = (
    "bucket-missing",
    "the {container} does not exist",
    "create it, or correct its name; txnlog makes no {container}s",
)
_DENIED: _Meaning = ("permission-denied", "the store denies access", "{rights}")
_WRONG: _Meaning = ("credentials-invalid", "the store does not accept the credentials", "{credentials}")
_EXPIRED: _Meaning = (
    "credentials-expired",
    "the credentials have expired",
    "renew them, then open the log or start the query again; committed data is safe",
)
_MISSING: _Meaning = ("credentials-missing", "no credentials were found", "{credentials}")
_SKEW: _Meaning = (
    "clock-skew",
    "this machine's clock is too far from the store's time",
    "set the clock (NTP) and try again",
)
_CONDITION: _Meaning = (
    "unsupported-store",
    "the store does not know conditional requests",
    "use a store that creates an object only where there is none, in one step",
)
_UNREACHABLE: _Meaning = (
    "endpoint-unreachable",
    "the store cannot be reached",
    "check the network, the names in the URL, and the storage option endpoint_url",
)
_TLS: _Meaning = (
    "tls-failed",
    "the store's certificate is not accepted",
    "check endpoint_url, or set the storage option verify to the path of a CA bundle",
)
_SETTINGS: _Meaning = (
    "invalid-storage-option",
    "the client does not accept these storage options; nothing was sent",
    "see the cause, and the table of options in docs/storage.md",
)
_FULL: _Meaning = (
    "disk-full",
    "the store is full, or a quota is used up",
    "free space or raise the quota, then try again; committed data is safe",
)
_LOST: _Meaning = ("connection-lost", "the store gave no complete answer", "try again")
_NO_STORE: _Meaning = (
    "endpoint-no-store",
    "the server at the endpoint does not answer like the store",
    "check the storage option endpoint_url: another server, a portal or a proxy answers there",
)
_BUSY: _Meaning = ("store-unavailable", "the store is overloaded or failing", "try again")
_CONFLICT: _Meaning = ("store-conflict", "another request to the same object was in the way", "try again")
_REDIRECTED: _Meaning = (
    "endpoint-redirects",
    "the endpoint answers with a redirect to another place, which is not followed",
    "set the storage option endpoint_url to the store itself; a portal or a proxy may be in the way",
)
_ARCHIVED: _Meaning = (
    "object-archived",
    "the object is in an archive",
    "restore it; keep the log out of archiving rules",
)
_NO_OBJECT: _Meaning = ("object-missing", "there is no such object", "see the cause")
_OTHER: _Meaning = ("store-refused", "the store refused the request", "see the cause")

_CODES: Mapping[str, _Meaning] = {
    "ContainerNotFound": _CONTAINER,
    "ContainerBeingDeleted": _CONTAINER,
    "ContainerDisabled": _CONTAINER,
    "FilesystemNotFound": _CONTAINER,
    "NoSuchBucket": _CONTAINER,
    "AccountIsDisabled": _DENIED,
    "AuthorizationPermissionMismatch": _DENIED,
    "AuthorizationProtocolMismatch": _DENIED,
    "AuthorizationSourceIPMismatch": _DENIED,
    "InsufficientAccountPermissions": _DENIED,
    "AccessDenied": _DENIED,
    "UserProjectMissing": _DENIED,
    "AuthenticationFailed": _WRONG,
    "AuthorizationFailure": _WRONG,
    "InvalidAuthenticationInfo": _WRONG,
    "InvalidSecurity": _WRONG,
    "SignatureDoesNotMatch": _WRONG,
    "AuthenticationRequired": _WRONG,
    "NoAuthenticationInformation": _MISSING,
    "PublicAccessNotPermitted": _MISSING,
    "ExpiredToken": _EXPIRED,
    "RequestTimeTooSkewed": _SKEW,
    "NotImplemented": _CONDITION,
    "BlobArchived": _ARCHIVED,
    "BlobBeingRehydrated": _ARCHIVED,
    "InsufficientStorage": _FULL,
    "QuotaExceeded": _FULL,
}
_STATUSES: Mapping[int, _Meaning] = {
    400: _OTHER,
    401: _WRONG,
    403: _DENIED,
    404: _NO_OBJECT,
    408: _BUSY,
    409: _CONFLICT,
    429: _BUSY,
    507: _FULL,
}
_NOT_AN_OBJECT = frozenset(
    {"ContainerNotFound", "ContainerBeingDeleted", "FilesystemNotFound", "NoSuchBucket"}
)

_STATUS = re.compile(r"non-2xx status code: (\d{3})[^:\n]*: ?(.*)", re.DOTALL)
_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,64})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,1000})</Message>")
_DETAIL = re.compile(r"<(?:AuthenticationErrorDetail|Details)>([^<]{1,1000})<")
_PART = re.compile(r"\(code: (\d{3})\)")
_BROKEN = re.compile(r"HttpError \{\s*kind: (\w+)")
_CERTIFICATE = re.compile(
    r"certificate|UnknownIssuer|InvalidMessage|CertNotValid|HandshakeFailure", re.IGNORECASE
)
_TOKEN = re.compile(
    r"source: (?:TokenRequest|TokenResponseBody|Credential|AzureCli|FederatedTokenFile)\b|token request|credential error"
)
_SETTING = re.compile(
    r"Invalid ?Access ?Key|must be specified|Unable to (?:open|decode) service account|UnableToParseUrl|Unknown configuration|BadScheme|kind: Builder"
)
_OUT_OF_RANGE = re.compile(r"Wanted range starting at \d+, but object was only")
_CAUSE_CHARS_MAX = 600


def failure_of(
    error: BaseException, doing: str, where: str, words: Words, *, expired: bool = False
) -> Failure:
    """Return what ``error``, raised by obstore for one request, means.

    ``doing``: the request. ``where``: what it was about. ``expired``: the credentials themselves say that they are too old: the reason of a refusal.
    """
    text, _, debug = str(error).partition("\n\nDebug source:")
    text = text.strip()

    def told(
        meaning: _Meaning, refused: bool, sent: bool, status: int = 0, code: str = "", cause: str = text
    ) -> Failure:
        if expired and meaning in (_WRONG, _DENIED):
            meaning = _EXPIRED
        kind, what, hint = (part.format(**words._asdict()) for part in meaning)
        cls = UnsupportedStoreError if meaning is _CONDITION else StorageError
        transient = meaning in (_BUSY, _CONFLICT, _LOST, _UNREACHABLE)
        made = cls(
            what,
            kind=kind,
            hint=hint,
            transient=transient,
            object=where,
            request=doing,
            cause=cause[:_CAUSE_CHARS_MAX],
        )
        return Failure(made, refused, sent, status, code)

    answered = _STATUS.search(text)
    broken = _BROKEN.search(debug)
    if _TOKEN.search(text) or _TOKEN.search(debug):  # before the request itself
        return told(*_of_token(text, answered, broken))
    if _SETTING.search(text) or _SETTING.search(debug):
        return told(_SETTINGS, True, False)
    if answered is None and (part := _PART.search(text)) is not None:  # one of several in a batch
        status = int(part[1])
        return told(_STATUSES.get(status, _BUSY if status >= 500 else _OTHER), status < 500, True, status)
    if _OUT_OF_RANGE.search(text):  # obstore compares the range with the size that came with the answer
        return told(_OTHER, True, True, 416)
    if "redirect without LOCATION" in text:
        return told(_REDIRECTED, False, True)
    if answered is not None:
        return told(*_of_answer(int(answered[1]), answered[2]))
    if broken is not None and broken[1] == "Connect":
        return told(_TLS if _CERTIFICATE.search(debug) else _UNREACHABLE, True, False)
    # No answer, half of one, or one that makes no sense: the request may have been applied.
    return told(_LOST, False, True)


def _of_token(
    text: str, answered: re.Match[str] | None, broken: re.Match[str] | None
) -> tuple[_Meaning, bool, bool]:
    if "expired" in text.lower():
        return _EXPIRED, True, False
    if answered is None or re.search("metadata|/identity/|msi|service account file", text, re.IGNORECASE):
        return (_MISSING, True, False) if broken is None or broken[1] != "Timeout" else (_BUSY, True, False)
    status = int(answered[1])
    return (_BUSY if status >= 500 or status == 429 else _WRONG), True, False


def _of_answer(status: int, body: str) -> tuple[_Meaning, bool, bool, int, str, str]:
    found = _CODE.search(body)
    code = found[1] if found else ""
    said = " ".join(part[1].strip() for part in (_MESSAGE.search(body), _DETAIL.search(body)) if part)
    cause = " ".join(
        part for part in (str(status), code, said.replace("\n", " ") or body[:200].strip()) if part
    )
    open_end = status >= 500 or status in (408, 409, 429) or status < 300
    if 300 <= status < 400:
        # 303 is how a server sends on a client whose request it has carried out; the others say that it has not.
        return _REDIRECTED, status != 303, True, status, code, cause
    meaning = _CODES.get(code) or _STATUSES.get(status) or (_BUSY if open_end else _OTHER)
    if status == 404 and not code and body.strip():
        meaning = _NO_STORE
    if status in (400, 401, 403) and re.search(
        r"expire|not valid in the specified time", said, re.IGNORECASE
    ):
        meaning = _EXPIRED
    if status in (400, 403) and "date header too old" in said.lower():
        meaning = _SKEW
    if status == 409 and meaning in (_CONTAINER, _MISSING, _ARCHIVED):
        open_end = False
    return meaning, not open_end, True, status, code, cause

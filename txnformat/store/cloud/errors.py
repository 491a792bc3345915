"""The meaning for a user of an answer of a cloud, or of its absence, and what it proves about the request.

obstore's exceptions are texts: a sentence with the HTTP status and the body of the answer, and behind it a
description of the Rust values. The status, the store's error code and the kind of a broken connection are
read from there. A text that cannot be read proves nothing, so the outcome is then called unclear.

A request was *refused* only if the answer proves that it was not applied and never will be. A timeout, a
reset, 409, 429 and 5xx prove nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from txnformat.store.remote import answers
from txnformat.store.remote.answers import Failure, Meaning, Words, told

__all__ = ["failure_of", "is_missing", "name_is_taken"]


_EXISTS = frozenset(
    {"BlobAlreadyExists", "UnauthorizedBlobOverwrite", "PreconditionFailed", "ConditionNotMet"}
)
"""An account that may only create is told of a taken name by the second."""

_NO_OBJECT = Meaning("object-missing", "there is no such object", "see the cause")

_CODES: Mapping[str, Meaning] = {
    "ContainerNotFound": answers.CONTAINER,
    "ContainerBeingDeleted": answers.CONTAINER,
    "ContainerDisabled": answers.CONTAINER,
    "FilesystemNotFound": answers.CONTAINER,
    "NoSuchBucket": answers.CONTAINER,
    "AccountIsDisabled": answers.DENIED,
    "AuthorizationPermissionMismatch": answers.DENIED,
    "AuthorizationProtocolMismatch": answers.DENIED,
    "AuthorizationSourceIPMismatch": answers.DENIED,
    "InsufficientAccountPermissions": answers.DENIED,
    "AccessDenied": answers.DENIED,
    "UserProjectMissing": answers.DENIED,
    "AuthenticationFailed": answers.WRONG,
    "AuthorizationFailure": answers.WRONG,
    "InvalidAuthenticationInfo": answers.WRONG,
    "InvalidSecurity": answers.WRONG,
    "SignatureDoesNotMatch": answers.WRONG,
    "AuthenticationRequired": answers.WRONG,
    "NoAuthenticationInformation": answers.MISSING,
    "PublicAccessNotPermitted": answers.MISSING,
    "ExpiredToken": answers.EXPIRED,
    "RequestTimeTooSkewed": answers.SKEW,
    "NotImplemented": answers.CONDITION,
    "BlobArchived": answers.ARCHIVED,
    "BlobBeingRehydrated": answers.ARCHIVED,
    "InsufficientStorage": answers.FULL,
    "QuotaExceeded": answers.FULL,
}
_STATUSES: Mapping[int, Meaning] = {
    400: answers.OTHER,
    401: answers.WRONG,
    403: answers.DENIED,
    404: _NO_OBJECT,
    408: answers.BUSY,
    409: answers.CONFLICT,
    429: answers.BUSY,
    507: answers.FULL,
}

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
    r"source: (?:TokenRequest|TokenResponseBody|Credential|AzureCli|FederatedTokenFile)\b|token "
    r"request|credential error"
)
_SETTING = re.compile(
    r"Invalid ?Access ?Key|must be specified|Unable to (?:open|decode) service "
    r"account|UnableToParseUrl|Unknown configuration|BadScheme|kind: Builder"
)
_OUT_OF_RANGE = re.compile(r"Wanted range starting at \d+, but object was only")
_CAUSE_CHARS_MAX = 600


def failure_of(
    error: BaseException, doing: str, where: str, words: Words, *, expired: bool = False
) -> Failure:
    """Return what ``error``, raised by obstore for one request, means.

    ``doing``: the request. ``where``: what it was about. ``expired``: the credentials themselves say that
    they are too old: the reason of a refusal.
    """
    text, _, debug = str(error).partition("\n\nDebug source:")
    text = text.strip()

    def failure(
        meaning: Meaning, refused: bool, sent: bool, status: int = 0, code: str = "", cause: str = text
    ) -> Failure:
        if expired and meaning in (answers.WRONG, answers.DENIED):
            meaning = answers.EXPIRED
        transient = meaning in (answers.BUSY, answers.CONFLICT, answers.LOST, answers.UNREACHABLE)
        made = told(meaning, doing, where, cause[:_CAUSE_CHARS_MAX], words=words, transient=transient)
        return Failure(made, refused, sent, status, code)

    answered = _STATUS.search(text)
    broken = _BROKEN.search(debug)
    if _TOKEN.search(text) or _TOKEN.search(debug):  # before the request itself
        return failure(*_of_token(text, answered, broken))
    if _SETTING.search(text) or _SETTING.search(debug):
        return failure(answers.SETTINGS, True, False)
    if answered is None and (part := _PART.search(text)) is not None:  # one of several in a batch
        status = int(part[1])
        return failure(
            _STATUSES.get(status, answers.BUSY if status >= 500 else answers.OTHER),
            status < 500,
            True,
            status,
        )
    if _OUT_OF_RANGE.search(text):  # obstore compares the range with the size that came with the answer
        return failure(answers.OTHER, True, True, 416)
    if "redirect without LOCATION" in text:
        return failure(answers.REDIRECTED, False, True)
    if answered is not None:
        return failure(*_of_answer(int(answered[1]), answered[2]))
    if broken is not None and broken[1] == "Connect":
        return failure(answers.TLS if _CERTIFICATE.search(debug) else answers.UNREACHABLE, True, False)
    # No answer, half of one, or one that makes no sense: the request may have been applied.
    return failure(answers.LOST, False, True)


def name_is_taken(failure: Failure) -> bool:
    """Return whether an object was there where one was to be created."""
    return failure.status == 412 or failure.code in _EXISTS


def is_missing(failure: Failure) -> bool:
    """Return whether there is no such object."""
    return failure.status == 404 and failure.error.kind == _NO_OBJECT.kind


def _of_token(
    text: str, answered: re.Match[str] | None, broken: re.Match[str] | None
) -> tuple[Meaning, bool, bool]:
    if "expired" in text.lower():
        return answers.EXPIRED, True, False
    if answered is None or re.search("metadata|/identity/|msi|service account file", text, re.IGNORECASE):
        return (
            (answers.MISSING, True, False)
            if broken is None or broken[1] != "Timeout"
            else (answers.BUSY, True, False)
        )
    status = int(answered[1])
    return (answers.BUSY if status >= 500 or status == 429 else answers.WRONG), True, False


def _of_answer(status: int, body: str) -> tuple[Meaning, bool, bool, int, str, str]:
    found = _CODE.search(body)
    code = found[1] if found else ""
    said = " ".join(part[1].strip() for part in (_MESSAGE.search(body), _DETAIL.search(body)) if part)
    cause = " ".join(
        part for part in (str(status), code, said.replace("\n", " ") or body[:200].strip()) if part
    )
    open_end = status >= 500 or status in (408, 409, 429) or status < 300
    if 300 <= status < 400:
        # 303 is how a server sends on a client whose request it has carried out; the others say that it has
        # not.
        return answers.REDIRECTED, status != 303, True, status, code, cause
    meaning = _CODES.get(code) or _STATUSES.get(status) or (answers.BUSY if open_end else answers.OTHER)
    if status == 404 and not code and body.strip():
        meaning = answers.NO_STORE
    if status in (400, 401, 403) and re.search(
        r"expire|not valid in the specified time", said, re.IGNORECASE
    ):
        meaning = answers.EXPIRED
    if status in (400, 403) and "date header too old" in said.lower():
        meaning = answers.SKEW
    if status == 409 and meaning in (answers.CONTAINER, answers.MISSING, answers.ARCHIVED):
        open_end = False
    return meaning, not open_end, True, status, code, cause

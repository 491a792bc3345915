"""The meaning for a user of an answer of S3, or of its absence, and what it proves about the request.

A request was *refused* only if the answer proves that it was not applied and never will be. A timeout, a reset, 409,
429 and 5xx prove nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import aiohttp
from botocore import exceptions
from botocore.parsers import ResponseParserError

from txnformat.errors import StorageError, UnsupportedStoreError
from txnformat.store.s3.session import (
    AnswerTooLargeError,
    BadAnswerError,
    RedirectedError,
    WebPageError,
    regional_endpoint,
)

__all__ = ["REQUEST_ERRORS", "Failure", "RequestFailedError", "failure_of"]

REQUEST_ERRORS = (
    exceptions.BotoCoreError,
    exceptions.ClientError,
    ResponseParserError,
    aiohttp.ClientError,
    AnswerTooLargeError,
    BadAnswerError,
    RedirectedError,
    WebPageError,
    OSError,
)
"""The exceptions that a request may raise; OSError has the timeouts."""


class Failure(NamedTuple):
    """One failed request."""

    error: StorageError
    refused: bool
    """Proven: not applied, and never will be."""
    sent: bool
    """False: no byte of the request reached the store."""
    status: int = 0
    """HTTP status; 0 without an answer of S3."""
    code: str = ""
    """The store's error code; empty without one."""
    too_large: AnswerTooLargeError | None = None
    """The object in the answer had more bytes than it may have."""


class _Meaning(NamedTuple):
    kind: str
    what: str
    hint: str


_BUCKET = _Meaning(
    "bucket-missing", "the bucket does not exist", "create it, or correct its name; txnlog makes no buckets"
)
_DENIED = _Meaning(
    "permission-denied",
    "the store denies access",
    "reading needs s3:GetObject and s3:ListBucket, writing also s3:PutObject and s3:AbortMultipartUpload",
)
_WRONG = _Meaning(
    "credentials-invalid",
    "the store does not accept the credentials",
    "check the storage options key, secret and token, or where boto found them",
)
_EXPIRED = _Meaning(
    "credentials-expired",
    "the credentials have expired",
    "renew them, then open the log or start the query again; committed data is safe",
)
_MISSING = _Meaning(
    "credentials-missing",
    "no credentials were found",
    "pass the storage options key and secret, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile, "
    "or set anon to true for a public bucket",
)
_SKEW = _Meaning(
    "clock-skew", "this machine's clock is too far from the store's time", "set the clock (NTP) and try again"
)
_REGION = _Meaning(
    "region-wrong",
    "the bucket is in another region",
    "set the storage option region, or AWS_REGION; if this is no store of AWS, check endpoint_url",
)
_CONDITION = _Meaning(
    "unsupported-store",
    "the store does not know conditional requests",
    "use a store with atomic If-None-Match on PutObject",
)
_UNREACHABLE = _Meaning(
    "endpoint-unreachable",
    "the store cannot be reached",
    "check the network and the storage option endpoint_url",
)
_TLS = _Meaning(
    "tls-failed",
    "the store's certificate is not accepted",
    "check endpoint_url, or set the storage option verify to the path of a CA bundle",
)
_SETTINGS = _Meaning(
    "invalid-storage-option",
    "the S3 client does not accept this region or endpoint; nothing was sent",
    "check the storage options region and endpoint_url, AWS_REGION and AWS_ENDPOINT_URL, and ~/.aws/config",
)
_FULL = _Meaning(
    "disk-full",
    "the store is full, or a quota is used up",
    "free space or raise the quota, then try again; committed data is safe",
)
_LOST = _Meaning("connection-lost", "the store gave no complete answer", "try again")
_NOT_S3 = _Meaning(
    "endpoint-no-store",
    "the server at the endpoint does not answer like S3",
    "check the storage option endpoint_url: another server, a portal or a proxy answers there",
)
_BUSY = _Meaning("store-unavailable", "the store is overloaded or failing", "try again")
_CONFLICT = _Meaning("store-conflict", "another request to the same object was in the way", "try again")
_REDIRECTED = _Meaning(
    "endpoint-redirects",
    "the endpoint answers with a redirect to another place, which is not followed",
    "set the storage option endpoint_url to the store itself; a portal or a proxy may be in the way",
)
_TOO_LARGE = _Meaning(
    "answer-too-large",
    "the store's answer has more bytes than any answer to this request",
    "check the storage option endpoint_url: the server there is no object store, or is broken",
)
_ARCHIVED = _Meaning(
    "object-archived", "the object is in an archive", "restore it; keep the log out of archiving rules"
)
_OTHER = _Meaning("store-refused", "the store refused the request", "see the cause")

_CODES = {
    "NoSuchBucket": _BUCKET,
    "AccessDenied": _DENIED,
    "AllAccessDisabled": _DENIED,
    "AccountProblem": _DENIED,
    "Forbidden": _DENIED,
    "InvalidAccessKeyId": _WRONG,
    "SignatureDoesNotMatch": _WRONG,
    "InvalidToken": _WRONG,
    "InvalidClientTokenId": _WRONG,
    "InvalidSecurity": _WRONG,
    "NotSignedUp": _WRONG,
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "RequestTimeTooSkewed": _SKEW,
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "NotImplemented": _CONDITION,
    "InvalidObjectState": _ARCHIVED,
    "QuotaExceeded": _FULL,
    "InsufficientStorage": _FULL,
    "XMinioStorageFull": _FULL,
    "XMinioAdminBucketQuotaExceeded": _FULL,
    "RequestTimeout": _BUSY,
    "SlowDown": _BUSY,
    "ConditionalRequestConflict": _CONFLICT,
}
_STATUSES = {
    301: _REGION,
    400: _OTHER,
    401: _DENIED,
    403: _DENIED,
    409: _CONFLICT,
    429: _BUSY,
    507: _FULL,
}

_UNSENT: tuple[tuple[tuple[type[Exception], ...], _Meaning], ...] = (
    ((exceptions.InvalidRegionError, exceptions.EndpointProviderError), _SETTINGS),
    ((exceptions.SSLError,), _TLS),
    ((exceptions.ParamValidationError,), _OTHER),
)

_NO_CREDENTIALS = (
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.ProfileNotFound,
    exceptions.SSOError,
    exceptions.TokenRetrievalError,
)


class RequestFailedError(Exception):
    """One request failed; for use within the adapter."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.error)


_SILENT = "the endpoint takes requests and does not answer"
_SILENT_HINT = (
    "check that a store that speaks S3 answers at this endpoint (storage option endpoint_url; http or https), and the "
    "network; request_timeout_s says how long to wait"
)


def failure_of(error: BaseException, doing: str, url: str, unproven: str | None = None) -> Failure:
    """Return what ``error``, raised by one request that was sent once, means.

    ``doing``: the S3 operation. ``url``: what it was about. ``unproven``: the endpoint, if nothing there has ever answered
    like S3; a mistake in its name is then the likely cause.
    """
    failure = _failure_of(error, doing, url)
    told = failure.error
    if unproven is None or told.kind not in (_LOST.kind, _NOT_S3.kind):
        return failure
    is_foreign = told.kind == _NOT_S3.kind
    is_late = isinstance(error, TimeoutError | exceptions.ReadTimeoutError)
    named = StorageError(
        _SILENT if is_late else told.what,
        kind=told.kind,
        hint=told.hint if is_foreign else _SILENT_HINT,
        transient=not is_foreign,
        endpoint=unproven,
        **told.values,
    )
    return failure._replace(error=named)


def _failure_of(error: BaseException, doing: str, url: str) -> Failure:
    if isinstance(error, exceptions.ClientError):
        return _answered(error, doing, url)
    if isinstance(error, WebPageError):
        # A page in place of the answer to a request proves nothing if it is a success, or if S3 answered here before.
        return Failure(_error(_NOT_S3, doing, url, str(error), transient=True), error.status >= 400, True)
    if isinstance(error, RedirectedError):
        return _redirected(error, doing, url)
    if isinstance(error, AnswerTooLargeError):
        # The answer's length says nothing about what the request did.
        failure = Failure(_error(_TOO_LARGE, doing, url, str(error)), False, True)
        return failure._replace(too_large=error) if error.of_object else failure
    if isinstance(error, _NO_CREDENTIALS):
        expired = "expire" in str(error).lower()
        return Failure(_error(_EXPIRED if expired else _MISSING, doing, url, str(error)), True, False)
    for kinds, meaning in _UNSENT:
        if isinstance(error, kinds):
            return Failure(_error(meaning, doing, url, str(error)), True, False)
    if isinstance(error, exceptions.ConnectTimeoutError | exceptions.ProxyConnectionError):
        return Failure(_error(_UNREACHABLE, doing, url, str(error), transient=True), True, False)
    if isinstance(error, exceptions.EndpointConnectionError):
        # aiobotocore gives a connection that was refused and one that broke in mid-request the same name.
        inner = error.kwargs.get("error")
        if isinstance(inner, aiohttp.ClientConnectorError):
            # boto's text has the endpoint, aiohttp's says why: no such name, or no server listens.
            cause = f"{error} ({inner})"
            return Failure(_error(_UNREACHABLE, doing, url, cause, transient=True), True, False)
        return Failure(_error(_LOST, doing, url, str(error), transient=True), False, True)
    if isinstance(
        error, exceptions.HTTPClientError | aiohttp.ClientError | OSError | exceptions.ResponseStreamingError
    ):
        return Failure(_error(_LOST, doing, url, repr(error), transient=True), False, True)
    # An answer that cannot be parsed, above all: the request may have been applied.
    return Failure(_error(_LOST, doing, url, repr(error), transient=True), False, True)


def _answered(error: exceptions.ClientError, doing: str, url: str) -> Failure:
    answer = error.response
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = str(answer.get("Error", {}).get("Code", ""))
    message = str(answer.get("Error", {}).get("Message", ""))
    # RequestTimeout is a 400: the store waited for bytes, so its answer proves nothing.
    open_end = status >= 500 or status in (0, 200, 408, 409, 429) or code in ("RequestTimeout", "SlowDown")
    if code == "NotImplemented":
        open_end = False
    if status == 404 and doing != "head_object" and _is_no_s3(answer, code):
        return Failure(_error(_NOT_S3, doing, url, f"{status} {message}", transient=True), True, True)
    meaning = _CODES.get(code) or _STATUSES.get(status) or (_BUSY if open_end else _OTHER)
    if "expired" in f"{code} {message}".lower() and status in (400, 401, 403):
        meaning = _EXPIRED
    cause = " ".join(part for part in (str(status), code, message) if part)
    # A full store stays full, so no call waits for it; but a 507 may come when parts of an object have been written.
    transient = open_end and meaning is not _FULL
    return Failure(_error(meaning, doing, url, cause, transient=transient), not open_end, True, status, code)


def _is_no_s3(answer: Mapping[str, Any], code: str) -> bool:
    """Return whether an error says something, without S3's document and S3's headers: botocore makes the code of the status."""
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    is_told = headers.get("content-length") != "0"
    return is_told and code in ("", "404") and not any(name.lower().startswith("x-amz") for name in headers)


def _redirected(error: RedirectedError, doing: str, url: str) -> Failure:
    is_of_region = error.region or regional_endpoint(error) or error.status == 301
    values = {"region": error.region} if error.region else {}
    values["redirect"] = f"to {error.host or 'an address that cannot be shown'}, not followed"
    failure = _error(
        _REGION if is_of_region else _REDIRECTED, doing, url, f"HTTP {error.status}", values=values
    )
    # 303 is how a server sends on a client whose request it has carried out; the others say that it has not.
    return Failure(failure, error.status != 303, True, error.status)


def _error(
    meaning: _Meaning,
    doing: str,
    url: str,
    cause: str,
    *,
    transient: bool = False,
    values: Mapping[str, str] | None = None,
) -> StorageError:
    kind = UnsupportedStoreError if meaning is _CONDITION else StorageError
    return kind(
        meaning.what,
        kind=meaning.kind,
        hint=meaning.hint,
        transient=transient,
        object=url,
        request=doing,
        cause=cause,
        **(values or {}),
    )

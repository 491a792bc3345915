"""The meaning for a user of an answer of S3, or of its absence, and what it proves about the request.

A request was *refused* only if the answer proves that it was not applied and never will be. A timeout, a
reset, 409, 429 and 5xx prove nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import aiohttp
from botocore import exceptions
from botocore.parsers import ResponseParserError

from txnformat.errors import StorageError
from txnformat.store.remote import answers
from txnformat.store.remote.answers import AnswerTooLargeError, Failure, Meaning, Words, told
from txnformat.store.s3.session import (
    BadAnswerError,
    RedirectedError,
    WebPageError,
    regional_endpoint,
)

__all__ = ["REQUEST_ERRORS", "failure_of"]

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


_WORDS = Words(
    container="bucket",
    credentials="pass the storage options key and secret, set AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, name a profile, "
    "or set anon to true for a public bucket",
    rights="reading needs s3:GetObject and s3:ListBucket, writing also s3:PutObject and "
    "s3:AbortMultipartUpload",
)
_error = partial(told, words=_WORDS)
_WRONG = answers.WRONG._replace(
    hint="check the storage options key, secret and token, or where boto found them"
)
_REGION = Meaning(
    "region-wrong",
    "the bucket is in another region",
    "set the storage option region, or AWS_REGION; if the store is not on AWS, check endpoint_url",
)
_CONDITION = answers.CONDITION._replace(hint="use a store with atomic If-None-Match on PutObject")
_UNREACHABLE = answers.UNREACHABLE._replace(hint="check the network and the storage option endpoint_url")
_SETTINGS = answers.SETTINGS._replace(
    what="the S3 client does not accept this region or endpoint; nothing was sent",
    hint="check the storage options region and endpoint_url, AWS_REGION and AWS_ENDPOINT_URL, and "
    "~/.aws/config",
)
_NOT_S3 = answers.NO_STORE._replace(what="the server at the endpoint does not answer like S3")
_TOO_LARGE = Meaning(
    "answer-too-large",
    "the store's answer has more bytes than any answer to this request",
    "check the storage option endpoint_url: the server there is no object store, or is broken",
)

_CODES = {
    "NoSuchBucket": answers.CONTAINER,
    "AccessDenied": answers.DENIED,
    "AllAccessDisabled": answers.DENIED,
    "AccountProblem": answers.DENIED,
    "Forbidden": answers.DENIED,
    "InvalidAccessKeyId": _WRONG,
    "SignatureDoesNotMatch": _WRONG,
    "InvalidToken": _WRONG,
    "InvalidClientTokenId": _WRONG,
    "InvalidSecurity": _WRONG,
    "NotSignedUp": _WRONG,
    "ExpiredToken": answers.EXPIRED,
    "ExpiredTokenException": answers.EXPIRED,
    "TokenRefreshRequired": answers.EXPIRED,
    "RequestTimeTooSkewed": answers.SKEW,
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "NotImplemented": _CONDITION,
    "InvalidObjectState": answers.ARCHIVED,
    "QuotaExceeded": answers.FULL,
    "InsufficientStorage": answers.FULL,
    "XMinioStorageFull": answers.FULL,
    "XMinioAdminBucketQuotaExceeded": answers.FULL,
    "RequestTimeout": answers.BUSY,
    "SlowDown": answers.BUSY,
    "ConditionalRequestConflict": answers.CONFLICT,
}
_STATUSES = {
    301: _REGION,
    400: answers.OTHER,
    401: answers.DENIED,
    403: answers.DENIED,
    409: answers.CONFLICT,
    429: answers.BUSY,
    507: answers.FULL,
}

_UNSENT: tuple[tuple[tuple[type[Exception], ...], Meaning], ...] = (
    ((exceptions.InvalidRegionError, exceptions.EndpointProviderError), _SETTINGS),
    ((exceptions.SSLError,), answers.TLS),
    ((exceptions.ParamValidationError,), answers.OTHER),
)

_NO_CREDENTIALS = (
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.ProfileNotFound,
    exceptions.SSOError,
    exceptions.TokenRetrievalError,
)


_SILENT = "the endpoint takes requests and does not answer"
_SILENT_HINT = (
    "check that a store that speaks S3 answers at this endpoint (storage option endpoint_url; http or "
    "https), and the "
    "network; request_timeout_s says how long to wait"
)


def failure_of(error: BaseException, doing: str, url: str, unproven: str | None = None) -> Failure:
    """Return what ``error``, raised by one request that was sent once, means.

    ``doing``: the S3 operation. ``url``: what it was about. ``unproven``: the endpoint, if nothing there has
    ever answered like S3; a mistake in its name is then the likely cause.
    """
    failure = _failure_of(error, doing, url)
    said = failure.error
    if unproven is None or said.kind not in (answers.LOST.kind, _NOT_S3.kind):
        return failure
    is_foreign = said.kind == _NOT_S3.kind
    is_late = isinstance(error, TimeoutError | exceptions.ReadTimeoutError)
    named = StorageError(
        _SILENT if is_late else said.what,
        kind=said.kind,
        hint=said.hint if is_foreign else _SILENT_HINT,
        transient=not is_foreign,
        endpoint=unproven,
        **said.values,
    )
    return failure._replace(error=named)


def _failure_of(error: BaseException, doing: str, url: str) -> Failure:
    if isinstance(error, exceptions.ClientError):
        return _answered(error, doing, url)
    if isinstance(error, WebPageError):
        # A page in place of the answer to a request proves nothing if it is a success, or if S3 answered here
        # before.
        return Failure(_error(_NOT_S3, doing, url, str(error), transient=True), error.status >= 400, True)
    if isinstance(error, RedirectedError):
        return _redirected(error, doing, url)
    if isinstance(error, AnswerTooLargeError):
        # The answer's length says nothing about what the request did.
        failure = Failure(_error(_TOO_LARGE, doing, url, str(error)), False, True)
        return failure._replace(too_large=error) if error.of_object else failure
    if isinstance(error, _NO_CREDENTIALS):
        expired = "expire" in str(error).lower()
        return Failure(
            _error(answers.EXPIRED if expired else answers.MISSING, doing, url, str(error)), True, False
        )
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
        return Failure(_error(answers.LOST, doing, url, str(error), transient=True), False, True)
    if isinstance(
        error, exceptions.HTTPClientError | aiohttp.ClientError | OSError | exceptions.ResponseStreamingError
    ):
        return Failure(_error(answers.LOST, doing, url, repr(error), transient=True), False, True)
    # An answer that cannot be parsed, above all: the request may have been applied.
    return Failure(_error(answers.LOST, doing, url, repr(error), transient=True), False, True)


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
    meaning = _CODES.get(code) or _STATUSES.get(status) or (answers.BUSY if open_end else answers.OTHER)
    if "expired" in f"{code} {message}".lower() and status in (400, 401, 403):
        meaning = answers.EXPIRED
    cause = " ".join(part for part in (str(status), code, message) if part)
    # A full store stays full, so no call waits for it; but a 507 may come when parts of an object have been
    # written.
    transient = open_end and meaning is not answers.FULL
    return Failure(_error(meaning, doing, url, cause, transient=transient), not open_end, True, status, code)


def _is_no_s3(answer: Mapping[str, Any], code: str) -> bool:
    """Return whether an error says something, without S3's document and S3's headers: botocore makes the code
    of the status.
    """
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    is_told = headers.get("content-length") != "0"
    return is_told and code in ("", "404") and not any(name.lower().startswith("x-amz") for name in headers)


def _redirected(error: RedirectedError, doing: str, url: str) -> Failure:
    is_of_region = error.region or regional_endpoint(error) or error.status == 301
    values = {"region": error.region} if error.region else {}
    values["redirect"] = f"to {error.host or 'an address that cannot be shown'}, not followed"
    failure = _error(
        _REGION if is_of_region else answers.REDIRECTED, doing, url, f"HTTP {error.status}", values=values
    )
    # 303 is how a server sends on a client whose request it has carried out; the others say that it has not.
    return Failure(failure, error.status != 303, True, error.status)

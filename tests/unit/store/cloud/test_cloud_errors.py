"""The meaning of a cloud's answers, and the proof that they give about the request: texts as obstore 0.12.1
writes them."""

from __future__ import annotations

import pytest

from txnformat.store.cloud.azure import AzureStore
from txnformat.store.cloud.errors import failure_of, name_is_taken

PUT = "Error performing PUT http://h/c/a in 3ms - "


def _answer(status: str, body: str) -> str:
    return (
        f"Generic MicrosoftAzure error: {PUT}Server returned non-2xx status code: {status}: "
        f"{body}\n\nDebug source:\nGeneric {{}}"
    )


def _document(code: str, message: str = "said.") -> str:
    return (
        '<?xml version="1.0" '
        f'encoding="utf-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
    )


def _broken(kind: str, inner: str = "") -> str:
    return (
        f"Generic MicrosoftAzure error: {PUT}HTTP error: error sending request\n\nDebug source:\nGeneric {{\n"
        f"    inner: Http(\n        HttpError {{\n            kind: {kind},\n            source: {inner}\n"
    )


TOKEN = (
    "Generic GCS error: Error performing token request: Error performing GET "
    "http://169.254.169.254/computeMetadata/v1/x in 1ms - "
)


LOGIN = (
    "Generic MicrosoftAzure error: Error performing token request: Error performing POST "
    "https://login/t/oauth2/v2.0/token in 1ms - "
    "Server returned non-2xx status code: "
)


@pytest.mark.parametrize(
    ("text", "kind", "refused", "sent"),
    [
        (_answer("404 Not Found", _document("ContainerNotFound")), "bucket-missing", True, True),
        (_answer("404 Not Found", _document("NoSuchBucket")), "bucket-missing", True, True),
        (_answer("404 Not Found", _document("BlobNotFound")), "object-missing", True, True),
        (_answer("404 Not Found", ""), "object-missing", True, True),
        (_answer("404 Not Found", "<html>a portal</html>"), "endpoint-no-store", True, True),
        (_answer("403 Forbidden", _document("AuthenticationFailed")), "credentials-invalid", True, True),
        (
            _answer(
                "403 Forbidden",
                _document("AuthenticationFailed", "Signature not valid in the specified time frame"),
            ),
            "credentials-expired",
            True,
            True,
        ),
        (
            _answer(
                "401 Unauthorized",
                _document("InvalidAuthenticationInfo", "Lifetime validation failed. The token is expired."),
            ),
            "credentials-expired",
            True,
            True,
        ),
        (
            _answer("403 Forbidden", _document("AuthenticationFailed", "Request date header too old")),
            "clock-skew",
            True,
            True,
        ),
        (
            _answer("403 Forbidden", _document("AuthorizationPermissionMismatch")),
            "permission-denied",
            True,
            True,
        ),
        (_answer("403 Forbidden", _document("AccessDenied")), "permission-denied", True, True),
        (_answer("409 Conflict", _document("PublicAccessNotPermitted")), "credentials-missing", True, True),
        (_answer("409 Conflict", _document("ContainerBeingDeleted")), "bucket-missing", True, True),
        (_answer("409 Conflict", _document("BlobAlreadyExists")), "store-conflict", False, True),
        (_answer("409 Conflict", ""), "store-conflict", False, True),
        (_answer("412 Precondition Failed", _document("PreconditionFailed")), "store-refused", True, True),
        (_answer("429 Too Many Requests", ""), "store-unavailable", False, True),
        (_answer("408 Request Timeout", ""), "store-unavailable", False, True),
        (
            _answer("500 Internal Server Error", _document("OperationTimedOut")),
            "store-unavailable",
            False,
            True,
        ),
        (_answer("503 Service Unavailable", _document("ServerBusy")), "store-unavailable", False, True),
        (_answer("507 Insufficient Storage", ""), "disk-full", False, True),
        (_answer("501 Not Implemented", _document("NotImplemented")), "unsupported-store", False, True),
        (_answer("307 Temporary Redirect", ""), "endpoint-redirects", True, True),
        (_answer("303 See Other", ""), "endpoint-redirects", False, True),
        (_broken("Connect", 'ConnectError("tcp connect error")'), "endpoint-unreachable", True, False),
        (_broken("Connect", "InvalidCertificate(UnknownIssuer)"), "tls-failed", True, False),
        (_broken("Timeout", "TimedOut"), "connection-lost", False, True),
        (_broken("Request", "IncompleteMessage"), "connection-lost", False, True),
        (_broken("Interrupted"), "connection-lost", False, True),
        (_broken("Unknown"), "connection-lost", False, True),
        (
            "Generic GCS error: Unable to extract metadata from headers: ETag Header missing",
            "connection-lost",
            False,
            True,
        ),
        ("a sentence of another version", "connection-lost", False, True),
        ("", "connection-lost", False, True),
        (
            TOKEN + "HTTP error: error sending request\n\nDebug source:\nkind: Connect",
            "credentials-missing",
            True,
            False,
        ),
        (
            TOKEN + "Server returned non-2xx status code: 403 Forbidden: no",
            "credentials-missing",
            True,
            False,
        ),
        (
            LOGIN + '401 Unauthorized: {"error":"invalid_client"}',
            "credentials-invalid",
            True,
            False,
        ),
        (
            LOGIN + "401 Unauthorized: AADSTS7000222: The provided client secret keys are expired",
            "credentials-expired",
            True,
            False,
        ),
        (
            (
                "Generic GCS error: GCP credential error: Unable to open service account file from /k: No "
                "such file"
            ),
            "credentials-missing",
            True,
            False,
        ),
        (
            "Generic MicrosoftAzure error: Invalid Access Key: Invalid symbol",
            "invalid-storage-option",
            True,
            False,
        ),
    ],
)
def test_what_an_answer_means_and_proves(text: str, kind: str, refused: bool, sent: bool) -> None:
    failure = failure_of(Exception(text), "create", "az://c/a", AzureStore.words)
    assert (failure.error.kind, failure.refused, failure.sent) == (kind, refused, sent)
    assert failure.error.transient == (
        kind in {"store-unavailable", "store-conflict", "connection-lost", "endpoint-unreachable"}
    )
    assert "{" not in (failure.error.hint or "")
    assert "Debug" not in str(failure.error)


@pytest.mark.parametrize(
    ("text", "exists"),
    [
        (_answer("409 Conflict", _document("BlobAlreadyExists")), True),
        (_answer("403 Forbidden", _document("UnauthorizedBlobOverwrite")), True),
        (_answer("412 Precondition Failed", ""), True),
        (_answer("409 Conflict", _document("LeaseAlreadyPresent")), False),
        (_answer("409 Conflict", ""), False),
        (_answer("200 OK", ""), False),
    ],
)
def test_which_answers_say_that_an_object_is_there(text: str, exists: bool) -> None:
    failure = failure_of(Exception(text), "create", "az://c/a", AzureStore.words)
    assert name_is_taken(failure) is exists


def test_credentials_that_say_themselves_that_they_are_over() -> None:
    text = _answer("403 Forbidden", _document("AuthenticationFailed"))
    failure = failure_of(Exception(text), "create", "az://c/a", AzureStore.words, expired=True)
    assert failure.error.kind == "credentials-expired"

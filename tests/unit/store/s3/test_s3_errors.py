"""What answers of S3 mean, and what they prove."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    CredentialRetrievalError,
    EndpointResolutionError,
    InvalidRegionError,
    NoCredentialsError,
    ReadTimeoutError,
    SSLError,
)

from txnformat.errors import UnsupportedStoreError
from txnformat.store.s3.errors import failure_of


def _answer(status: int, code: str, message: str = "") -> ClientError:
    response = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(response, "PutObject")


@pytest.mark.parametrize(
    ("error", "kind", "refused"),
    [
        (_answer(403, "AccessDenied"), "permission-denied", True),
        (_answer(403, "InvalidAccessKeyId"), "credentials-invalid", True),
        (_answer(403, "SignatureDoesNotMatch"), "credentials-invalid", True),
        (_answer(400, "ExpiredToken"), "credentials-expired", True),
        (_answer(403, "AccessDenied", "Request has expired"), "credentials-expired", True),
        (_answer(403, "RequestTimeTooSkewed"), "clock-skew", True),
        (_answer(404, "NoSuchBucket"), "bucket-missing", True),
        (_answer(301, "PermanentRedirect"), "region-wrong", True),
        (_answer(400, "AuthorizationHeaderMalformed"), "region-wrong", True),
        (_answer(400, "EntityTooLarge"), "store-refused", True),
        (_answer(501, "NotImplemented"), "unsupported-store", True),
        (_answer(403, "QuotaExceeded"), "disk-full", True),
        (_answer(400, "XMinioAdminBucketQuotaExceeded"), "disk-full", True),
        (_answer(400, "RequestTimeout"), "store-unavailable", False),
        (_answer(409, "ConditionalRequestConflict"), "store-conflict", False),
        (_answer(409, "OperationAborted"), "store-conflict", False),
        (_answer(429, "TooManyRequests"), "store-unavailable", False),
        (_answer(503, "SlowDown"), "store-unavailable", False),
        (_answer(500, "InternalError"), "store-unavailable", False),
        (_answer(200, "InternalError"), "store-unavailable", False),
        (NoCredentialsError(), "credentials-missing", True),
        (
            CredentialRetrievalError(provider="sso", error_msg="the token has expired"),
            "credentials-expired",
            True,
        ),
        (SSLError(endpoint_url="https://h", error="certificate"), "tls-failed", True),
        (InvalidRegionError(region_name="x y"), "invalid-storage-option", True),
        (EndpointResolutionError(msg="no URI"), "invalid-storage-option", True),
        (ReadTimeoutError(endpoint_url="https://h"), "connection-lost", False),
        (ConnectionClosedError(endpoint_url="https://h"), "connection-lost", False),
        (ConnectionResetError(), "connection-lost", False),
        (TimeoutError(), "connection-lost", False),
    ],
    ids=str,
)
def test_only_a_proof_is_a_refusal(error: Exception, kind: str, refused: bool) -> None:
    failure = failure_of(error, "put_object", "s3://b/k")
    assert (failure.error.kind, failure.refused) == (kind, refused)
    assert failure.error.transient is not refused
    assert isinstance(failure.error, UnsupportedStoreError) == (kind == "unsupported-store")
    assert "s3://b/k" in str(failure.error)


@pytest.mark.parametrize("code", ["XMinioStorageFull", "InsufficientStorage", "507"])
def test_a_full_store_is_not_waited_for_and_proves_nothing(code: str) -> None:
    failure = failure_of(_answer(507, code), "put_object", "s3://b/k")
    assert (failure.error.kind, failure.refused, failure.error.transient) == ("disk-full", False, False)


def test_an_endpoint_that_never_answered_is_named_with_what_to_check() -> None:
    late = failure_of(TimeoutError(), "get_object", "s3://b/k", "http://h:9")
    assert (late.refused, late.error.kind, late.error.transient) == (False, "connection-lost", True)
    assert late.error.what == "the endpoint takes requests and does not answer"
    assert late.error.values["endpoint"] == "http://h:9"
    assert "request_timeout_s" in (late.error.hint or "")
    other = failure_of(_answer(503, "SlowDown"), "get_object", "s3://b/k", "http://h:9")
    assert "endpoint" not in other.error.values, "S3 has answered"

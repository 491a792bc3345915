"""Storage options of S3: a mapping of text to text, with the names that s3fs, deltalake and boto users know.

Values never show: not in reprs, not in errors. Options that are absent come from where boto looks for them:
the ``AWS_*`` environment variables, ``~/.aws``, or the machine's role.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from txnformat.store.options import RemoteOptions, check_environment, own_value

__all__ = ["S3Options", "check_credentials", "own_endpoint"]

_WITH_CUSTOMER_KEY = frozenset(
    {
        "get_object",
        "head_object",
        "put_object",
        "create_multipart_upload",
        "upload_part",
        "complete_multipart_upload",
    }
)
"""Requests that need the key of an object."""

_ADDRESSING = ("auto", "path", "virtual")
_REGION = re.compile(r"(?!-)(?![0-9]+\Z)[A-Za-z0-9-]{1,63}(?<!-)")  # what botocore takes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class S3Options(RemoteOptions):
    """Options of S3; without credentials among them, those that boto finds are used."""

    aliases: ClassVar[Mapping[str, str]] = {
        "access_key_id": "key",
        "aws_access_key_id": "key",
        "access.key": "key",
        "secret.key": "secret",
        "session.token": "token",
        "aws_secret_access_key": "secret",
        "secret_access_key": "secret",
        "aws_session_token": "token",
        "session_token": "token",
        "aws_profile": "profile",
        "aws_endpoint": "endpoint_url",
        "aws_endpoint_url": "endpoint_url",
        "endpoint": "endpoint_url",
        "aws_default_region": "region",
        "aws_region": "region",
        "region_name": "region",
        "skip_signature": "anon",
        "aws_skip_signature": "anon",
        "aws_server_side_encryption": "server_side_encryption",
        "aws_sse_kms_key_id": "sse_kms_key_id",
        "aws_sse_customer_key_base64": "sse_customer_key",
        "sse_customer_key_base64": "sse_customer_key",
    }
    secrets: ClassVar[Sequence[str]] = ("secret", "token", "sse_customer_key", "key")

    key: str | None = None
    """Access key id."""
    secret: str | None = None
    token: str | None = None
    """Session token of temporary credentials."""
    profile: str | None = None
    """Name of a profile in ``~/.aws``."""
    anon: bool = False
    """Requests are not signed: public buckets."""
    endpoint_url: str | None = None
    """``http(s)://host[:port]`` of a store that is not AWS."""
    region: str | None = None
    addressing_style: str = "auto"
    """Where the bucket's name goes: ``path``, ``virtual`` (host name), or ``auto``."""
    requester_pays: bool = False
    verify: bool | str = True
    """Whether TLS certificates are checked, or the path of a CA bundle to check them with."""
    connect_timeout_s: float = 5.0
    """Seconds until a connection must stand."""
    read_timeout_s: float = 20.0
    """Seconds without a byte of an answer after which a request counts as lost."""
    request_timeout_s: float = 60.0
    """Seconds that one request may take in all, and one more for each 64 KiB that it sends or receives; and a
    call, with its repeats and pauses, before it is not repeated any more."""
    region_redirect: bool = False
    """Whether a 307 of AWS is tried again at the regional endpoint of AWS that it names."""
    server_side_encryption: str | None = None
    """``AES256``, ``aws:kms``, …; the bucket's default without it."""
    sse_kms_key_id: str | None = None
    sse_customer_key: str | None = None
    """Key of 256 bits, in base64, that every request for an object brings along (SSE-C)."""

    @classmethod
    def value(cls, name: str, text: str, problems: list[str]) -> Any:
        """See :meth:`RemoteOptions.value`."""
        match name:
            case "requester_pays" | "region_redirect":
                return own_value("true-or-false", name, text, problems)
            case "addressing_style":
                if text.lower() not in _ADDRESSING:
                    problems.append(f"storage option {name} must be one of {', '.join(_ADDRESSING)}")
                return text.lower()
            case "sse_customer_key":
                return own_value("customer-key", name, text, problems)
            case "region":
                if not _REGION.fullmatch(text):
                    problems.append(
                        "storage option region must be a name of letters, digits and -, such as eu-west-1"
                    )
                return text
            case _:
                return super(S3Options, cls).value(name, text, problems)

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> list[str]:
        """See :meth:`RemoteOptions.contradictions`."""
        found = []
        if ("key" in values) != ("secret" in values):
            found.append("give the storage options key and secret both, or neither")
        if "token" in values and "key" not in values:
            found.append("storage option token needs key and secret")
        if values.get("anon") and values.keys() & {"key", "profile"}:
            found.append("storage option anon excludes key, secret, token and profile")
        if "sse_customer_key" in values and values.keys() & {"server_side_encryption", "sse_kms_key_id"}:
            found.append("storage option sse_customer_key excludes server_side_encryption and sse_kms_key_id")
        return found

    def object_arguments(self, operation: str) -> dict[str, Any]:
        """Return the arguments of every request that carries an object, or asks for it."""
        if self.sse_customer_key is None or operation not in _WITH_CUSTOMER_KEY:
            return {}
        # botocore adds the hash of the key.
        return {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": base64.b64decode(self.sse_customer_key)}

    def write_arguments(self) -> dict[str, Any]:
        """Return the arguments of every request that makes an object."""
        found = {"ServerSideEncryption": self.server_side_encryption, "SSEKMSKeyId": self.sse_kms_key_id}
        return {name: value for name, value in found.items() if value is not None}


def own_endpoint(environment: Mapping[str, str]) -> str | None:
    """Return the endpoint that the environment names, as boto reads it."""
    return environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or None


def check_credentials(options: S3Options, environment: Mapping[str, str]) -> None:
    """See :func:`~txnformat.store.options.check_environment`."""
    names_credentials = options.key or options.anon or options.profile
    check_environment(
        options.endpoint_url,
        own_endpoint(environment),
        bool(environment.get("AWS_ACCESS_KEY_ID")) and not names_credentials,
        "pass the storage options key and secret for this endpoint, name a profile, or set anon to true",
        environment="AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL",
    )

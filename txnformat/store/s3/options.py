"""Storage options of S3: a mapping of text to text, with the names that s3fs, deltalake and boto users know.

Values never show: not in reprs, not in errors. Options that are absent come from where boto looks for them: the
``AWS_*`` environment variables, ``~/.aws``, or the machine's role.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from txnformat.errors import InvalidInputError, StorageError
from txnformat.store.options import own_value, parsed, same_endpoint
from txnformat.store.secrets import CHARS_MIN, hidden, masked

__all__ = [
    "OPTION_NAMES",
    "S3Options",
    "canonical",
    "check_environment",
    "own_endpoint",
    "parse_s3_options",
]

_ALIASES = {
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


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """Parsed options; hashable, so that one process makes one connection for equal ones."""

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
    """Seconds that one request may take in all, and one more for each 64 KiB that it sends or receives; and a call, with its
    repeats and pauses, before it is not repeated any more."""
    region_redirect: bool = False
    """Whether a 307 of AWS is tried again at the regional endpoint of AWS that it names."""
    server_side_encryption: str | None = None
    """``AES256``, ``aws:kms``, …; the bucket's default without it."""
    sse_kms_key_id: str | None = None
    sse_customer_key: str | None = None
    """Key of 256 bits, in base64, that every request for an object brings along (SSE-C)."""

    def __repr__(self) -> str:
        given = [each.name for each in fields(self) if getattr(self, each.name) != each.default]
        return f"S3Options({', '.join(f'{name}=…' for name in given)})"

    def mask(self, text: str) -> str:
        """Return ``text`` without the credentials; also those that boto found elsewhere."""
        for value in self.secret_values():
            if value and len(value) >= CHARS_MIN:
                text = hidden(text, value)
        return masked(text)

    def secret_values(self) -> tuple[str | None, ...]:
        """Return the values that may never show."""
        return self.secret, self.token, self.sse_customer_key, self.key

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


OPTION_NAMES = tuple(each.name for each in fields(S3Options))
"""The names; aliases are in the documentation (docs/storage.md)."""


def canonical(options: Mapping[str, str]) -> dict[str, str]:
    """Return options under their own names in place of aliases; unknown names stay."""
    return {_ALIASES.get(name.lower(), name.lower()): value for name, value in options.items()}


def parse_s3_options(options: Mapping[Any, Any]) -> S3Options:
    """Return the options that ``options`` names; the case of names does not matter.

    Raises InvalidInputError of kind ``invalid-storage-option``: every problem.
    """
    problems: list[str] = []
    found = parsed(OPTION_NAMES, _ALIASES, options, problems)
    values = {name: _value(name, text, problems) for name, text in found.items()}
    if ("key" in values) != ("secret" in values):
        problems.append("give the storage options key and secret both, or neither")
    if "token" in values and "key" not in values:
        problems.append("storage option token needs key and secret")
    if values.get("anon") and values.keys() & {"key", "profile"}:
        problems.append("storage option anon excludes key, secret, token and profile")
    if "sse_customer_key" in values and values.keys() & {"server_side_encryption", "sse_kms_key_id"}:
        problems.append("storage option sse_customer_key excludes server_side_encryption and sse_kms_key_id")
    if problems:
        raise InvalidInputError(problems, kind="invalid-storage-option")
    return S3Options(**values)


def own_endpoint(environment: Mapping[str, str]) -> str | None:
    """Return the endpoint that the environment names, as boto reads it."""
    return environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or None


def check_environment(options: S3Options, environment: Mapping[str, str]) -> None:
    """Refuse credentials of the environment for another endpoint than the environment's own (StorageError, kind ``credentials-missing``).

    Where the environment names no endpoint, its credentials are for any that the options name.
    """
    own = own_endpoint(environment)
    if options.endpoint_url is None or options.key or options.anon or options.profile or not own:
        return
    if environment.get("AWS_ACCESS_KEY_ID") and not same_endpoint(options.endpoint_url, own):
        raise StorageError(
            "the credentials of the environment belong to an endpoint other than endpoint_url, and txnlog does not "
            "send them there",
            kind="credentials-missing",
            hint="pass the storage options key and secret for this endpoint, name a profile, or set anon to true",
            endpoint_url=options.endpoint_url,
            environment="AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL",
        )


def _value(name: str, text: str, problems: list[str]) -> Any:
    """Return the value that ``text`` stands for; what is wrong goes to ``problems``, without the text."""
    match name:
        case "anon" | "requester_pays" | "region_redirect":
            return own_value("true-or-false", name, text, problems)
        case "connect_timeout_s" | "read_timeout_s" | "request_timeout_s":
            return own_value("seconds", name, text, problems)
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
            return own_value(name, name, text, problems)

"""Google Cloud Storage: URLs, options, credentials.

The condition is ``x-goog-if-generation-match: 0``, which the store answers with 412 where an object is.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from txnformat.errors import InvalidInputError
from txnformat.store.cloud.options import CloudOptions, is_name
from txnformat.store.cloud.store import CloudStore
from txnformat.store.cloud.urls import path_of
from txnformat.store.remote.answers import Words
from txnformat.store.remote.store import Root

__all__ = ["GcsOptions", "GcsStore"]

GOOGLE = "https://storage.googleapis.com"
_URL = re.compile(r"gs://([^/]*)(?:/(.*))?", re.DOTALL | re.IGNORECASE)
_KMS_KEY = re.compile(
    r"projects/[A-Za-z0-9:._-]+/locations/[A-Za-z0-9-]+/keyRings/[A-Za-z0-9_-]+/cryptoKeys/[A-Za-z0-9_-]+"
)
_ENV_ENDPOINT = ("GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST")
_ENV_CREDENTIALS = (
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_BEARER_TOKEN",
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GcsOptions(CloudOptions):
    """Options of Google Cloud Storage; without credentials among them, those of the environment or of the
    machine are used.
    """

    aliases: ClassVar[Mapping[str, str]] = {
        "google_service_account": "service_account_file",
        "google_service_account_path": "service_account_file",
        "service_account": "service_account_file",
        "service_account_path": "service_account_file",
        "google_service_account_key": "service_account_key",
        "google_application_credentials": "service_account_file",
        "application_credentials": "service_account_file",
        "bearer_token": "token",
        "google_bearer_token": "token",
        "endpoint": "endpoint_url",
        "base_url": "endpoint_url",
        "google_base_url": "endpoint_url",
        "skip_signature": "anon",
        "encryption_kms_key_name": "kms_key_name",
    }
    secrets: ClassVar[Sequence[str]] = ("service_account_key", "token")
    credentials: ClassVar[Sequence[str]] = ("service_account_file", "service_account_key", "token")

    service_account_file: str | None = None
    """Path of a file with credentials: of a service account, or of a user (gcloud's application default)."""
    service_account_key: str | None = None
    """The content of a service account's file, JSON."""
    token: str | None = None
    """Bearer token; it is not renewed."""
    kms_key_name: str | None = None
    """Key of Cloud KMS for new objects, ``projects/…/locations/…/keyRings/…/cryptoKeys/…``; the bucket's
    default without it."""

    @classmethod
    def value(cls, name: str, text: str, problems: list[str]) -> Any:
        """See :meth:`CloudOptions.value`."""
        if name == "service_account_key" and not _is_object(text):
            problems.append("storage option service_account_key must be JSON, as Google hands it out")
        if name == "kms_key_name" and not _KMS_KEY.fullmatch(text):
            problems.append(
                "storage option kms_key_name must be projects/…/locations/…/keyRings/…/cryptoKeys/…"
            )
        return super(GcsOptions, cls).value(name, text, problems)

    def write_headers(self) -> dict[str, str]:
        """See :meth:`CloudOptions.write_headers`."""
        return {} if self.kms_key_name is None else {"x-goog-encryption-kms-key-name": self.kms_key_name}


class GcsStore(CloudStore):
    """A bucket of Google Cloud Storage, or a directory in it: ``gs://bucket/path``."""

    words = Words(
        container="bucket",
        credentials="pass the storage options service_account_file or token, set "
        "GOOGLE_APPLICATION_CREDENTIALS to the path of a file "
        "with credentials, or use a machine with a service account",
        rights="reading needs the role Storage Object Viewer, writing Storage Object User, or "
        "storage.objects.get, list and create",
    )
    lists_by_scanning = False

    @classmethod
    def read(cls, location: str, options: Mapping[str, str]) -> tuple[Root, GcsOptions]:
        """See :meth:`CloudStore.read`."""
        parsed = GcsOptions.parse(options)
        match = _URL.fullmatch(location)
        bucket, path = ("", None) if match is None else (match[1], path_of(match[2]))
        if not is_name(bucket) or path is None:
            raise InvalidInputError(
                f"{location!r:.300} is not a location"
                if not re.search("[?@]", location)
                else "a URL holds neither credentials nor options",
                kind="invalid-location",
                hint="write gs://bucket/path, without empty parts; credentials go into storage options",
            )
        return Root(location.rstrip("/"), bucket, path), parsed

    def endpoint(self) -> str:
        """See :meth:`CloudStore.endpoint`."""
        return self.options.endpoint_url or _own_endpoint() or GOOGLE

    def make_client(self, client: Any, retry: Any) -> Any:
        """See :meth:`CloudStore.make_client`."""
        import obstore.store

        has_credentials = any(os.environ.get(name) for name in _ENV_CREDENTIALS)
        self.options.check_environment(_own_endpoint(), has_credentials)
        endpoint = self.endpoint()
        if endpoint.startswith("http://"):
            client = {**client, "allow_http": True}
        config: Any = {} if endpoint == GOOGLE else {"base_url": endpoint}
        renamed = {"service_account_file": "application_credentials", "token": "bearer_token"}
        for name in self.options.credentials:
            value = getattr(self.options, name)
            if value is not None:
                config[renamed.get(name, name)] = value
        if self.options.anon:
            config["skip_signature"] = True
        return obstore.store.GCSStore(
            self.root.container,
            prefix=self.root.prefix or None,
            config=config,
            client_options=client,
            retry_config=retry,
        )


def _own_endpoint() -> str | None:
    """Return the endpoint that the environment names, as Google's own libraries read it."""
    found = next((os.environ[name] for name in _ENV_ENDPOINT if os.environ.get(name)), None)
    return found if found is None or "://" in found else f"http://{found}"


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False

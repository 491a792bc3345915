"""Azure Blob Storage and Data Lake Storage: URLs, options, credentials.

The condition is ``If-None-Match: *`` on Put Blob, which Azure answers with 409 BlobAlreadyExists where a blob
is.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import unquote

from txnformat.errors import InvalidInputError, StorageError
from txnformat.store.cloud.options import CloudOptions, is_name
from txnformat.store.cloud.store import CloudStore
from txnformat.store.cloud.urls import path_of
from txnformat.store.options import own_value
from txnformat.store.remote.answers import Words
from txnformat.store.remote.store import Root

__all__ = ["AzureOptions", "AzureStore"]

_URL = re.compile(r"(?:abfss?|az)://(?:([^/@]*)@([^/]*)|([^/@]*))(?:/(.*))?", re.DOTALL | re.IGNORECASE)
_HOST = re.compile(
    r"([a-z0-9]{3,24}|onelake)\.(?:dfs|blob)\."
    r"(core\.windows\.net|core\.chinacloudapi\.cn|core\.usgovcloudapi\.net|core\.cloudapi\.de|fabric\.microsoft\.com)"
)
"""Hosts of Azure: a URL sends credentials to no other."""
_EXPIRY = re.compile(r"(?:^|&)se=(\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?)?)Z?(?=&|$)")
_SCOPE = re.compile(r"[A-Za-z0-9-]{3,63}")
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")

_ENV_ENDPOINT = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
_ENV_CREDENTIALS = (
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_MASTER_KEY",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AzureOptions(CloudOptions):
    """Options of Azure; without credentials among them, those of the environment or of the machine's identity
    are used.
    """

    aliases: ClassVar[Mapping[str, str]] = {
        "azure_storage_account_name": "account_name",
        "account": "account_name",
        "azure_storage_account_key": "account_key",
        "azure_storage_access_key": "account_key",
        "access_key": "account_key",
        "azure_storage_sas_token": "sas_token",
        "azure_storage_sas_key": "sas_token",
        "sas_key": "sas_token",
        "azure_storage_token": "token",
        "bearer_token": "token",
        "azure_tenant_id": "tenant_id",
        "azure_client_id": "client_id",
        "azure_client_secret": "client_secret",
        "azure_authority_host": "authority_host",
        "azure_federated_token_file": "federated_token_file",
        "endpoint": "endpoint_url",
        "azure_endpoint": "endpoint_url",
        "azure_storage_endpoint": "endpoint_url",
        "skip_signature": "anon",
        "azure_encryption_key": "encryption_key",
    }
    secrets: ClassVar[Sequence[str]] = (
        "account_key",
        "sas_token",
        "token",
        "client_secret",
        "encryption_key",
    )
    credentials: ClassVar[Sequence[str]] = (
        "account_key",
        "sas_token",
        "token",
        "client_secret",
        "federated_token_file",
    )

    account_name: str | None = None
    account_key: str | None = None
    """Key of the storage account, in base64."""
    sas_token: str | None = None
    """Shared access signature, without ``?``."""
    token: str | None = None
    """Bearer token; it is not renewed."""
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    federated_token_file: str | None = None
    """Path of the token of a workload identity."""
    authority_host: str | None = None
    """Where tokens come from, for other clouds than the public one."""
    encryption_key: str | None = None
    """Key of 256 bits, in base64, that every request for a blob brings along (customer-provided key)."""
    encryption_scope: str | None = None
    """Encryption scope of new blobs; the container's default without it."""

    @classmethod
    def value(cls, name: str, text: str, problems: list[str]) -> Any:
        """See :meth:`CloudOptions.value`."""
        if name == "account_name" and not _ACCOUNT.fullmatch(text):
            problems.append("storage option account_name must be 3 to 24 of a-z and 0-9")
        if name == "account_key" and not _is_base64(text):
            problems.append("storage option account_key must be base64, as Azure shows it")
        if name == "encryption_key":
            return own_value("customer-key", name, text, problems)
        if name == "encryption_scope" and not _SCOPE.fullmatch(text):
            problems.append("storage option encryption_scope must be 3 to 63 of A-Z, a-z, 0-9 and -")
        return (
            text.removeprefix("?")
            if name == "sas_token"
            else super(AzureOptions, cls).value(name, text, problems)
        )

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> list[str]:
        """See :meth:`CloudOptions.contradictions`."""
        found = super(AzureOptions, cls).contradictions(values)
        needing = [way for way in ("client_secret", "federated_token_file") if way in values]
        if needing and not ("tenant_id" in values and "client_id" in values):
            found.append(f"storage option {needing[0]} needs tenant_id and client_id")
        if "encryption_scope" in values and "encryption_key" in values:
            found.append("storage option encryption_scope excludes encryption_key")
        if "encryption_scope" in values and "account_key" in values:
            # Requests are signed with the account's key before this header comes to them.
            found.append(
                "storage option encryption_scope cannot go with account_key: use sas_token or Entra ID, "
                "or make it "
                "the container's default"
            )
        return found

    def write_headers(self) -> dict[str, str]:
        """See :meth:`CloudOptions.write_headers`."""
        return {} if self.encryption_scope is None else {"x-ms-encryption-scope": self.encryption_scope}

    def has_expired(self, now_ms: int) -> bool:
        """Return whether the signature's own end, ``se=…``, is over."""
        match = _EXPIRY.search(unquote(self.sas_token or ""))
        if match is None:
            return False
        end = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
        return end.timestamp() * 1000 <= now_ms


_WAYS = {
    "account_key": "access_key",
    "sas_token": "sas_token",
    "token": "bearer_token",
    "client_secret": "client_secret",
    "federated_token_file": "workload_identity",
}
"""obstore's name of each way to prove who asks: what the options name goes before the environment."""


class AzureStore(CloudStore):
    """A container of Azure, or a directory in it: ``abfss://container@account.dfs.core.windows.net/path``, or
    ``az://container/path``.
    """

    words = Words(
        container="container",
        credentials="pass the storage options account_key, sas_token, token, or tenant_id with client_id "
        "and client_secret, set the "
        "AZURE_* variables of the same names, or use a machine with a managed identity",
        rights="reading needs the role Storage Blob Data Reader, writing Storage Blob Data Contributor; a "
        "SAS rl, and rlcw",
    )
    lists_by_scanning = True  # Azure cannot begin after a name

    @classmethod
    def read(cls, location: str, options: Mapping[str, str]) -> tuple[Root, AzureOptions]:
        """See :meth:`CloudStore.read`."""
        parsed = AzureOptions.parse(options)
        match = _URL.fullmatch(location)
        container, path = ("", None) if match is None else (match[1] or match[3] or "", path_of(match[4]))
        host = match[2] if match else None
        at = _HOST.fullmatch(host.lower()) if host else None
        if not is_name(container) or path is None or (host is not None and at is None):
            raise InvalidInputError(
                f"{location!r:.300} is not a location"
                if "?" not in location
                else "the URL has a part behind ?",
                kind="invalid-location",
                hint="write abfss://container@account.dfs.core.windows.net/path, or az://container/path "
                "with the storage option "
                "account_name; credentials and other hosts go into storage options",
            )
        account = at[1] if at else None
        if account and parsed.account_name not in (None, account):
            raise InvalidInputError(
                "the storage option account_name is another account than that of the URL",
                kind="invalid-storage-option",
            )
        endpoint = f"https://{account}.blob.{at[2]}" if at else None
        return Root(location.rstrip("/"), container, path, account, endpoint), parsed

    @property
    def account(self) -> str | None:
        """The storage account."""
        return self.root.account or self.options.account_name or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")

    def endpoint(self) -> str:
        """See :meth:`CloudStore.endpoint`."""
        own = _of_environment(_ENV_ENDPOINT)
        return (
            self.options.endpoint_url
            or own
            or self.root.endpoint
            or f"https://{self.account}.blob.core.windows.net"
        )

    def make_client(self, client: Any, retry: Any) -> Any:
        """See :meth:`CloudStore.make_client`."""
        import obstore.store

        if self.account is None:
            raise StorageError(
                "the URL does not name the storage account",
                kind="invalid-storage-option",
                hint="write abfss://container@account.dfs.core.windows.net/path, pass the storage option "
                "account_name, or set "
                "AZURE_STORAGE_ACCOUNT_NAME",
                store=self.url,
            )
        own = _of_environment(_ENV_ENDPOINT)
        self.options.check_environment(own, _of_environment(_ENV_CREDENTIALS) is not None)
        endpoint = self.endpoint()
        if endpoint.startswith("http://"):
            client = {**client, "allow_http": True}
        config: Any = {"account_name": self.account, "endpoint": endpoint}
        renamed = {"sas_token": "sas_key"}
        for name in (
            "account_key",
            "sas_token",
            "token",
            "tenant_id",
            "client_id",
            "client_secret",
            "federated_token_file",
            "authority_host",
            "encryption_key",
        ):
            value = getattr(self.options, name)
            if value is not None:
                config[renamed.get(name, name)] = value
        for name, way in _WAYS.items():
            if getattr(self.options, name) is not None:
                config["credential_type"] = way
        if self.options.anon:
            config["skip_signature"] = True
        return obstore.store.AzureStore(
            self.root.container,
            prefix=self.root.prefix or None,
            config=config,
            client_options=client,
            retry_config=retry,
        )


def _of_environment(names: Sequence[str]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except (ValueError, binascii.Error):
        return False

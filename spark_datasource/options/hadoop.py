"""The settings of Spark's own connectors (s3a, Azure, Google) that say how to reach a store, as storage
options of txnlog.

Nothing of them shows. Settings for one bucket or account go before those for all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

__all__ = ["PREFIXES", "HadoopSettings"]

PREFIXES = ("fs.s3a.", "fs.azure.", "fs.gs.", "google.cloud.auth.")
"""Beginnings of these settings' names."""

_S3A = "fs.s3a."
_BUCKET = "bucket."
_SETTINGS = (
    "access.key",
    "secret.key",
    "session.token",
    "endpoint",
    "endpoint.region",
    "path.style.access",
    "connection.ssl.enabled",
    "aws.credentials.provider",
)
_AWS_HOST = re.compile(r"(?:https?://)?s3[.-](?:([a-z0-9-]+)\.)?amazonaws\.com(?:\.cn)?/?", re.IGNORECASE)
_URL = re.compile(r"([a-z0-9]+)://([^/]*)", re.IGNORECASE)


class HadoopSettings:
    """Settings of Spark's connectors by their full names, without ``spark.hadoop.``; pickles, and shows
    nothing.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = {
            name: value.strip() for name, value in settings.items() if value and name.startswith(PREFIXES)
        }
        self._s3a = _S3aSettings(
            {name.removeprefix(_S3A): value for name, value in settings.items() if name.startswith(_S3A)}
        )

    def __repr__(self) -> str:
        return f"HadoopSettings({len(self._settings)})"

    def __bool__(self) -> bool:
        return bool(self._settings)

    def options(self, path: str) -> dict[str, str]:
        """Return the storage options for a path, by its scheme."""
        match = _URL.match(path)
        scheme, host = (match[1].lower(), match[2]) if match else ("", "")
        if scheme in ("s3", "s3a", "s3n"):
            return self._s3a.options(host)
        if scheme in ("abfs", "abfss", "az"):
            return self._azure(host.rpartition("@")[2])
        return self._gcs() if scheme == "gs" else {}

    def _azure(self, host: str) -> dict[str, str]:
        """Return the options for an account, ``account.dfs.core.windows.net``."""

        def setting(name: str) -> str | None:
            return self._settings.get(f"fs.azure.{name}.{host}") or self._settings.get(f"fs.azure.{name}")

        way = setting("account.auth.type") or "SharedKey"
        key, signature = setting("account.key"), setting("sas.fixed.token")
        if way == "SAS":
            return {"sas_token": signature} if signature else {}
        if way != "OAuth":
            return {"account_key": key} if key else {}
        names = {"client_id": "client.id", "client_secret": "client.secret", "endpoint": "client.endpoint"}
        found = {option: setting(f"account.oauth2.{name}") for option, name in names.items()}
        at = urlsplit(found.pop("endpoint") or "")
        tenant = at.path.strip("/").partition("/")[0]
        if not tenant or not all(found.values()):
            return {}  # a managed identity, or a provider of the user's own: what the environment has
        given = {name: value for name, value in found.items() if value}
        return {**given, "tenant_id": tenant, "authority_host": f"{at.scheme}://{at.netloc}"}

    def _gcs(self) -> dict[str, str]:
        names = ("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile")
        file = next((self._settings[name] for name in names if name in self._settings), None)
        options = {} if file is None else {"service_account_file": file}
        endpoint = self._settings.get("fs.gs.storage.root.url", "")
        if endpoint and not endpoint.startswith("https://storage.googleapis.com"):
            options["endpoint_url"] = endpoint
        return options


class _S3aSettings:
    """The settings of Spark's s3a connector that matter here, without their prefix; shows nothing."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = {
            name: value for name, value in settings.items() if value and _without_bucket(name) in _SETTINGS
        }

    def __repr__(self) -> str:
        return f"_S3aSettings({len(self._settings)})"

    def __bool__(self) -> bool:
        return bool(self._settings)

    def options(self, bucket: str) -> dict[str, str]:
        """Return the storage options for a bucket; its own settings go before those for all buckets."""
        found: dict[str, str] = {}
        for name in _SETTINGS:
            value = self._settings.get(f"{_BUCKET}{bucket}.{name}", self._settings.get(name))
            if value:
                found[name] = value.strip()
        options = {
            option: found[name]
            for option, name in (("key", "access.key"), ("secret", "secret.key"), ("token", "session.token"))
            if name in found
        }
        if "key" not in options or "secret" not in options:
            options = {}
        if not options and "Anonymous" in found.get("aws.credentials.provider", ""):
            options["anon"] = "true"
        options.update(_endpoint(found))
        return options


def _endpoint(found: Mapping[str, str]) -> dict[str, str]:
    options: dict[str, str] = {}
    endpoint = found.get("endpoint", "")
    aws = _AWS_HOST.fullmatch(endpoint)
    if endpoint and not aws:
        scheme = "http" if found.get("connection.ssl.enabled", "true").lower() == "false" else "https"
        options["endpoint_url"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    region = found.get("endpoint.region") or (aws[1] if aws else None)
    if region:
        options["region"] = region
    if found.get("path.style.access", "").lower() == "true":
        options["addressing_style"] = "path"
    return options


def _without_bucket(name: str) -> str:
    """Return the setting that ``bucket.<name of the bucket>.<setting>`` sets; bucket names may have dots."""
    if not name.startswith(_BUCKET):
        return name
    return next((setting for setting in _SETTINGS if name.endswith(f".{setting}")), "")

"""How Spark jobs reach S3: the options ``storage.<name>``, and below them Spark's own settings of its s3a connector.

Settings found on the driver travel to the tasks inside the pickled reader or writer, never in a plan, and are never shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from txnformat.errors import InvalidInputError
from txnformat.store.base import ObjectStore
from txnformat.store.open import LOCAL_OPTION, follows_symlinks, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "NO_STORAGE",
    "PREFIX",
    "REDACTION",
    "S3aSettings",
    "Storage",
    "hide_options",
    "s3a_settings",
    "storage_for",
]

PREFIX = "storage."

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
_S3_URL = re.compile(r"s3[an]?://([^/]+)", re.IGNORECASE)
_AWS_HOST = re.compile(r"(?:https?://)?s3[.-](?:([a-z0-9-]+)\.)?amazonaws\.com(?:\.cn)?/?", re.IGNORECASE)
_CREDENTIALS = frozenset({"key", "secret", "token", "profile", "anon"})


@dataclass(frozen=True, slots=True)
class Storage:
    """Storage options of one log: hashable, pickles, and shows only names."""

    pairs: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        return f"Storage({', '.join(name for name, _ in self.pairs)})"

    def options(self) -> dict[str, str]:
        """Return them as ``open_store`` takes them."""
        return dict(self.pairs)

    def open(self, path: str) -> ObjectStore:
        """Return the store at ``path``."""
        return open_store(path, storage_options=self.options())


NO_STORAGE = Storage()


class S3aSettings:
    """The settings of Spark's s3a connector that matter here, without their prefix; shows nothing."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = {
            name: value for name, value in settings.items() if value and _without_bucket(name) in _SETTINGS
        }

    def __repr__(self) -> str:
        return f"S3aSettings({len(self._settings)})"

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


def storage_for(path: str, given: Mapping[str, str], s3a: S3aSettings | None) -> Storage:
    """Return the storage options for ``path``: the job's own, and below them those of Spark's s3a connector.

    ``given``: without the prefix ``storage.``. Raises InvalidInputError of kind ``invalid-storage-option``.
    """
    match = _S3_URL.match(path)
    options = dict(given)
    if match is not None:
        from txnformat.store.options import same_endpoint
        from txnformat.store.s3.options import canonical, parse_s3_options

        options = canonical(given)
        below = s3a.options(match[1]) if s3a is not None else {}
        if options.keys() & _CREDENTIALS:
            below = {name: value for name, value in below.items() if name not in _CREDENTIALS}
        elif "key" in below and not same_endpoint(
            options.get("endpoint_url", below.get("endpoint_url")), below.get("endpoint_url")
        ):
            raise InvalidInputError([_FOREIGN_ENDPOINT], kind="invalid-storage-option")
        options = {**below, **options}
        parse_s3_options(options)
    elif {name.lower() for name in options} == {LOCAL_OPTION}:
        follows_symlinks(options)
    elif options:
        raise InvalidInputError(
            [f"option {PREFIX}{name:.100} is for s3://" for name in options], kind="invalid-storage-option"
        )
    return Storage(tuple(sorted(options.items())))


_FOREIGN_ENDPOINT = (
    "option storage.endpoint_url names an endpoint other than that of fs.s3a, and txnlog does not send the credentials "
    "of fs.s3a there; give storage.key and storage.secret for it, storage.profile, or storage.anon"
)


def s3a_settings(spark: SparkSession) -> S3aSettings:
    """Return the settings of a session's s3a connector, as they are now."""
    context: Any = getattr(spark, "_jsc", None)
    if context is None:  # Spark Connect: what the server's session has
        prefix, settings = f"spark.hadoop.{_S3A}", spark.conf.getAll.items()
        return S3aSettings({name.removeprefix(prefix): v for name, v in settings if name.startswith(prefix)})
    found = context.hadoopConfiguration().getPropsWithPrefix(_S3A)
    return S3aSettings({str(name): str(found[name]) for name in found})


REDACTION = "spark.sql.redaction.options.regex"
"""Spark's setting for which options of a command it hides in plans, the UI, event logs and its own log."""

_HIDDEN = r"(?i)^storage[.].*(key|secret|token)"


def hide_options(spark: SparkSession) -> None:
    """Hide ``storage.key`` and its like, once; Spark itself hides names with secret, token and password only."""
    before = spark.conf.get(REDACTION, "") or ""
    if _HIDDEN not in before:
        spark.conf.set(REDACTION, f"{before}|{_HIDDEN}" if before else _HIDDEN)

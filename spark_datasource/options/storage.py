"""How Spark jobs reach a store: the options ``storage.<name>``, and below them the settings of Spark's own
connectors (``hadoop``).

Settings found on the driver travel to the tasks inside the pickled reader or writer, never in a plan, and are
never shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_datasource.options.hadoop import PREFIXES, HadoopSettings
from txnformat.errors import InvalidInputError
from txnformat.store.base import ObjectStore
from txnformat.store.encrypted.key_client import key_source
from txnformat.store.open import LOCAL_OPTION, REMOTE, follows_symlinks, open_store
from txnformat.store.options import RemoteOptions, same_endpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "NO_STORAGE",
    "PREFIX",
    "REDACTION",
    "Storage",
    "hadoop_settings",
    "hide_options",
    "storage_for",
]

PREFIX = "storage."

_S3_CREDENTIALS = frozenset({"key", "secret", "token", "profile", "anon"})


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


def _rules(scheme: str) -> tuple[type[RemoteOptions], frozenset[str]]:
    """Return the options of a store, and the names of those that say who asks."""
    if REMOTE[scheme] == "s3":
        from txnformat.store.s3.options import S3Options

        return S3Options, _S3_CREDENTIALS
    from txnformat.store.cloud.azure import AzureOptions
    from txnformat.store.cloud.gcs import GcsOptions

    cls = AzureOptions if REMOTE[scheme] == "azure" else GcsOptions
    return cls, frozenset({*cls.credentials, "client_id", "tenant_id", "authority_host", "anon"})


def storage_for(path: str, given: Mapping[str, str], hadoop: HadoopSettings | None) -> Storage:
    """Return the storage options for ``path``: the job's own, and below them those of Spark's own connectors.

    ``given``: without the prefix ``storage.``. Raises InvalidInputError of kind ``invalid-storage-option``.
    """
    scheme = path.partition("://")[0].lower()
    _, options = key_source(given)
    of_keys = {name.lower(): value for name, value in given.items() if name not in options}
    if scheme in REMOTE:
        cls, credentials = _rules(scheme)
        options = cls.canonical(options)
        below = hadoop.options(path) if hadoop is not None else {}
        has_own = bool(below.keys() & credentials - {"anon"})
        if options.keys() & credentials:
            below = {name: value for name, value in below.items() if name not in credentials}
        elif has_own and not same_endpoint(
            options.get("endpoint_url", below.get("endpoint_url")), below.get("endpoint_url")
        ):
            raise InvalidInputError([_FOREIGN_ENDPOINT], kind="invalid-storage-option")
        options = {**below, **options}
        cls.parse(options)
    elif {name.lower() for name in options} == {LOCAL_OPTION}:
        follows_symlinks(options)
    elif options:
        raise InvalidInputError(
            [f"option {PREFIX}{name:.100} is for s3://, gs://, abfss:// and az://" for name in options],
            kind="invalid-storage-option",
        )
    return Storage(tuple(sorted((options | of_keys).items())))


_FOREIGN_ENDPOINT = (
    "option storage.endpoint_url names an endpoint other than that of Spark's own settings (fs.s3a, "
    "fs.azure, fs.gs), and txnlog does not "
    "send the credentials of those there; give credentials for it (S3: storage.key and storage.secret, or "
    "storage.profile), or storage.anon"
)


def hadoop_settings(spark: SparkSession) -> HadoopSettings:
    """Return the settings of a session's connectors, as they are now."""
    context: Any = getattr(spark, "_jsc", None)
    if context is None:  # Spark Connect: what the server's session has
        prefix = "spark.hadoop."
        settings = {
            name.removeprefix(prefix): value
            for name, value in spark.conf.getAll.items()
            if name.startswith(prefix)
        }
        return HadoopSettings(settings)
    found: dict[str, str] = {}
    for prefix in PREFIXES:
        some = context.hadoopConfiguration().getPropsWithPrefix(prefix)
        found |= {f"{prefix}{name}": str(some[name]) for name in some}
    return HadoopSettings(found)


REDACTION = "spark.sql.redaction.options.regex"
"""Spark's setting for which options of a command it hides in plans, the UI, event logs and its own log."""

_HIDDEN = r"(?i)^storage[.].*(key|secret|token)"


def hide_options(spark: SparkSession) -> None:
    """Hide ``storage.key`` and its like, once; Spark itself hides names with secret, token and password
    only.
    """
    before = spark.conf.get(REDACTION, "") or ""
    if _HIDDEN not in before:
        spark.conf.set(REDACTION, f"{before}|{_HIDDEN}" if before else _HIDDEN)

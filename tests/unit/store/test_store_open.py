"""From a location to its store."""

from __future__ import annotations

from pathlib import Path

import pytest

from txnformat.clock import Instant, SystemClock
from txnformat.errors import InvalidInputError, UnsupportedStoreError
from txnformat.store import open_store
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore


class _At(SystemClock):
    def now(self) -> Instant:
        return Instant(1234, None)


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/data/log", "file:///data/log"),
        (Path("/data/log"), "file:///data/log"),
        ("/data/log/", "file:///data/log"),
        ("file:///data/log", "file:///data/log"),
        ("FILE:///data/log", "file:///data/log"),
        ("file://localhost/data/log", "file:///data/log"),
        ("file:/data/log", "file:///data/log"),
        ("file:///data/a%20log", "file:///data/a log"),
        ("/data/a%20log", "file:///data/a%2520log"),
        ("file:///data/a%2520log", "file:///data/a%2520log"),
        ("/data/b: c", "file:///data/b: c"),
    ],
)
def test_a_path_or_a_file_url_is_the_local_disk(location: str | Path, url: str) -> None:
    store = open_store(location)
    assert isinstance(store, LocalStore)
    assert store.url == url


def test_a_relative_path_counts_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("log").url == f"file://{tmp_path}/log"


@pytest.mark.parametrize(
    ("location", "scheme"),
    [
        ("gcs://bucket/log", "gcs"),
        ("wasbs://c@a/log", "wasbs"),
        ("hdfs:///log", "hdfs"),
        ("hdfs:/log", "hdfs"),
    ],
)
def test_another_scheme_is_named_and_so_is_what_works(location: str, scheme: str) -> None:
    with pytest.raises(UnsupportedStoreError) as caught:
        open_store(location)
    assert caught.value.kind == "unsupported-store"
    assert caught.value.values["scheme"] == scheme
    told = {"gcs": "gs://bucket/path", "wasbs": "abfss://container@account", "hdfs": "file:///path"}
    assert told[scheme] in str(caught.value)


@pytest.mark.parametrize(
    "location",
    [
        "dbfs:/log",
        "dbfs:///Volumes/c/s/v",
        "DBFS:/x",
        "/dbfs/mnt/log",
        "/Volumes/main/s/v/log",
        "file:/dbfs/x",
        "file:///Volumes/c",
        "/Volumes",
    ],
)
def test_mounts_of_databricks_are_refused_with_the_uri_to_use(location: str) -> None:
    for given in (location, Path(location)) if location.startswith("/") else (location,):
        with pytest.raises(UnsupportedStoreError) as caught:
            open_store(given)
        assert caught.value.kind == "unsupported-store"
        assert "s3://bucket/path" in str(caught.value)


def test_names_like_those_of_mounts_are_other_paths() -> None:
    for location in ("/dbfsx/log", "/data/Volumes/log", "/volumes/log"):
        assert open_store(location).url == f"file://{location}"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "S3"])
def test_s3_by_any_of_its_names(scheme: str) -> None:
    assert open_store(f"{scheme}://bucket/a/log/").url == "s3://bucket/a/log"
    assert open_store(f"{scheme}://bucket").url == "s3://bucket"


def test_credentials_in_a_location_are_not_repeated() -> None:
    for location in ("s3://user:secret@bucket/log", "gs://user:secret@bucket/log"):
        with pytest.raises((InvalidInputError, UnsupportedStoreError)) as caught:
            open_store(location)
        assert "secret" not in str(caught.value).replace("options key and secret", "")


@pytest.mark.parametrize(
    "location",
    [
        "",
        "a\0b",
        "file://other/data",
        "file://data",
        "file:///a%00b",
        "s3://",
        "s3:///log",
        "s3:/bucket/log",
        "s3://bucket//log",
        "s3://bucket/a/../b",
        "s3://bucket/a\nb",
        "s3://bucket/\ud800",
        "s3://BAD_bucket!/x",
        "s3://bücket/x",
        "s3://my bucket/x",
        "s3://" + "b" * 256 + "/x",
        "/data/\ud800",
    ],
)
def test_what_is_no_location_is_refused(location: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_store(location)
    assert caught.value.kind == "invalid-location"


def test_the_clock_reaches_the_store() -> None:
    assert open_store("/data/log", _At()).store_time_ms() == 1234
    assert open_store("memory://clock", _At()).store_time_ms() == 1234


def test_memory_stores_of_one_name_are_one_while_anybody_holds_them() -> None:
    store = open_store("memory://shared")
    assert isinstance(store, MemoryStore)
    store.put("a", b"x")
    assert open_store("memory://shared").get("a") == b"x"
    assert open_store("memory://other").get("a") is None
    del store
    assert open_store("memory://shared").get("a") is None

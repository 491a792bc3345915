"""A search for canaries: credentials given to Spark in every way, in everything that a job leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

from txnlog import TxnLog
from txnlog_testing.stores.s3_server import S3Server, moto_server

WAYS = ("options", "view", "hadoop", "environment", "url", "names", "launch", "file")
PARTS = ("key", "secret", "token")
CANARIES = {
    way: {part: f"Canary{way}{part}/x+y{number}z" for number, part in enumerate(PARTS)} for way in WAYS
}
for _way in CANARIES.values():
    _way["key"] = _way["key"].replace("/x+", "xx")  # an access key id is letters and digits

PS = "ps.txt"
"""pyspark starts Java with the settings of the builder as arguments. Spark logs these settings at DEBUG, too.
"""
SQL_TEXT = "jvm.log"
"""Spark's parser logs the text of a command at DEBUG; nothing hides what stands in it."""


def forms(value: str) -> set[bytes]:
    """Return how a value may be written."""
    return {
        form.encode()
        for form in (
            value,
            quote(value, safe=""),
            json.dumps(value)[1:-1].replace("/", r"\/"),
            value.replace("/", r"\u002f"),
        )
    }


def found_in(name: str, data: bytes) -> set[tuple[str, str, str]]:
    return {
        (way, part, name)
        for way, parts in CANARIES.items()
        for part, value in parts.items()
        if any(form in data for form in forms(value))
    }


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with moto_server() as running:
        yield running


def test_no_canary_is_found_in_what_a_spark_job_leaves_behind(
    server: S3Server, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with TxnLog.create(server.url("log"), storage_options=server.storage_options, embedding=False) as log:
        log.create_topic("t", pa.schema([("n", pa.int64())]))
        log.create_topic("u", pa.schema([("n", pa.int64())]))
    (tmp_path / "events").mkdir()
    job = {
        "folder": str(tmp_path),
        "url": server.url("log"),
        "endpoint": server.endpoint_url,
        "canaries": CANARIES,
    }
    given = CANARIES["environment"]
    conf = tmp_path_factory.mktemp("conf")
    settings = {"access.key": "key", "secret.key": "secret", "session.token": "token"}
    (conf / "spark-defaults.conf").write_text(
        "".join(
            f"spark.hadoop.fs.s3a.bucket.filed.{name} {CANARIES['file'][part]}\n"
            for name, part in settings.items()
        )
    )
    with (tmp_path / "jvm.log").open("wb") as log_file:
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.canary_job"],
            input=json.dumps(job).encode(),
            stdout=log_file,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "PYTHONPATH": str(Path.cwd()),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_CONF_DIR": str(conf),
                "AWS_ACCESS_KEY_ID": given["key"],
                "AWS_SECRET_ACCESS_KEY": given["secret"],
                "AWS_SESSION_TOKEN": given["token"],
                "AWS_EC2_METADATA_DISABLED": "true",
            },
            timeout=500,
            check=False,
        )
    assert done.returncode == 0, (tmp_path / "jvm.log").read_bytes()[-4000:].decode(errors="replace")
    found: set[tuple[str, str, str]] = set()
    sizes: dict[str, int] = {}
    for path in sorted(tmp_path.rglob("*")):
        if path.is_file() and not path.is_symlink():
            name = path.relative_to(tmp_path).parts[0]
            sizes[name] = sizes.get(name, 0) + path.stat().st_size
            found |= found_in(name, path.read_bytes())
    client = server.client()
    for item in client.list_objects_v2(Bucket=server.bucket)["Contents"]:
        body = client.get_object(Bucket=server.bucket, Key=item["Key"])["Body"].read()
        found |= found_in("objects", body + item["Key"].encode())
    shown = (tmp_path / "shown.txt").read_text()
    assert shown.count("FAILED") == 7, shown[-3000:]
    assert "count=10" in shown or "n=" in shown or "Row(" in shown
    for name in ("events", "ui-0.json", "ui-4.json", "ps.txt", "python.log", "jvm.log", "checkpoint"):
        assert sizes.get(name, 0) > 0, name
    assert {one for one in found if one[0] not in ("view", "names", "launch")} == set()
    assert {one for one in found if one[0] in ("view", "names")} == {
        (way, part, SQL_TEXT) for way in ("view", "names") for part in PARTS
    }
    assert {one for one in found if one[0] == "launch"} == {
        ("launch", part, where) for part in PARTS for where in (PS, SQL_TEXT)
    }

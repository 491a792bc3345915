"""Each extra alone: what it is for runs in a process that has nothing installed but txnlog, that extra, and
what these require."""

from __future__ import annotations

import configparser
import subprocess
import sys
import textwrap
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.meta.markdown import ROOT
from tests.requirements import closure, own

HIDE = """
import sys

class Without:
    # a finder that does not see what is hidden

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in HIDDEN else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = map(Without, sys.meta_path)
"""

LOG = """
import pyarrow as pa
from txnlog import Consumer, Producer, TxnLog

log = TxnLog.create("log")
log.create_topic("t", pa.schema([("n", pa.int64())]))
with Producer(log, "p") as producer, producer.transaction() as transaction:
    transaction.send("t", [{"n": 1}])
"""

WORK = {
    "": LOG
    + """
with Consumer(log, "g") as consumer:
    consumer.subscribe(["t"])
    assert consumer.poll(0, 3).num_rows == 1
    consumer.commit()
log.maintain()
import txnlog.cli.app
""",
    "s3": """
from txnformat.store.open import open_store
open_store("s3://bucket/log", storage_options={"key": "a", "secret": "b", "region": "x"})
""",
    "azure": """
from txnformat.store.open import open_store
open_store("abfss://box@account.dfs.core.windows.net/log", storage_options={"account_key": "YQ=="})
""",
    "gcs": """
from txnformat.store.open import open_store
open_store("gs://bucket/log", storage_options={"anon": "true"})
""",
    "encryption": """
import base64, json, os
os.environ["KEYS"] = json.dumps({"current": "a", "keys": {"a": base64.b64encode(bytes(32)).decode()}})
from txnlog import TxnLog
TxnLog.create("log", storage_options={"key_client": "env:KEYS"}).rotate_key()
""",
    "spark": """
import pyspark_txnlog, spark_datasource.datasource, txnlog.spark
from pyspark.sql.types import StructType
spark_datasource.datasource.TxnLogDataSource({})
""",
    "connect": """
import pyspark_txnlog, spark_datasource.datasource, txnlog.spark
import pyspark.sql.connect.session
""",
    "delta": LOG
    + """
import deltalake
from txnlog.tables import import_delta, import_parquet
deltalake.write_deltalake("table", pa.table({"n": [1, 2]}))
assert import_delta(log, "table", "copy").rows == 2
import pyarrow.parquet as pq
pq.write_table(pa.table({"n": [1, 2]}), "rows.parquet")
assert import_parquet(log, "rows.parquet", "rows").rows == 2
from click.testing import CliRunner
from txnlog.cli.app import application
done = CliRunner().invoke(application, ["import", "delta", "table", "again", "--root", "log"])
assert done.exit_code == 0, done.output
""",
    "kafka": """
import txnlog.kafka, txnlog.kafka.schemas, txnlog.kafka.decoding
from txnlog.kafka.source import Source
from txnlog.kafka.sink import Sink
import fastavro
from confluent_kafka.schema_registry import SchemaRegistryClient
SchemaRegistryClient({"url": "http://127.0.0.1:1"})
""",
    "schemas": """
import pyarrow as pa
from txnlog.schemas import export_schema, parse_schema
for format in ("avro", "protobuf"):
    text = export_schema(pa.schema([("n", pa.int64())]), format)
    assert "n" in str(text), format
assert parse_schema(export_schema(pa.schema([("n", pa.int64())]), "avro"), "avro").names == ["n"]
""",
    "iceberg": LOG
    + """
log.publish(format="iceberg")
assert set(log.published_tables(format="iceberg")) == {"t"}
""",
    "otel": """
from txnlog.otel import instrument, observe
instrument()
"""
    + LOG
    + "observe(log)\n",
    "ui": LOG + "import txnlog.cli.looking.server\n",
    "testing": """
import pkgutil, importlib, txnlog_testing
for found in pkgutil.walk_packages(txnlog_testing.__path__, "txnlog_testing."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
""",
}
"""What each extra is for; "" is an installation without extras."""

FOR_PEOPLE = {"plot", "demo"}
"""Extras that bring libraries for the user's own code, and for the checkout's demo."""


def hidden_beside(extra: str) -> set[str]:
    """Return the importable names of this environment that an installation with one extra would not have."""
    lines = [*own((extra,) if extra else ()), *NESTED.get(extra, ())]
    there = {*map(canonicalize_name, ("txnlog", "setuptools", *closure(lines)))}
    return {
        name
        for name, distributions in packages_distributions().items()
        if not there & {canonicalize_name(one) for one in distributions}
    }


NESTED = {"testing": own(("s3", "azure", "gcs"))}
"""Extras that name others of txnlog's own."""


def test_every_extra_is_tried() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    assert WORK.keys() - {""} == config["options.extras_require"].keys() - FOR_PEOPLE


@pytest.mark.parametrize(
    ("module", "extra"),
    [("txnlog.spark", "spark"), ("spark_datasource.datasource", "spark"), ("txnlog.otel", "otel")],
)
def test_a_module_without_its_extra_says_which_it_is(module: str, extra: str, tmp_path: Path) -> None:
    code = f"HIDDEN = {hidden_beside('')!r}\n{HIDE}\nimport {module}\n"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stderr.splitlines()[-1].startswith("ModuleNotFoundError: ")
    assert f"pip install 'txnlog[{extra}]'" in done.stderr


def test_a_command_without_its_extra_is_no_damage(tmp_path: Path) -> None:
    run = "from txnlog.cli.app import run; sys.exit(run(['import', 'delta', 'table', 't', '--root', 'log']))"
    code = f"HIDDEN = {hidden_beside('')!r}\n{HIDE}\n{LOG}\n{run}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, "txnlog[delta]" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("extra", WORK)
def test_an_extra_has_what_its_work_needs(extra: str, tmp_path: Path) -> None:
    code = f"HIDDEN = {hidden_beside(extra)!r}\n" + HIDE + textwrap.dedent(WORK[extra])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr

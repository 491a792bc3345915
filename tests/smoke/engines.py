"""Every engine that reads published tables, held against snapshot reads of the log: ``python -m
tests.smoke.engines`` (``make engines``) writes the table of docs/engines.md.

Each kind of topic is published as Delta and as Iceberg. Engines in the development environment read in this
process; DuckDB's extensions and the pysparks that the jars know have environments of their own. Names of
engines as arguments run these alone, and write nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import polars
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.integration.views.filters import ENGINES as FILTERING
from tests.integration.views.tables import CASES, FILTERS, floats, opened, path_of, row, write
from tests.smoke.delta_tables import PYSPARK as DELTA_PYSPARK
from tests.smoke.delta_tables import SETTINGS as DELTA_SETTINGS
from tests.smoke.delta_tables import attacked as attacked_delta
from tests.smoke.engines_page import Outcome, Passed, Run, rendered
from tests.smoke.versions import environment
from txnformat.store.requests import KeyClass
from txnformat.views.manifests import ViewTable
from txnlog import TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.temporary import own_temporary_directory

__all__ = ["PAGE"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "engines.md"
BEGIN, END = "<!-- made by make engines -->\n", "<!-- end of what make engines made -->\n"

KINDS = {
    "all committed": CASES["all committed, in files"],
    "30 % aborted": CASES["30 % aborted"],
    "evolved schema": CASES["evolved schema"],
    "renamed": CASES["renamed columns"],
    "nested": CASES["nested"],
    "compacted": CASES["compacted"],
    "empty": CASES["empty"],
    "floats": floats,
}
"""The topics of the table, and how each is made."""
FLOATS = "floats"
"""The topic that is filtered."""
PLACES = ("_partition", "_offset", "_timestamp")
WRITTEN_ANEW = ("evolved schema", "renamed")
"""Topics with files of an older schema: a publication writes these anew first."""

DUCKDB = "1.5.5"
ICEBERG_PYSPARK, ICEBERG_JARS = "4.1.4", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"
SQLITE = "org.xerial:sqlite-jdbc:3.49.1.0"
"""A catalog that takes the metadata file of another program needs a place of its own."""
ICEBERG_SETTINGS = {
    **{
        name: value
        for name, value in DELTA_SETTINGS.items()
        if "delta" not in value.lower() and "databricks" not in name
    },
    "spark.jars.packages": f"{ICEBERG_JARS},{SQLITE}",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.own": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.own.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
    "spark.sql.catalog.own.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
}

Read = dict[str, pa.Table | str]
"""The answer of an engine for each kind of topic, or the reason that there is none."""


class Published(NamedTuple):
    """A topic of some kind, and its tables."""

    log: TxnLog
    delta: ViewTable
    iceberg: ViewTable
    offsets: ViewTable
    """Of the same records, after a compaction."""
    copied: int
    """Bytes of records that the publications of both formats wrote."""

    def expected(self, *, with_offsets: bool = False) -> pa.Table:
        """Return the topic as the log shows it at the entry of its tables."""
        table = self.offsets if with_offsets else self.delta
        names = [*self.log.state.topic("t").schema.arrow_schema.names, *(PLACES if with_offsets else ())]
        return self.log.read("t", isolation="snapshot", version_as_of=table.entry, columns=names).read_all()


Passes = Callable[[Published, Path], dict[str, Passed]]
"""Returns the records that pass each filter."""


class Engine(NamedTuple):
    """An engine, and how it reads."""

    name: str
    read: Callable[[Mapping[str, Published], Path], Read]
    filters: Passes | None = None
    with_offsets: bool = False
    """It reads the tables with offsets."""


def checksums(table: pa.Table) -> dict[str, str]:
    """Return a checksum of each column, whatever the order of the rows is, and of the rows as wholes, ``*``:
    equal for every NaN, different for 0.0 and -0.0."""
    columns = {
        name: column.to_pylist(maps_as_pydicts="lossy")
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    columns["*"] = [tuple(one) for one in zip(*columns.values(), strict=True)]
    return {
        name: hashlib.sha256(repr(sorted(map(repr, values))).encode()).hexdigest()
        for name, values in columns.items()
    }


def published(folder: Path) -> dict[str, Published]:
    """Publish every kind of topic in both formats, and count what is written."""
    found = {}
    for number, (kind, made) in enumerate(KINDS.items()):
        log = made(folder / f"log-{number}")
        log.committer.seal()
        store = CountingStore(log.store)
        with TxnLog.open(store) as other:
            other.publish("t")
            other.publish("t", format="iceberg")
        if kind == "compacted":
            write(log, [row(1_000)])
            log.publish("t")
            log.publish("t", format="iceberg")
        copied = store.counts.bytes_written(KeyClass.DATA)
        assert copied == 0 or kind in WRITTEN_ANEW, (kind, copied)
        delta, iceberg = log.published_tables()["t"], log.published_tables(format="iceberg")["t"]
        assert delta.entry == iceberg.entry
        log.compact("t", min_lag_ms=0)
        log.publish("t", format="delta-offsets")
        offsets = log.published_tables(format="delta-offsets")["t"]
        assert offsets.entry >= delta.entry
        found[kind] = Published(log, delta, iceberg, offsets, copied)
    return found


def each(read: Callable[[Published], pa.Table]) -> Callable[[Mapping[str, Published], Path], Read]:
    """Return what reads the topics one by one in this process."""

    def reads(topics: Mapping[str, Published], _: Path) -> Read:
        found: Read = {}
        for kind, one in topics.items():
            try:
                found[kind] = read(one)
            except Exception as error:  # noqa: BLE001  # whatever it is: it is the result
                found[kind] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
        return found

    return reads


def _deltalake(table: ViewTable) -> DeltaTable:
    return DeltaTable(path_of(table), version=table.version)


def _from_pandas(frame: Any, like: pa.Table) -> pa.Table:
    return pa.Table.from_pandas(frame, schema=like.schema, preserve_index=False)


def _place(one: Published, format_: str) -> str:
    return one.iceberg.metadata if format_ == "iceberg" else path_of(one.delta)


def filters_here(name: str) -> Passes:
    """Return how an engine of the development environment filters."""

    def passes(one: Published, _: Path) -> dict[str, Passed]:
        engine = FILTERING[name]
        table = one.iceberg if engine.format == "iceberg" else one.delta
        return {each: Passed(engine.filtered(table, each), engine.judged(table, each)) for each in FILTERS}

    return passes


def _duckdb(format_: str) -> Engine:
    def told(topics: Mapping[str, Published], folder: Path) -> Any:
        order = {
            "extensions": ["avro", "iceberg"] if format_ == "iceberg" else ["delta"],
            "function": f"{format_}_scan",
            "filtered": _place(topics[FLOATS], format_),
            "filters": FILTERS,
            "tables": [
                {
                    "path": _place(one, format_),
                    "out": str(folder / f"{number}.parquet"),
                }
                for number, one in enumerate(topics.values())
            ],
        }
        python = duckdb_environment()
        return json.loads(asked([str(python), str(ROOT / "tests/smoke/engines_duckdb.py")], order))

    def reads(topics: Mapping[str, Published], folder: Path) -> Read:
        return _written(told(topics, folder)["told"], topics, lambda number: folder / f"{number}.parquet")

    def passes(one: Published, folder: Path) -> dict[str, Passed]:
        return _passed(told({FLOATS: one}, folder)["passed"])

    return Engine(f"DuckDB {DUCKDB}, {format_.capitalize()}", reads, passes)


def _passed(told: Mapping[str, Sequence[int]]) -> dict[str, Passed]:
    return {name: Passed(*counts) for name, counts in told.items()}


def _spark_filters(format_: str, pyspark: str, settings: Mapping[str, str]) -> Passes:
    def passes(one: Published, folder: Path) -> dict[str, Passed]:
        table = one.delta if format_ == "delta" else one.iceberg
        options = {"versionAsOf": table.version if format_ == "delta" else table.snapshot_id}
        order = {"format": format_, "tables": [], "filters": FILTERS, "filtered": path_of(table)}
        return _passed(spark(pyspark, settings, {**order, "options": options}, folder)["passed"])

    return passes


def _spark(
    format_: str, pyspark: str, settings: Mapping[str, str], *, with_offsets: bool = False
) -> Callable[[Mapping[str, Published], Path], Read]:
    def reads(topics: Mapping[str, Published], folder: Path) -> Read:
        tables = []
        for number, one in enumerate(topics.values()):
            table = one.offsets if with_offsets else one.delta if format_ == "delta" else one.iceberg
            options = {"versionAsOf": table.version if format_ == "delta" else table.snapshot_id}
            tables.append({"path": path_of(table), "options": options, "out": str(folder / str(number))})
        told = spark(pyspark, settings, {"format": format_, "tables": tables}, folder)["told"]
        return _written(told, topics, lambda number: folder / str(number))

    return reads


def spark(
    pyspark: str, settings: Mapping[str, str], order: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """Return what a Spark of some version tells about an order."""
    warehouse = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalog.own.warehouse": str(folder / "own"),
        "spark.sql.catalog.own.uri": f"jdbc:sqlite:{folder / 'own.db'}",
    }
    python = environment(pyspark)
    line = asked(
        [str(python), str(ROOT / "tests/smoke/engines_spark.py")],
        {"settings": {**settings, **warehouse}, **order},
        {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    found: dict[str, Any] = json.loads(line)
    return found


def asked(command: Sequence[str], order: Mapping[str, Any], more: Mapping[str, str] | None = None) -> str:
    """Return the last line that a program prints about an order on its standard input."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK", "PYTHON"))}
    child = subprocess.run(
        list(command),
        input=json.dumps(order),
        stdout=subprocess.PIPE,
        env=clean | dict(more or {}),
        text=True,
        check=True,
    )
    return child.stdout.splitlines()[-1]


def _written(
    told: Sequence[int | str], topics: Mapping[str, Published], place: Callable[[int], Path]
) -> Read:
    """Return what another process wrote as Parquet, or its message."""
    found: Read = {}
    for number, (kind, count) in enumerate(zip(topics, told, strict=True)):
        if isinstance(count, str):
            found[kind] = count
        else:
            table = pq.read_table(place(number))
            assert len(table) == count, (kind, len(table), count)
            found[kind] = table.replace_schema_metadata(None)
    return found


def duckdb_environment() -> Path:
    """Return the interpreter with DuckDB's extensions, after making its environment."""
    folder = ROOT / f".venv-duckdb-{DUCKDB}"
    python = folder / "bin" / "python"
    stamp = folder / "made"
    if not stamp.exists():
        print(f"making {folder.name}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        names = ("duckdb", "duckdb-extension-delta", "duckdb-extension-iceberg", "duckdb-extension-avro")
        pins = [f"{name}=={DUCKDB}" for name in names]
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins]
        subprocess.run(install, check=True)
        stamp.touch()
    return python


ENGINES = (
    Engine(
        f"Delta on Spark (Delta {DELTA_SETTINGS['spark.jars.packages'].rpartition(':')[2]}, Spark "
        f"{DELTA_PYSPARK})",
        _spark("delta", DELTA_PYSPARK, DELTA_SETTINGS),
        _spark_filters("delta", DELTA_PYSPARK, DELTA_SETTINGS),
    ),
    Engine(
        "the same, with offsets",
        _spark("delta", DELTA_PYSPARK, DELTA_SETTINGS, with_offsets=True),
        with_offsets=True,
    ),
    Engine(
        f"Iceberg on Spark (Iceberg {ICEBERG_JARS.rpartition(':')[2]}, Spark {ICEBERG_PYSPARK})",
        _spark("iceberg", ICEBERG_PYSPARK, ICEBERG_SETTINGS),
        _spark_filters("iceberg", ICEBERG_PYSPARK, ICEBERG_SETTINGS),
    ),
    Engine(
        f"deltalake {version('deltalake')}",
        each(lambda one: _deltalake(one.delta).to_pyarrow_table()),
        filters_here("deltalake's SQL"),
    ),
    Engine(
        f"deltalake {version('deltalake')}, with offsets",
        each(lambda one: _deltalake(one.offsets).to_pyarrow_table()),
        with_offsets=True,
    ),
    Engine(
        f"Polars {version('polars')}, Delta",
        each(
            lambda one: polars.scan_delta(path_of(one.delta), version=one.delta.version).collect().to_arrow()
        ),
        filters_here("Polars, Delta"),
    ),
    Engine(
        f"Polars {version('polars')}, Iceberg",
        each(lambda one: polars.scan_iceberg(one.iceberg.metadata).collect().to_arrow()),
        filters_here("Polars, Iceberg"),
    ),
    _duckdb("delta"),
    _duckdb("iceberg"),
    Engine(
        f"pyiceberg {version('pyiceberg')}",
        each(lambda one: opened(one.iceberg).scan().to_arrow()),
        filters_here("pyiceberg"),
    ),
    Engine(
        f"pandas {version('pandas')}, by deltalake",
        each(
            lambda one: _from_pandas(_deltalake(one.delta).to_pandas(types_mapper=pd_arrow), one.expected())
        ),
    ),
    Engine(
        f"pandas {version('pandas')}, by pyiceberg",
        each(
            lambda one: _from_pandas(
                opened(one.iceberg).scan().to_pandas(types_mapper=pd_arrow), one.expected()
            )
        ),
    ),
)


def pd_arrow(type_: pa.DataType) -> Any:
    """Return pandas' type with Arrow's values: those of numpy have no nulls, and no decimals."""
    import pandas

    return pandas.ArrowDtype(type_)


def outcome(one: Published, read: pa.Table | str, *, with_offsets: bool = False) -> Outcome:
    """Hold what an engine read against the log."""
    if isinstance(read, str):
        return Outcome(None, read)
    wanted = one.expected(with_offsets=with_offsets)
    if len(read) != len(wanted):
        return Outcome(None, f"{len(read)} records, of {len(wanted)}")
    found, right = checksums(read), checksums(wanted)
    differing = [name for name in right if found.get(name) != right[name]]
    return Outcome(None, f"columns differ: {', '.join(differing)}") if differing else Outcome(len(read))


def passed_in_the_log(one: Published) -> dict[str, int]:
    """Return how many records of the log pass each filter."""
    return {
        each: one.log.read("t", isolation="snapshot", version_as_of=one.delta.entry, where=each)
        .read_all()
        .num_rows
        for each in FILTERS
    }


def attacked_iceberg(one: Published, folder: Path) -> dict[str, str]:
    """Return the outcomes of Iceberg's writes on Spark; no object changes."""
    before = {info.key: one.log.store.get(info.key) for info in one.log.store.list("")}
    order = {
        "format": "iceberg",
        "tables": [],
        "attacked": "own.ns.t",
        "metadata": one.iceberg.metadata,
        "topic": path_of(one.delta),
    }
    writes: dict[str, str] = spark(ICEBERG_PYSPARK, ICEBERG_SETTINGS, order, folder)["writes"]
    after = {info.key: one.log.store.get(info.key) for info in one.log.store.list("")}
    lost = [key for key, data in before.items() if after.get(key) != data]
    ours = [key for key in lost if "/_iceberg/" not in key]
    assert not ours, ours
    report = one.log.verify(deep=True)
    assert report.ok, report.problems
    for key in sorted(set(lost) | (after.keys() - before.keys())):
        print(f"changed by Spark: {key}")
    return {name: re.sub(r"\s+", " ", text)[:160] for name, text in writes.items()}


def main(names: Sequence[str]) -> int:
    """Run the engines with some names, or all of them; of all the page is written. Return 1 if one
    differs.
    """
    os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"
    with own_temporary_directory() as folder:
        topics = published(folder)
        outcomes: dict[str, dict[str, Outcome]] = {}
        passed: dict[str, dict[str, Passed]] = {}
        for number, engine in enumerate(ENGINES):
            if names and not any(name.lower() in engine.name.lower() for name in names):
                continue
            own = folder / f"engine-{number}"
            own.mkdir()
            read = engine.read(topics, own)
            outcomes[engine.name] = {
                kind: outcome(topics[kind], read[kind], with_offsets=engine.with_offsets) for kind in KINDS
            }
            if engine.filters is not None:
                passed[engine.name] = engine.filters(topics[FLOATS], own)
                print(engine.name, passed[engine.name], flush=True)
            print(
                engine.name,
                {kind: one.reason or one.rows for kind, one in outcomes[engine.name].items()},
                flush=True,
            )
        if not names:
            own = folder / "attacks"
            own.mkdir()
            one = topics["compacted"]
            run = Run(
                tuple(KINDS),
                outcomes,
                {kind: one.copied for kind, one in topics.items()},
                passed,
                passed_in_the_log(topics[FLOATS]),
                attacked_delta(one.log, one.delta, own),
                attacked_iceberg(one, own),
            )
            before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
            PAGE.write_text(before + BEGIN + rendered(run) + END + rest.split(END)[1], encoding="utf-8")
        for one in topics.values():
            one.log.close()
    differ = [one for each in outcomes.values() for one in each.values() if one.rows is None]
    wrong = [one for each in passed.values() for one in each.values() if one.filtered != one.judged]
    return 1 if differ or wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

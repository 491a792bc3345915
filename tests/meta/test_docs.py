"""Documentation is executed, its links lead somewhere, and what it lists is what the code has."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_datasource.options import declared
from spark_datasource.options.read import parse_read_options
from spark_datasource.options.values import Option
from spark_datasource.options.write import parse_stream_write_options, parse_write_options
from tests.meta.kinds import KINDS
from tests.meta.markdown import ROOT, blocks, codes, prose, section, tables
from tests.meta.runner import NOT_RUN, in_directory, run_blocks
from txnformat import errors
from txnformat.core.invariants import INVARIANTS
from txnformat.errors import TxnLogError
from txnformat.protocol.commit import CommitSettings
from txnformat.reading.rows import METADATA_FIELDS

FILES = sorted(
    path.relative_to(ROOT)
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("notebooks/*.md"),
        *ROOT.glob("tests/**/*.md"),
    ]
)
SPARK = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
LIMITS = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def _text(path: Path | str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


# --- code blocks -----------------------------------------------------------------------------------------------------


RUN = [
    "README.md",
    "docs/quickstart.md",
    "docs/concepts.md",
    "docs/lingering.md",
    "docs/subscriptions.md",
    "docs/metrics.md",
    "docs/operations.md",
    "docs/buffers.md",
    "docs/from-delta.md",
    "docs/from-kafka.md",
    "docs/consumers.md",
    "docs/exactly-once.md",
    "docs/history-checker.md",
]


@pytest.mark.parametrize("name", RUN)
def test_every_python_block_runs(name: str, tmp_path: Path) -> None:
    """Top to bottom in one namespace; what needs Spark runs in tests/spark/test_docs_spark.py."""
    with in_directory(tmp_path):
        assert run_blocks(name, {}, with_spark=False) >= 1


def test_a_block_that_fails_is_reported_with_its_line() -> None:
    with pytest.raises(AssertionError) as caught:
        run_blocks("sample.md", {}, with_spark=False, text="\n\n```python\nx = 1\nassert x == 2\n```\n")
    assert caught.traceback[-1].lineno == 4  # zero-based
    assert str(caught.traceback[-1].path).endswith("sample.md")


@pytest.mark.parametrize("path", FILES, ids=str)
def test_blocks_of_python_are_left_out_only_with_a_reason(path: Path) -> None:
    run = {*RUN, "docs/spark.md", "docs/spark-transactions.md", "docs/streaming.md", "docs/recipes.md"}
    for block in blocks(_text(path)):
        if block.info == "python" and str(path) not in run:
            assert NOT_RUN.fullmatch(block.before), f"{path}:{block.line} is not run, and no comment says why"
        assert block.info != "py", f"{path}:{block.line}: call it python"


# --- links and commands ----------------------------------------------------------------------------------------------


def _anchor(heading: str) -> str:
    """Return the anchor that a heading gets on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _links(path: Path) -> Iterator[str]:
    for match in re.finditer(r"\[[^\]]*\]\(([^)\s]+)\)", prose(_text(path))):
        yield match[1]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    for link in _links(path):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (ROOT / path.parent / target) if target else ROOT / path
        assert file.exists(), f"{path}: {link}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", prose(file.read_text(encoding="utf-8")), re.MULTILINE)
            assert anchor in set(map(_anchor, headings)), f"{path}: {link}"


def test_links_are_found() -> None:
    assert "docs/spec.md" in set(_links(Path("README.md")))


MAKEFILE = _text("Makefile")
TARGETS = set(re.findall(r"^([a-z0-9-]+):(?!=)", MAKEFILE, re.MULTILINE))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_every_make_target_that_is_named_exists(path: Path) -> None:
    text = _text(path)
    named = set(re.findall(r"`make ([a-z0-9-]+)", text)) | set(
        re.findall(r"^ *make ([a-z0-9-]+)", text, re.MULTILINE)
    )
    assert named <= TARGETS


def test_the_readme_names_the_commands_that_a_newcomer_needs() -> None:
    assert (
        {"demo", "test", "help"}
        <= set(re.findall(r"\bmake ([a-z][a-z0-9-]*)", _text("README.md")))
        <= TARGETS
    )


@pytest.mark.parametrize("path", FILES, ids=str)
def test_every_file_of_the_tree_that_is_named_exists(path: Path) -> None:
    folders = "bench|demo|docs|notebooks|spark_datasource|tests|txnformat|writers"
    for name in re.findall(rf"`((?:{folders})/[\w./-]+\.(?:py|md|ipynb|json))(?:::\w+)?`", _text(path)):
        if not re.search(r"\bNN(?:NN)?[_-]", name):  # a pattern of names
            assert (ROOT / name).exists(), f"{path}: {name}"


# --- docs/spark.md ---------------------------------------------------------------------------------------------------


def _option_rows(direction: str) -> dict[str, list[str]]:
    (table,) = [table for table in tables(SPARK) if table.header[0] == f"{direction} option"]
    return {codes(row[0])[0]: row for row in table.rows}


READ_MINIMUM = {"path": "/log", "topic": "orders"}


@pytest.mark.parametrize(
    ("direction", "known"),
    [
        ("read", declared.READ),
        ("write", declared.WRITE),
        ("stream write", declared.STREAM_WRITE),
    ],
)
def test_the_options_are_exactly_those_of_the_code(direction: str, known: Mapping[str, Option]) -> None:
    names = [name for each in known.values() for name in (each.name, each.alias) if name is not None]
    assert list(_option_rows(direction)) == names


def _parse(direction: str, given: dict[str, str]) -> Any:
    minimum = {name: value for name, value in READ_MINIMUM.items() if name not in given}
    if given.keys() & {"subscribe", "subscribePattern"}:
        del minimum["topic"]
    if direction == "write" and "txnAppId" in given:
        given = {**given, "txnVersion": "1"}
    elif "txnVersion" in given:
        given = {**given, "txnAppId": "job"}
    return PARSERS[direction]({**minimum, **given})


PARSERS: dict[str, Callable[[dict[str, str]], Any]] = {
    "read": parse_read_options,
    "write": parse_write_options,
    "stream write": parse_stream_write_options,
}


OPTION_ROWS = [
    (direction, name, row) for direction in PARSERS for name, row in _option_rows(direction).items()
]


@pytest.mark.parametrize(("direction", "name", "row"), OPTION_ROWS, ids=lambda value: str(value)[:30])
def test_examples_of_options_are_accepted_and_defaults_are_what_happens_without(
    direction: str, name: str, row: list[str]
) -> None:
    _, _, default, example, _ = row
    accepted = _parse(direction, {name: codes(example)[0]})
    plain = _parse(direction, {})
    if name not in (
        "path",
        "topic",
        "subscribe",
        "checkpointLocation",
        "queryName",
    ):  # the last two are Spark's
        assert accepted != plain, "an example should do something"
    if name == "partitions":  # decided when the topic is created
        assert (codes(default), getattr(plain, "write", plain).partitions) == (["1"], None)
        return
    if name == "startingOffsets":  # what it is by default depends on what is read
        return
    for value in codes(default):
        if "()" not in value:
            assert _parse(direction, {name: value}) == plain


def test_the_options_of_later_versions_are_named_and_refused() -> None:
    later = section(SPARK, "## Not in this version")
    assert codes(later) == list(declared.LATER)
    for name in declared.LATER:
        with pytest.raises(TxnLogError, match="is not supported by this version"):
            parse_read_options({**READ_MINIMUM, name: "1"})


def test_the_metadata_columns_are_those_of_the_code() -> None:
    (table,) = tables(section(SPARK, "## Metadata columns"))
    assert [codes(row[0])[0] for row in table.rows] == list(METADATA_FIELDS)


@pytest.mark.parametrize("name", ["docs/spark.md", "docs/streaming.md"])
def test_every_error_code_is_one_that_the_code_can_give(name: str) -> None:
    named = re.findall(r"TXNLOG_[A-Z_]+", _text(name))
    assert len(named) > 10
    assert {name.removeprefix("TXNLOG_").lower().replace("_", "-") for name in named} <= KINDS


# --- docs/quickstart.md ----------------------------------------------------------------------------------------------


def test_the_quickstart_says_of_every_error_what_to_do() -> None:
    (table,) = tables(section(_text("docs/quickstart.md"), "## Errors"))
    assert sorted(
        [
            *(name for row in table.rows for name in codes(row[0])),
            "FormatError",
            "SequenceError",
            "TxnLogError",
        ]
    ) == sorted(errors.__all__)


# --- docs/limits.md --------------------------------------------------------------------------------------------------

UNITS = {"KiB": 2**10, "MiB": 2**20, "s": 1_000, "ms": 1}

# What a row of docs/limits.md says, and the constants (module:name) that its numbers are, in order.
LIMIT_CONSTANTS: dict[str, tuple[str, ...]] = {
    "commit entry, as stored": ("txnformat.core.entry:ENTRY_BYTES_MAX",),
    "operations in one entry": ("txnformat.core.entry:OPERATIONS_MAX",),
    "items that operations of one entry list together, each counted by its longest list": (
        "txnformat.core.entry:ITEMS_MAX",
    ),
    "columns of a topic, with the fields of structs": ("txnformat.columns.arrow_types:COLUMNS_MAX",),
    "batches that an entry names itself; more go to a batch table": (
        "txnformat.core.records.batch_table:BATCHES_IN_ENTRY_MAX",
    ),
    "bundle of 100 entries; more are read one by one": ("txnformat.core.wire.bundle:BUNDLE_BYTES_MAX",),
    "partitions of one topic": ("txnformat.field_types:PARTITIONS_MAX",),
    "partitions of all topics of a log": ("txnformat.field_types:LOG_PARTITIONS_MAX",),
    "versions of one topic's schema": ("txnformat.field_types:SCHEMAS_MAX",),
    "JSON of a snapshot, and its tables: [what fits](#what-fits-into-a-snapshot)": (
        "txnformat.core.wire.document:METADATA_BYTES_MAX",
    ),
    "snapshot as stored": ("txnformat.store.object_sizes:SNAPSHOT_BYTES_MAX",),
    "`format.json`, `latest`, a boundary": ("txnformat.core.wire.document:SMALL_BYTES_MAX",),
    "any other object that a reader asks for without its size": (
        "txnformat.store.object_sizes:OTHER_BYTES_MAX",
    ),
    "decompressed metadata object": ("txnformat.core.wire.document:METADATA_BYTES_MAX",),
    "JSON of an entry or a snapshot, for each byte as stored (at least 1 MiB)": (),
    "the same, above 4 MiB: memory by the number of its values, for each byte as stored": (),
    "intents in one entry": ("txnformat.core.entry:OPERATIONS_MAX",),
    "decompressed sidecar, segment list or batch table; or 64 times what is stored, if that is more": (
        "txnformat.columns.arrow_messages:WHOLE_BYTES_MAX",
    ),
    "decompressed page of a data file, and pages and dictionaries that are decompressed side by side; or 100 times what is stored, if that is more": (
        "txnformat.segments.pages:PAGE_BYTES_MAX",
    ),
    "what a decoder needs for the lists of a row group, beyond some times the stored bytes of each column": (
        "txnformat.segments.footer_shape:LISTS_BYTES_MAX",
        "txnformat.segments.footer_shape:LISTS_RATIO_MAX",
    ),
    "segment lists of a state": ("txnformat.core.sealing.lists:LISTS_MAX",),
    "string in metadata": ("txnformat.field_types:TEXT_BYTES_MAX",),
    "regular expression of names (`subscribePattern`, `--pattern`)": (),
    "topic name": ("txnformat.keys:NAME_CHARS_MAX",),
    "column name": ("txnformat.columns.arrow_types:COLUMN_NAME_CHARS_MAX",),
    "transactional id": ("txnformat.keys:TRANSACTIONAL_ID_BYTES_MAX",),
    "SQL condition of a read": (
        "txnformat.predicates.sql:WHERE_CHARS_MAX",
        "txnformat.predicates.sql:WHERE_NESTING_MAX",
    ),
    "nesting of a column's type": ("txnformat.columns.arrow_types:NESTING_MAX",),
    "levels of a column in Parquet: a list or a map counts two, a struct and a value one": (
        "txnformat.columns.arrow_types:PARQUET_LEVELS_MAX",
    ),
    "topics that one Spark write may route rows to": ("spark_datasource.write.routing:ROUTED_TOPICS_MAX",),
    "producer ids, epochs, sequences, offsets": (),
    "intents remembered": ("txnformat.core.state:INTENT_WINDOW_ENTRIES",),
    "appends remembered per producer and partition": ("txnformat.core.producers.state:WINDOW_APPENDS",),
    "age of a view that proves the tip by itself": ("txnformat.protocol.view:VIEW_AGE_MS_MAX",),
    "an unused transactional id": ("txnformat.core.lifecycle.idle:TRANSACTIONAL_ID_RETENTION_MS",),
    "an unused consumer group": ("txnformat.core.lifecycle.idle:GROUP_RETENTION_MS",),
    "session timeout of a group's member": ("txnformat.core.groups.checks:SESSION_TIMEOUT_MS_MAX",),
    "separate ranges of acknowledged and pending records, per partition of a subscription": (
        "txnformat.core.subscriptions.state:ACK_RANGES_MAX",
    ),
    "a producer without one that appends nothing": ("txnformat.core.lifecycle.idle:PRODUCER_RETENTION_MS",),
    "how many times as many workers a parallel job had before, at most, when its leftovers are cleaned": (
        "txnformat.core.transactions.lingering:SAFE_SCALE_DOWN_FACTOR",
    ),
    "a writer's clock against store time": ("txnformat.core.assemble:CLOCK_SKEW_MS_MAX",),
    "isolation level": (),
    "extents in the state before a writer seals them": (
        "txnformat.protocol.commit:CommitSettings.seal_extents",
    ),
    "decoded sidecars that a process keeps for its next reads of a log": (
        "txnformat.reading.sealed:KEPT_BYTES",
    ),
    "partitions that one seal takes": ("txnformat.protocol.sealing:PARTITIONS_MAX",),
    "batches that one seal takes, unless a single append has more in a partition": (
        "txnformat.protocol.sealing:BATCHES_MAX",
    ),
    "batches of one append in one partition that can be sealed": (
        "txnformat.protocol.sealing:UNSEALABLE_BATCHES",
    ),
    "sealed segments in the state before they go to a segment list": (
        "txnformat.protocol.sealing:LISTED_SEGMENTS",
        "txnformat.protocol.sealing:LISTED_ROWS",
    ),
    "rows of a segment list that a writer makes; `maintain` makes larger ones": (
        "txnformat.protocol.sealing:LIST_ROWS_MAX",
    ),
    "rows of the largest segment list; beyond it there are several of this size": (
        "txnformat.core.sealing.lists:ROWS_MAX",
    ),
    "rows of a record batch when reading": ("txnformat.reading.rows:ROWS_PER_BATCH",),
    "lost slots before `ConflictError` (`commit-contention`)": (
        "txnformat.protocol.commit:CommitSettings.attempts_max",
    ),
    "time before an unclear commit answers `CommitStateUnknownError`": (
        "txnformat.protocol.commit:CommitSettings.deadline_ms",
    ),
    "times that a Spark write hands in one commit while its outcome is unknown, each with that time": (
        "spark_datasource.worker.logs:COMMIT_TRIES_MAX",
    ),
    "producer id block": ("txnformat.core.intents:AllocateIds.count",),
    "snapshot": (
        "txnformat.protocol.snapshots:TAIL_ENTRIES_MIN",
        "txnformat.protocol.snapshots:BYTES_PER_ENTRY",
    ),
    "S3: attempts of a request that may be repeated": (
        "txnformat.store.s3.store:ATTEMPTS_MAX",
        "txnformat.store.s3.store:BACKOFF_MS_MAX",
    ),
    "S3: part of a multipart upload, and largest single PUT": ("txnformat.store.s3.upload:PART_BYTES",),
    "what a decoder needs for the lists of a row group that is written; more if a single row needs more": (
        "txnformat.segments.writer:LISTS_DECODED_BYTES_MAX",
    ),
    "row group": (
        "txnformat.segments.writer:ROW_GROUP_BYTES_MAX",
        "txnformat.segments.writer:LISTS_ROW_GROUP_BYTES_MAX",
    ),
    "value that is sent as one record; a larger one becomes several, in a transaction only": (
        "writers.settings:ProducerSettings.chunk_bytes",
    ),
    "chunks of large values that a reader holds; more are read again when they are asked for": (
        "txnformat.values:HELD_BYTES_MAX",
    ),
    "what a reader decodes in one go, at least a row group; up to three more are on their way": (
        "txnformat.segments.reader:WINDOW_BYTES",
        "txnformat.segments.reader:WINDOW_DECODED_BYTES",
    ),
    "row groups that decode to more are read by rows, in pieces of about 16 MiB": (
        "txnformat.segments.reader:WHOLE_BYTES_MAX",
    ),
    "segment file before the next is begun": ("writers.upload:ROLL_BYTES",),
    "split of a Spark read": ("spark_datasource.options.declared:BYTES_PER_PARTITION_DEFAULT",),
    "records of one poll": ("txnformat.consumers.settings:ConsumerSettings.max_poll_records",),
    "wait between two looks of an idle consumer": ("txnformat.consumers.reading:WAIT_MS_MAX",),
    "time between commits that a consumer makes by itself, if it is told to": (
        "txnformat.consumers.settings:ConsumerSettings.auto_commit_interval_ms",
    ),
    "time after the last use of its group that a member counts as live for resets and deletion; at most": (
        "txnformat.consumers.settings:ConsumerSettings.session_timeout_ms",
        "txnformat.core.groups.checks:SESSION_TIMEOUT_MS_MAX",
    ),
    "time that a consumer waits for positions that are pending in a transaction": (
        "txnformat.consumers.settings:ConsumerSettings.default_api_timeout_ms",
    ),
    "compressed data that a consumer holds over all partitions": (
        "txnformat.consumers.fetching:OPEN_BYTES_MAX",
    ),
    "linger of a producer without transactions": ("writers.settings:ProducerSettings.linger_ms",),
    "time of a transaction whose records have offsets, from its first flush": (
        "writers.settings:ProducerSettings.transaction_timeout_ms",
    ),
    "longest such time that a producer may ask for, unless the log was created with another": (
        "txnformat.core.transactions.state:MAX_TRANSACTION_TIMEOUT_MS",
    ),
    "time of a transaction whose records have none yet, from its last flush": (
        "writers.settings:ProducerSettings.deferred_timeout_ms",
    ),
    "longest such time, and longest that a log can be created with": (
        "txnformat.core.transactions.state:DEFERRED_TIMEOUT_MS_MAX",
    ),
    'time after its first upload beyond which a transaction with `buffer="auto"` goes on as deferred': (
        "writers.session:UNNAMED_MS_MAX",
    ),
    "batches beyond which it does so": ("txnformat.core.records.batch_table:BATCHES_IN_ENTRY_MAX",),
    "others' transactions, whose time is over, that a writer ends with an entry of its own": (
        "txnformat.protocol.expiry:PIGGYBACK_MAX",
    ),
    "buffer of one partition before it is written as a batch": (
        "writers.settings:ProducerSettings.batch_bytes",
    ),
    "buffers of a producer over all partitions": ("writers.settings:ProducerSettings.buffer_bytes",),
}


def _constant(place: str) -> int:
    module, _, path = place.partition(":")
    owner, _, attribute = path.partition(".")
    found: Any = getattr(importlib.import_module(module), owner)
    if not attribute:
        return int(found)
    return int(inspect.signature(found).parameters[attribute].default)


def _numbers(cell: str) -> list[int]:
    """Return the numbers of a cell, with their units applied."""
    found = re.findall(r"(?<![\w-])(\d[\d,]*)(?: (KiB|MiB|s|ms)\b)?", re.sub(r"`[^`]*`", "", cell))
    return [int(number.replace(",", "")) * UNITS.get(unit, 1) for number, unit in found]


LIMIT_ROWS = {row[0]: row for table in tables(LIMITS) for row in table.rows}


def test_every_limit_has_a_row_and_every_row_its_constant() -> None:
    assert set(LIMIT_ROWS) == set(LIMIT_CONSTANTS)


@pytest.mark.parametrize("name", [name for name, places in LIMIT_CONSTANTS.items() if places])
def test_every_number_of_the_limits_is_that_of_the_code(name: str) -> None:
    places = LIMIT_CONSTANTS[name]
    assert _numbers(LIMIT_ROWS[name][1]) == [_constant(place) for place in places]


@pytest.mark.parametrize("name", [name for name, places in LIMIT_CONSTANTS.items() if places])
def test_the_limits_name_the_place_of_the_constant(name: str) -> None:
    for named in codes(LIMIT_ROWS[name][2]) if len(LIMIT_ROWS[name]) == 3 else []:
        module, _, path = LIMIT_CONSTANTS[name][0].partition(":")
        assert named in (module.replace(".", "/") + ".py", path) or not named.endswith(".py"), named


def test_the_default_isolation_level_is_named() -> None:
    assert codes(LIMIT_ROWS["isolation level"][1]) == [str(_parse("read", {}).isolation)]
    assert CommitSettings().attempts_max == _constant("txnformat.protocol.commit:CommitSettings.attempts_max")


# --- ARCHITECTURE.md -------------------------------------------------------------------------------------------------


def _invariants() -> list[list[str]]:
    (table,) = tables(section(ARCHITECTURE, "## Invariants"))
    return table.rows


def test_the_invariants_are_exactly_those_of_the_code() -> None:
    assert [(number, text) for number, text, _ in _invariants()] == list(INVARIANTS.items())


@pytest.mark.parametrize("row", _invariants(), ids=lambda row: str(row[0]))
def test_the_tests_that_show_an_invariant_are_there(row: list[str]) -> None:
    named = codes(row[2])
    assert named
    for name in named:
        file, _, function = name.partition("::")
        assert f"\ndef {function}(" in _text(file), name


def test_documentation_names_no_place_of_this_machine() -> None:
    root = str(ROOT)
    for path in FILES:
        assert root not in _text(path)


def test_the_changelog_has_a_section_for_what_is_not_released() -> None:
    assert "## [Unreleased]" in _text("CHANGELOG.md")

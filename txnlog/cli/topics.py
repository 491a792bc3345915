"""``create``, ``topics``, ``create-topic``, ``alter-log``, ``describe``, ``offsets``, ``rotate-key``,
``upgrade``: a log and its topics.
"""

from __future__ import annotations

import datetime
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from txnlog.cli.exchange.schemas import ABOUT_A_FILE, schema_in, with_schema_format
from txnlog.cli.options import TOPIC, Duration, Integer, Place, settings_option, with_place
from txnlog.cli.output import Table, counted, instant, print_json, say, say_parts, show_lines
from txnlog.cli.records.columns import parse_columns

if TYPE_CHECKING:
    from txnformat.admin.describe import LogDescription
    from txnformat.log import TxnLog

__all__ = [
    "alter_log",
    "create",
    "create_topic",
    "describe",
    "offsets",
    "rotate_key",
    "show_topic",
    "topics",
    "upgrade",
]

OPEN = Table(
    "TransactionalId State Buffer StagedRecords Started Expires",
    state=lambda one: one.status,
    staged_records=lambda one: sum(count for _, _, count in one.staged_records),
    started=lambda one: instant(one.started_ms),
    expires=lambda one: instant(one.expires_ms),
)
OFFSETS = Table(
    "Topic Partition EarliestOffset LastStableOffset LatestOffset HeldBy",
    earliest_offset=lambda part: part.earliest,
    latest_offset=lambda part: part.log_end,
    held_by=lambda part: part.held_by and part.held_by.transactional_id,
)


@click.command()
@with_place
@click.option("--exist-ok", is_flag=True, help="Accept a log that exists already.")
def create(place: Place, exist_ok: bool, as_json: bool) -> None:
    """Create a log."""
    from txnformat.log import TxnLog

    make = TxnLog.open_or_create if exist_ok else TxnLog.create
    with make(place.root, **place.arguments()) as log:
        if as_json:
            print_json({"url": log.url, "log_id": log.log_id, "entry": log.state.entry})
        else:
            say(f"log {log.log_id} at {log.url}")


@click.command()
@with_place
def topics(place: Place, as_json: bool) -> None:
    """List the topics."""
    with place.open() as log:
        names = log.topics()
    if as_json:
        print_json({"topics": names})
        return
    for name in names:
        say(name)
    if not names:
        show_lines("the log has no topics: `txnlog create-topic` makes one", sys.stderr)


@click.command("create-topic")
@click.argument("topic", type=TOPIC)
@with_place
@click.option(
    "--column",
    "-c",
    "columns",
    multiple=True,
    metavar="NAME:TYPE",
    help="A column, as in id:int64 or price:decimal(10,2); repeat the option.",
)
@click.option(
    "--schema",
    metavar="kafka|FILE",
    help='In place of columns: "kafka" (key, value, headers, timestamp), or a file with a schema: Avro '
    "(.avsc), JSON Schema or Spark's JSON (.json), Protobuf (.proto, .desc), Arrow (.arrow), Parquet "
    "(.parquet), Spark's DDL (.ddl, .sql).",
)
@with_schema_format
@click.option(
    "--partitions",
    "-p",
    type=Integer(),
    default=1,
    show_default=True,
    help="Number of partitions; it can only grow later.",
)
@click.option(
    "--key-column",
    "keys",
    multiple=True,
    metavar="NAME",
    help="Records with equal keys go to one partition; repeat the option.",
)
@click.option("--timestamp-column", metavar="NAME", help="The column that is the records' time.")
@settings_option
@click.option("--exist-ok", is_flag=True, help="Accept a topic that exists already, if it is the same.")
def create_topic(
    topic: str,
    place: Place,
    columns: tuple[str, ...],
    schema: str | None,
    schema_format: str | None,
    message: str | None,
    keys: tuple[str, ...],
    as_json: bool,
    **others: Any,  # partitions, timestamp_column, settings and exist_ok
) -> None:
    """Create TOPIC."""
    if columns and schema:
        raise click.UsageError("give either --column or --schema, not both")
    if not columns and not schema:
        raise click.UsageError("give --column (repeatedly), or --schema kafka, or --schema FILE")
    wanted: Any = parse_columns(columns) if columns else schema
    if schema and schema != "kafka":
        wanted = schema_in(schema, schema_format, message)
    elif schema_format or message:
        raise click.UsageError(ABOUT_A_FILE)
    with place.open() as log:
        log.create_topic(topic, wanted, key_columns=keys or None, **others)
        show_topic(log, topic, as_json)


class _DurationOrOff(Duration):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return None if value == "off" else super().convert(value, param, ctx)


@click.command("alter-log")
@with_place
@click.option(
    "--truncate-older-than",
    type=_DurationOrOff(),
    required=True,
    metavar="DURATION|off",
    help="Let `txnlog maintain all` delete commit entries older than this: 7d, 30d, at least 7d; off "
    "(default): entries are kept.",
)
def alter_log(place: Place, truncate_older_than: datetime.timedelta | None, as_json: bool) -> None:
    """Change settings of the whole log. A log of an older version needs `txnlog upgrade` once before."""
    with place.open() as log:
        age_ms = log.alter(truncate_older_than=truncate_older_than).truncate_older_than_ms
    if as_json:
        print_json({"truncate_older_than_ms": age_ms})
    else:
        say(f"TruncateOlderThan: {_age(age_ms)}")


def _age(age_ms: int) -> str:
    return "off" if age_ms < 0 else str(datetime.timedelta(milliseconds=age_ms)).removesuffix(", 0:00:00")


@click.command()
@click.argument("topics", type=TOPIC, nargs=-1, metavar="[TOPIC]...")
@with_place
def describe(topics: tuple[str, ...], place: Place, as_json: bool) -> None:
    """Describe the log and its topics.

    Shows columns and partitions, the transactional id that holds a partition's last stable offset back, and
    what makes the state grow. As JSON also which process may hand out which producer ids
    (producer_id_blocks).
    """
    with place.open() as log:
        for name in topics:
            log.state.topic(name)
        description = _only(log.describe(), topics)
    if as_json:
        print_json(description.to_dict())
        return
    if not topics:
        say_parts(
            f"Log: {description.url}",
            f"LogId: {description.log_id}",
            f"Entry: {description.entry if description.entry >= 0 else '-'}",
            f"Timestamp: {instant(description.timestamp_ms) if description.entry >= 0 else '-'}",
        )
        if description.truncate_older_than_ms >= 0:
            say(f"TruncateOlderThan: {_age(description.truncate_older_than_ms)}")
    _show(description)
    opened = [one for one in description.transactions if one.buffer is not None]
    if opened and not topics:
        if description.boundary:
            say(
                f"Boundary: {description.boundary}  (entries below it may be deleted; bundles have their "
                "history)"
            )
        say("")
        OPEN.show(opened)
    if not topics:
        for one in description.growing:
            place_of_it = f"{one.topic}/{one.partition}: " if one.topic else ""
            say(f"warning: the state grows ({one.kind}, {one.count:,}): {place_of_it}{one.cause}; {one.hint}")


@click.command()
@click.argument("topics", type=TOPIC, nargs=-1, metavar="[TOPIC]...")
@with_place
def offsets(topics: tuple[str, ...], place: Place, as_json: bool) -> None:
    """Show the offsets of each partition.

    read_committed ends before LastStableOffset, read_uncommitted before LatestOffset.
    """
    with place.open() as log:
        for name in topics:
            log.state.topic(name)
        description = _only(log.describe(), topics)
    found = [part for topic in description.topics for part in topic.offsets]
    if as_json:
        print_json(
            {"offsets": [{**asdict(part), "lag": part.log_end - part.last_stable_offset} for part in found]}
        )
    else:
        OFFSETS.show(found)


def _only(description: LogDescription, topics: tuple[str, ...]) -> LogDescription:
    """Return a description with the named topics only; with all of them when none is named."""
    if not topics:
        return description
    return replace(description, topics=tuple(topic for topic in description.topics if topic.name in topics))


def show_topic(log: TxnLog, topic: str, as_json: bool) -> None:
    """Show one topic as it is now."""
    description = _only(log.describe(), (topic,))
    if as_json:
        print_json(description.topics[0])
    else:
        _show(description)


def _show(description: LogDescription) -> None:
    for topic in description.topics:
        columns = ", ".join(f"{name}:{type_}" for name, type_ in topic.columns.items())
        say("")
        say_parts(f"Topic: {topic.name}", f"TopicId: {topic.topic_id}", f"PartitionCount: {topic.partitions}")
        say(
            f"KeyColumns: {', '.join(topic.key_columns) or '-'}  TimestampColumn: "
            f"{topic.timestamp_column or '-'}"
        )
        say(f"Columns: {columns}")
        if topic.dropped:
            say(
                f"Dropped: {', '.join(f'{one.name}:{one.type} (place {one.place})' for one in topic.dropped)}"
            )
        if list(topic.places.values()) != list(range(len(topic.places))):
            say(f"Places: {', '.join(f'{name}={place}' for name, place in topic.places.items())}")
        if topic.settings:
            say(f"Settings: {', '.join(f'{name}={value}' for name, value in topic.settings.items())}")
        if topic.dirty_ratio is not None:
            say(f"DirtyRatio: {topic.dirty_ratio:.2f}")
        OFFSETS.show(topic.offsets)


@click.command()
@with_place
@click.option(
    "--embedding",
    is_flag=True,
    help="Also allow small transactions to be stored in their entries: one request each.",
)
@click.option(
    "--columns",
    is_flag=True,
    help="Also allow columns of topics to be renamed and dropped.",
)
def upgrade(place: Place, embedding: bool, columns: bool, as_json: bool) -> None:
    """Allow maintenance to remove data from a log that an older version created.

    New logs need no upgrade: they allow it from the start. In other logs the command allows settings of
    topics, and commands that remove or rewrite records, topics, old entries and old files: delete-records,
    compact, vacuum, truncate, erase, delete-topic. After the upgrade, older versions of txnlog can neither
    read nor write the log: upgrade txnlog first in every process that uses it.
    """
    with place.open() as log:
        upgraded = log.upgrade(embedding=embedding, columns=columns)
    if as_json:
        print_json({"upgraded": upgraded, "features": sorted(log.state.features.reader)})
    else:
        say("upgraded" if upgraded else "nothing to do: the log is upgraded already")


@click.command("rotate-key")
@with_place
@click.option(
    "--master",
    is_flag=True,
    help="Wrap the log's data keys by the newest master key instead; older master keys are no longer needed.",
)
def rotate_key(place: Place, master: bool, as_json: bool) -> None:
    """Give an encrypted log a new data key, for what is written from now on."""
    with place.open() as log:
        count = log.rotate_key(master=master)
    if as_json:
        print_json({"wrapped" if master else "made": count})
    else:
        say(f"{counted(count, 'data key')} {'wrapped again' if master else 'made'}")

"""With --json a command prints values of JSON: never what Python calls one of its objects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import click
import msgspec
import pyarrow as pa
import pytest

from tests.cli.conftest import Answer, Command
from tests.cli.left_open import left_open, prepare
from txnlog import Consumer, Producer, Subscription, TxnLog
from txnlog.cli.app import application
from txnlog.cli.output import plain_values

REPR = re.compile(r"\b[A-Z]\w*\(|<[\w.]+[ :]|\bnumpy\.|\b(None|True|False)\b|^[\[({].*'|\bb'")
"""Parts of Python's repr of an object, of numpy's numbers or of a container with texts."""

COMMANDS = """
create --exist-ok
topics
create-topic made --column id:int64 --partitions 2
alter-topic jobs --partitions 3
describe
describe jobs
schema jobs
schema jobs --as parquet
produce jobs -
consume jobs
offsets
offsets jobs
transactions
transactions list
transactions describe done open prepared aborted
transactions describe-producers --topic jobs --partition 0
transactions find-hanging
transactions end-expired
transactions abort-lingering --prefix left --list
transactions abort-lingering --prefix left --parallelism 1 --worker 0 --dry-run
transactions abort open --dry-run
transactions force-terminate prepared --dry-run
transactions abort open --yes
transactions abort-lingering --prefix left --parallelism 1 --worker 0 --yes
transactions force-terminate prepared
groups list
groups describe --all-groups
groups reset-offsets readers --topic jobs --to-earliest
groups reset-offsets readers --topic jobs --to-earliest --execute --force
groups delete readers --dry-run --force
groups delete readers --force
subscriptions create jobs late
subscriptions list
subscriptions describe jobs work
subscriptions seek jobs late --to-latest
subscriptions delete jobs late
history
history --all
dump batches jobs
dump entries
verify
verify --deep
doctor
maintain timeouts
maintain seal
maintain expire
maintain retention
maintain erasures
maintain all
maintain all --dry-run
upgrade
upgrade --columns
alter-topic jobs --add-column note:string
alter-topic jobs --rename-column note=text
alter-topic jobs --drop-column text
describe jobs
alter-log --truncate-older-than 30d
maintain subscriptions
compact --dry-run
maintain all --dry-run
maintain retention --dry-run
compact jobs --min-lag-ms 0
publish
vacuum
truncate
erase jobs --where id=1 --dry-run
erase jobs --where id=2 --requested-by me
erase --status
delete-records jobs --before latest --dry-run
delete-records jobs --before 0
delete-topic jobs --dry-run --force
delete-topic jobs --yes --force
metrics
report --output /dev/null
ui --port 0 --for 0s
rotate-key --root none
describe none
transactions describe none
import kafka none
import delta jobs none
import parquet jobs none
export kafka none
""".strip().splitlines()
"""In this order, on one log."""


def leaves() -> Iterator[tuple[str, ...]]:
    """Yield every command."""

    def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if isinstance(command, click.Group):
            for name, below in command.commands.items():
                yield from walk(below, (*path, name))
        elif any(one.name == "as_json" for one in command.params):
            yield path

    return walk(application, ())


def texts(value: Any) -> Iterator[str]:
    """Yield every text of a JSON document, names too."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)
    elif isinstance(value, str):
        yield value


@pytest.fixture
def busy(log: TxnLog) -> TxnLog:
    """Something of everything that commands show."""
    log.create_topic("jobs", pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]), partitions=2)
    log.create_topic("t", pa.schema([("id", pa.int64())]))
    for name in ("done", "aborted"):
        with Producer(log, name, buffer="inline") as producer:
            producer.begin()
            producer.send("jobs", [{"id": 1, "at": None}] * 3, partition=0)
            producer.flush()
            producer.commit() if name == "done" else producer.abort()
    log.subscriptions.create("jobs", "work")
    Subscription(log, "jobs", "work").acknowledge([(0, 0), (0, 2)])
    with Consumer(log, "readers") as consumer:
        consumer.subscribe(["jobs"])
        consumer.poll()
        consumer.commit()
    left_open(log, "open", "left-0", "prepared")
    prepare(log, "prepared")
    return log


def answers(txnlog: Command, log: TxnLog) -> Iterator[tuple[str, Answer]]:
    for line in COMMANDS:
        yield line, txnlog(*line.split(), "--json", stdin='{"id": 5}\n')
    for key in sorted(one.key for one in log.store.list("")):
        yield f"dump object {key}", txnlog("dump", "object", key, "--json")


def documents(answer: Answer) -> list[Any]:
    try:
        return [answer.json]
    except ValueError:
        return answer.lines


def test_no_command_prints_a_repr_as_json(txnlog: Command, busy: TxnLog) -> None:
    seen, lines = set(), []
    for line, answer in answers(txnlog, busy):
        assert (answer.code != 0) == line.endswith(" none"), (line, answer)
        for text in texts([answer.error] if answer.code else documents(answer)):
            assert not REPR.search(text), (line, text)
        seen |= {tuple(line.split()[:2]), tuple(line.split()[:1])}
        lines.append(line)
    assert [path for path in leaves() if path not in seen] == []
    kinds = {line.rsplit(".", 1)[-1] for line in lines if line.startswith("dump object")}
    assert kinds >= {"json", "parquet", "index", "markers", "txnindex"}, kinds


class Way(StrEnum):
    OUT = "out"


class Inner(msgspec.Struct, frozen=True):
    way: Way
    numbers: tuple[int, ...]


@dataclass
class Outer:
    inner: Inner | None
    more: dict[str, Inner]


def test_declared_values_are_objects_of_json() -> None:
    inner = Inner(Way.OUT, (1, 2))
    shown = {"way": "out", "numbers": [1, 2]}
    assert plain_values(inner) == shown
    assert plain_values([Outer(inner, {"a": inner})]) == [{"inner": shown, "more": {"a": shown}}]
    assert plain_values(Outer(None, {})) == {"inner": None, "more": {}}

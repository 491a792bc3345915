"""Arguments, options and progress that ``import kafka`` and ``export kafka`` share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

from txnlog.cli.failures import IMPORT_INTERRUPTED, Interrupted
from txnlog.cli.options import NUMBER, IntegerRange, Place, parse_pairs, with_place
from txnlog.cli.output import Table, counted
from txnlog.cli.progress import progress

if TYPE_CHECKING:
    from txnlog import TxnLog

__all__ = ["POSITIONS", "transfer", "with_course"]

Command = Callable[..., Any]

POSITIONS = Table(
    "Topic Partition NextOffset",
    topic=lambda topic, _partition, _offset: topic,
    partition=lambda _topic, partition, _offset: partition,
    next_offset=lambda _topic, _partition, offset: offset,
)


class _At(Protocol):
    """How far an import or export is."""

    @property
    def records(self) -> int:
        """Records that arrived."""
        ...

    @property
    def done(self) -> int:
        """Offsets that were passed."""
        ...

    @property
    def total(self) -> int:
        """Offsets to pass."""
        ...


@contextmanager
def transfer(place: Place, *, shown: bool) -> Iterator[tuple[TxnLog, Callable[[_At], None]]]:
    """Give the log and what moves a bar, if it is ``shown``; an interrupt says what it leaves."""
    try:
        with place.open() as log, progress(wanted=shown) as advance:
            yield log, lambda at: advance(at.done, at.total, counted(at.records, "record"))
    except KeyboardInterrupt:
        raise Interrupted(IMPORT_INTERRUPTED) from None


def with_course(
    *, group: str, group_help: str, partitions_help: str, lost_help: str, batch_records: int, batch_help: str
) -> Callable[[Command], Command]:
    """Give a command topics, a log, brokers, and options of where it begins, goes, and stops. The texts
    differ by direction.

    Passed on: ``topics`` (the other name by each name), ``place``, ``kafka`` (properties of the client), and
    the options by their names.
    """
    options: list[Callable[[Command], Command]] = [
        click.argument("topics", nargs=-1, required=True, metavar="TOPIC[=OTHER]...", callback=_parse_topics),
        with_place,
        _with_brokers,
        click.option("--group", default=group, show_default=True, help=group_help),
        click.option(
            "--follow",
            is_flag=True,
            help="Follow the topics. Default: stop at the ends that the partitions had at the start.",
        ),
        click.option(
            "--partitions",
            default="same",
            show_default=True,
            callback=_parse_partitions,
            metavar="same|key|N:M,…",
            help=partitions_help,
        ),
        click.option(
            "--on-lost",
            type=click.Choice(["stop", "continue"]),
            default="stop",
            show_default=True,
            help=lost_help,
        ),
        click.option(
            "--batch-records",
            type=IntegerRange(min=1),
            default=batch_records,
            show_default=True,
            help=batch_help,
        ),
    ]

    def decorate(function: Command) -> Command:
        return functools.reduce(lambda wrapped, option: option(wrapped), reversed(options), function)

    return decorate


def _with_brokers(function: Command) -> Command:
    """Give a command ``--bootstrap-servers`` and ``--config``, passed on as ``kafka``: properties of the
    Kafka client.
    """

    @click.option(
        "--bootstrap-servers",
        "-b",
        envvar="TXNLOG_KAFKA_SERVERS",
        show_envvar=True,
        metavar="HOST:PORT,…",
        help="Some brokers of the cluster.",
    )
    @click.option(
        "--config",
        multiple=True,
        callback=parse_pairs,
        metavar="KEY=VALUE|@FILE",
        help="A property of librdkafka, such as security.protocol=SASL_SSL; repeat the option for more. "
        "@FILE reads lines KEY=VALUE, or a JSON object: put secrets into a file.",
    )
    @functools.wraps(function)
    def wrapped(*arguments: Any, bootstrap_servers: str | None, config: dict[str, str], **others: Any) -> Any:
        servers = {} if bootstrap_servers is None else {"bootstrap.servers": bootstrap_servers}
        return function(*arguments, kafka={**config, **servers}, **others)

    return wrapped


def _parse_topics(
    _context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Return source and target of each topic from texts NAME or NAME=OTHER."""
    found: dict[str, str] = {}
    for text in values:
        source, equals, target = text.partition("=")
        if not source or (equals and not target):
            raise click.BadParameter(f"{text!r:.80} is neither TOPIC nor TOPIC=OTHER", param=parameter)
        if source in found:
            raise click.BadParameter(f"{source!r:.80} is given twice", param=parameter)
        found[source] = target or source
    return found


def _parse_partitions(
    _context: click.Context, parameter: click.Parameter, value: str
) -> str | dict[int, int]:
    """Return ``same``, ``key``, or numbers from a text such as 0:1,1:0."""
    if value in ("same", "key"):
        return value
    found: dict[int, int] = {}
    for pair in value.split(","):
        source, colon, target = pair.strip().partition(":")
        if not (colon and NUMBER.fullmatch(source) and NUMBER.fullmatch(target)) or int(source) in found:
            raise click.BadParameter(
                f"{value!r:.80} is neither same nor key nor a list such as 0:1,1:0 (there:here)",
                param=parameter,
            )
        found[int(source)] = int(target)
    return found

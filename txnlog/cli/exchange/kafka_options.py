"""Options of ``import kafka`` and ``export kafka``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from txnlog.cli.options import NUMBER, parse_pairs
from txnlog.cli.output import Table

__all__ = ["POSITIONS", "parse_partitions", "parse_topics", "with_brokers"]

Command = Callable[..., Any]

POSITIONS = Table(
    "Topic Partition NextOffset",
    topic=lambda topic, _partition, _offset: topic,
    partition=lambda _topic, partition, _offset: partition,
    next_offset=lambda _topic, _partition, offset: offset,
)


def with_brokers(function: Command) -> Command:
    """Give a command ``--bootstrap-servers`` and ``--config``, passed on as ``kafka``: properties of the Kafka client."""

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
        help="A property of librdkafka, such as security.protocol=SASL_SSL; repeat the option for more. @FILE reads lines KEY=VALUE, or a JSON object: put secrets into a file.",
    )
    @functools.wraps(function)
    def wrapped(*arguments: Any, bootstrap_servers: str | None, config: dict[str, str], **others: Any) -> Any:
        servers = {} if bootstrap_servers is None else {"bootstrap.servers": bootstrap_servers}
        return function(*arguments, kafka={**config, **servers}, **others)

    return wrapped


def parse_topics(
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


def parse_partitions(_context: click.Context, parameter: click.Parameter, value: str) -> str | dict[int, int]:
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

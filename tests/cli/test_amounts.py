"""Durations and sizes on the command line: one parser for all options and settings of time and of bytes."""

from __future__ import annotations

import re

import click
import pyarrow as pa
import pytest

from tests.cli.conftest import Command
from tests.meta.cli_reference import commands
from txnformat.core.topics.settings import SETTINGS
from txnlog import TxnLog
from txnlog.cli.options import SIZES, TIMES, Bytes, Duration, Milliseconds, amount_of

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.mark.parametrize(
    ("text", "units", "found"),
    [
        ("7d", TIMES, 604_800_000),
        ("12H", TIMES, 43_200_000),
        ("30m", TIMES, 1_800_000),
        ("45s", TIMES, 45_000),
        ("500ms", TIMES, 500),
        ("60000", TIMES, 60_000),
        ("128MiB", SIZES, 128 * 2**20),
        ("1tib", SIZES, 2**40),
        ("64kB", SIZES, 64_000),
        ("1GB", SIZES, 10**9),
        ("512B", SIZES, 512),
        *((text, TIMES, None) for text in ("", "d", "-7d", "+7d", "7 d", "1_0s", "\u0663d", "1.5h", "7y", "9" * 20)),
        ("1MiB", TIMES, None),
        ("7d", SIZES, None),
        ("9223372036854775807", TIMES, 2**63 - 1),
        ("9223372036854775807d", TIMES, None),
    ],
)  # fmt: skip
def test_a_number_may_have_a_unit(text: str, units: dict[str, int], found: int | None) -> None:
    assert amount_of(text, units, 1) == found


def test_a_unit_is_needed_where_the_option_names_none() -> None:
    assert amount_of("7", TIMES, None) is None
    assert str(Duration().convert("7d", None, None)) == "7 days, 0:00:00"
    for text in ("7", "9223372036854775807", "999999999999d"):
        with pytest.raises(click.BadParameter, match="is not a duration such as 7d, 12h or 30m"):
            Duration().convert(text, None, None)


def test_a_number_alone_counts_what_the_option_names() -> None:
    assert Milliseconds("seconds").convert("90", None, None) == 90_000
    assert Milliseconds("minutes").convert("2", None, None) == 120_000
    assert Milliseconds().convert("2", None, None) == 2
    assert Bytes().convert("2", None, None) == 2
    with pytest.raises(click.BadParameter, match="neither a number of minutes nor a duration such as"):
        Milliseconds("minutes").convert("soon", None, None)
    with pytest.raises(click.BadParameter, match="is not from 5 to 9"):
        Bytes(5, 9).convert("10B", None, None)


def test_every_option_of_time_or_bytes_takes_a_unit() -> None:
    named = re.compile(r"(ms|bytes|timeout|duration|lag|grace|older-than|watch|every|interval)$")
    own = {"--by-duration"}  # in ISO 8601, too
    found = {
        (name, option.opts[0])
        for name, command in commands()
        for option in command.params
        if isinstance(option, click.Option) and named.search(option.opts[0]) and option.opts[0] not in own
        if not option.is_flag and not isinstance(option.type, Milliseconds | Bytes | Duration)
    }
    assert found == set()


def test_settings_of_time_and_bytes_take_a_unit(txnlog: Command, log: TxnLog) -> None:
    log.create_topic("t", SCHEMA)
    timed = [name for name in SETTINGS if name.endswith(".ms")]
    sized = [name for name in SETTINGS if name.endswith(".bytes")]
    assert len(timed) >= 6
    assert len(sized) >= 2
    words = [word for name in timed for word in ("--set", f"{name}=30d")]
    words += [word for name in sized for word in ("--set", f"{name}=2GiB")]
    answer = txnlog("alter-topic", "t", *words, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["settings"] == dict.fromkeys(timed, 30 * 86_400_000) | dict.fromkeys(sized, 2 * 2**30)
    assert (
        txnlog("alter-topic", "t", "--set", "retention.ms=-1", "--json").json["settings"]["retention.ms"]
        == -1
    )
    for text in ("retention.ms=7x", "retention.ms=1GiB", "retention.bytes=7d"):
        refused = txnlog("alter-topic", "t", "--set", text, "--json")
        assert (refused.code, refused.error["kind"]) == (2, "usage")
        assert "such as" in refused.error["message"]
    assert (
        "there is no setting"
        in txnlog("alter-topic", "t", "--set", "retentio.ms=7d", "--json").error["message"]
    )


def test_commands_take_them(txnlog: Command, log: TxnLog) -> None:
    log.create_topic("t", SCHEMA)
    for line in (
        "compact t --target-bytes 64MiB --min-lag-ms 1h",
        "transactions list --duration-filter 15m",
        "transactions find-hanging --max-transaction-timeout 2h",
        "ui --port 0 --every 500ms --for 0s --json",
    ):
        answer = txnlog(*line.split())
        assert answer.code == 0, answer.err
    assert txnlog("maintain", "all", "--watch", "999ms").code == 2

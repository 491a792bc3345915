"""``txnlog metrics``: measures of a log, for people, as JSON, and for Prometheus."""

from __future__ import annotations

import click

from txnlog.cli.options import Place, json_option, with_place
from txnlog.cli.output import counted, print_exact, print_json, print_table, say

__all__ = ["metrics"]

COLUMNS = (
    "Topic",
    "Partition",
    "LogStartOffset",
    "LogEndOffset",
    "LastStableOffset",
    "Lag",
    "OpenTransactions",
    "LateTransactions",
    "PreparedTransactions",
    "OldestTransaction",
    "Records",
    "AbortedShare",
)
GROUP_COLUMNS = ("Group", "State", "Topic", "Partition", "CommittedOffset", "LagRecords")


@click.command()
@with_place
@click.option("--prometheus", is_flag=True, help="Prometheus' text format, for a textfile collector.")
@json_option
def metrics(place: Place, prometheus: bool, as_json: bool) -> None:
    """Measure the log: lag, open, late and prepared transactions, aborted share, and how far groups are behind.

    LagRecords of a group is a bound (<=) while its position lies inside a sealed segment: txnlog groups describe counts.
    """
    if prometheus and as_json:
        raise click.UsageError("--prometheus and --json exclude each other")
    with place.open() as log:
        measured = log.metrics()
    if prometheus:
        print_exact(measured.to_prometheus().removesuffix("\n"))
    elif as_json:
        print_json(measured.to_dict())
    else:
        print_table(
            COLUMNS,
            [
                (
                    part.topic,
                    part.partition,
                    part.log_start,
                    part.log_end,
                    part.last_stable_offset,
                    part.lag,
                    part.open_transactions,
                    part.late_transactions,
                    part.prepared_transactions,
                    part.oldest_transaction.transactional_id if part.oldest_transaction else None,
                    part.records,
                    f"{part.aborted_share:.1%}",
                )
                for part in measured.partitions
            ],
        )
        groups = [
            (
                group.group,
                group.state,
                part.topic,
                part.partition,
                part.committed_offset,
                part.lag_records if part.lag_exact else f"<= {part.lag_records}",
            )
            for group in measured.groups
            for part in group.partitions
        ]
        if groups:
            say("")
            print_table(GROUP_COLUMNS, groups)
        say(
            f"{counted(measured.entries, 'entry')}, {measured.tail_entries} after the newest snapshot; "
            f"{measured.unsealed_extents} extents not sealed; {measured.late_transactions} late and "
            f"{measured.prepared_transactions} prepared transactions"
        )

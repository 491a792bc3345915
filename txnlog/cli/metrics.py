"""``txnlog metrics``: measures of a log, for people, as JSON, and for Prometheus."""

from __future__ import annotations

import click

from txnlog.cli.options import Place, with_place
from txnlog.cli.output import Table, counted, print_exact, print_json, say

__all__ = ["metrics"]

PARTITIONS = Table(
    "Topic Partition LogStartOffset LogEndOffset LastStableOffset Lag OpenTransactions LateTransactions "
    "PreparedTransactions OldestTransaction Records AbortedShare",
    log_start_offset=lambda part: part.log_start,
    log_end_offset=lambda part: part.log_end,
    oldest_transaction=lambda part: part.oldest_transaction and part.oldest_transaction.transactional_id,
    aborted_share=lambda part: f"{part.aborted_share:.1%}",
)
GROUPS = Table(
    "Group State Topic Partition CommittedOffset LagRecords",
    lag_records=lambda part, _: part.lag_records if part.lag_exact else f"<= {part.lag_records}",
)


@click.command()
@with_place
@click.option("--prometheus", is_flag=True, help="Prometheus' text format, for a textfile collector.")
def metrics(place: Place, prometheus: bool, as_json: bool) -> None:
    """Measure the log: lag, open, late and prepared transactions, aborted share, and how far groups are
    behind.

    LagRecords of a group is a bound (<=) while its position lies inside a sealed segment: txnlog groups
    describe counts.
    """
    if prometheus and as_json:
        raise click.UsageError("give either --prometheus or --json, not both")
    with place.open() as log:
        measured = log.metrics()
    if prometheus:
        print_exact(measured.to_prometheus().removesuffix("\n"))
    elif as_json:
        print_json(measured.to_dict())
    else:
        PARTITIONS.show(measured.partitions)
        groups = [(part, group) for group in measured.groups for part in group.partitions]
        if groups:
            say("")
            GROUPS.show(groups)
        say(
            f"{counted(measured.entries, 'entry')}, {measured.tail_entries} after the newest snapshot; "
            f"{measured.unsealed_extents} extents not sealed; {measured.late_transactions} late and "
            f"{measured.prepared_transactions} prepared transactions"
        )

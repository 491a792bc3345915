"""``transactions abort``, ``force-terminate``, ``abort-lingering``, ``end-expired``: end transactions of
other clients.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from txnlog.cli.failures import Interrupted
from txnlog.cli.options import TOPIC, TRANSACTIONAL_ID, IntegerRange, Place, with_place
from txnlog.cli.output import Table, counted, printable, say

if TYPE_CHECKING:
    from txnformat.admin.transactions import EndedTransaction

__all__ = ["COMMANDS", "asked", "confirm", "dry_run_option"]

T = TypeVar("T")

ENDED = Table("TransactionalId ProducerId ProducerEpoch Outcome Entry")
LINGERING = Table(
    "TransactionalId ProducerId ProducerEpoch TransactionState TransactionDurationMs Worker",
    transaction_state=lambda one: one.state,
    transaction_duration_ms=lambda one: one.duration_ms,
)

End = Callable[..., "Sequence[EndedTransaction]"]

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show the effect; change nothing.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask before several transactions are aborted.")


@click.command("abort")
@click.argument("transactional_id", type=TRANSACTIONAL_ID, required=False)
@with_place
@click.option("--prefix", help="All open transactions whose ids begin with this text.")
@click.option(
    "--topic", type=TOPIC, help="With --partition and --start-offset: the transaction that begins there."
)
@click.option("--partition", type=IntegerRange(min=0), help="See --topic.")
@click.option("--start-offset", type=IntegerRange(min=0), help="Its first offset in the partition.")
@dry_run_option
@yes_option
def abort(
    transactional_id: str | None,
    place: Place,
    prefix: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **where: Any,  # topic, partition and start_offset
) -> None:
    """Abort open transactions: of TRANSACTIONAL_ID, of a prefix of ids, or the one that begins at an offset.

    Their producers are fenced. A transaction that ends meanwhile is not an error. Prepared transactions are
    not aborted: see txnlog transactions force-terminate. With a prefix the command shows the transactions and
    asks first.
    """
    with place.open() as log:
        end = partial(log.transactions.abort, transactional_id, prefix=prefix, **where)
        _show(_carry_out(end, dry_run=dry_run, sure=yes or prefix is None), as_json)


@click.command("force-terminate")
@click.argument("transactional_id", type=TRANSACTIONAL_ID)
@with_place
@dry_run_option
def force_terminate(transactional_id: str, place: Place, dry_run: bool, as_json: bool) -> None:
    """Abort the transaction of TRANSACTIONAL_ID for good, also when it is prepared.

    Tell the system that coordinates a prepared transaction: it can no longer commit the transaction.
    """
    with place.open() as log:
        _show([log.transactions.force_terminate(transactional_id, dry_run=dry_run)], as_json)


@click.command("abort-lingering")
@with_place
@click.option("--prefix", required=True, help="The job's ids are PREFIX-0, PREFIX-1, …")
@click.option("--parallelism", type=IntegerRange(min=1), help="Workers that the job has now.")
@click.option("--worker", type=IntegerRange(min=0), help="The worker that cleans up, from 0.")
@click.option(
    "--safe-scale-down-factor",
    type=IntegerRange(min=1),
    default=5,
    show_default=True,
    help="The job had at most this many times the workers before.",
)
@click.option(
    "--opened-before-entry",
    type=IntegerRange(min=0),
    metavar="ENTRY",
    help="Only transactions whose first entry is below this entry. Default: all that are open now.",
)
@click.option(
    "--restored", is_flag=True, help="The job continues from a checkpoint: abort only the worker's own id."
)
@click.option(
    "--list", "only_list", is_flag=True, help="Only list the open transactions, and the worker of each."
)
@dry_run_option
@yes_option
def abort_lingering(
    place: Place,
    prefix: str,
    parallelism: int | None,
    worker: int | None,
    safe_scale_down_factor: int,
    only_list: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **limits: Any,  # opened_before_entry and restored
) -> None:
    """Abort the transactions that an earlier run of a parallel job left open.

    Worker i of p takes the ids PREFIX-k, k an integer, with k = i modulo p and k below p times the factor.
    With --list, Worker is - for transactions that no worker of such a job would abort; --prefix of txnlog
    transactions abort does.
    """
    with place.open() as log:
        if only_list:
            found = log.transactions.lingering(prefix, parallelism, safe_scale_down_factor)
            LINGERING.answer(found, as_json=as_json, name="transactions")
            return
        if parallelism is None or worker is None:
            raise click.UsageError("give --parallelism and --worker, or --list")
        abort_them = log.transactions.abort_lingering
        end = partial(abort_them, prefix, parallelism, worker, safe_scale_down_factor, **limits)
        _show(_carry_out(end, dry_run=dry_run, sure=yes), as_json)


@click.command("end-expired")
@with_place
def end_expired(place: Place, as_json: bool) -> None:
    """End the open transactions whose timeout is over.

    Every commit to the log does this, too; use the command for logs without writes. Prepared transactions
    stay.
    """
    with place.open() as log:
        _show(log.transactions.end_expired(), as_json)


def _carry_out(end: End, *, dry_run: bool, sure: bool) -> Sequence[EndedTransaction]:
    """Abort the transactions, after the user has agreed if ``sure`` is false."""
    if dry_run:
        return end(dry_run=True)
    if not sure:
        would = [one for one in end(dry_run=True) if one.outcome == "would-abort"]
        if would and (sys.stdin is None or not sys.stdin.isatty()):
            raise click.UsageError(
                f"this aborts {counted(len(would), 'transaction')}: add --yes to do it, or --dry-run to "
                "see which"
            )
        if would:
            names = printable(", ".join(one.transactional_id for one in would))
            confirm(f"Abort {counted(len(would), 'transaction')}: {names}?")
    return end()


def confirm(question: str) -> None:
    """Ask, and return if the answer is yes. Raises ClickException and Interrupted: nothing was changed."""
    if not asked(lambda: click.confirm(question, err=True)):
        raise click.ClickException("the answer was no, so nothing was changed")


def asked(ask: Callable[[], T]) -> T:
    """Return the answer to a question. Raises Interrupted: Ctrl-C, or the end of the input, is the answer."""
    try:
        return ask()
    except click.Abort:
        raise Interrupted("interrupted; nothing was changed") from None


def _show(ended: Sequence[EndedTransaction], as_json: bool) -> None:
    if ended or as_json:
        ENDED.answer(ended, as_json=as_json, name="transactions")
    else:
        say("no such transaction is open")


COMMANDS = (abort, force_terminate, abort_lingering, end_expired)

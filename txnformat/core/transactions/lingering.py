"""Transactions that a parallel job left open: which of its workers aborts which. Pure.

Worker i of a job of p workers writes with the transactional id ``prefix-<i>``. When the job starts anew,
perhaps with fewer workers, each worker i aborts what was left open under the ids ``prefix-<k>`` with k ≡ i
(mod p) and k < p × factor: the ranges of the workers never overlap. A job that comes back with less than
1/factor of its workers leaves ids that no worker looks at; the list of all of them shows those.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from txnformat.arguments import is_text
from txnformat.core.state import LogState
from txnformat.core.transactions.listing import duration_ms
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import InvalidInputError, TxnLogError, repr_of
from txnformat.keys import check_transactional_id

__all__ = [
    "SAFE_SCALE_DOWN_FACTOR",
    "LingeringTransaction",
    "check_workers",
    "lingering_transactions",
    "worker_ids",
    "worker_number",
]

SAFE_SCALE_DOWN_FACTOR = 5
"""A job may come back with this part of its workers, and they still find all that it left (Flink's factor).
"""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class LingeringTransaction:
    """An open or prepared transaction under an id ``prefix-<number>``."""

    transactional_id: str
    number: int
    producer_id: int
    producer_epoch: int
    state: TransactionStatus
    started_entry: int
    duration_ms: int
    worker: int | None
    """The worker whose part it is. If None, no worker of such a job aborts it, or no parallelism was given.
    """


def worker_number(transactional_id: str, prefix: str) -> int | None:
    """Return k of ``prefix-<k>``, an integer without leading zeros; None for every other id."""
    start, dash, number = transactional_id.rpartition("-")
    return int(number) if dash and start == prefix and _NUMBER.fullmatch(number) else None


def check_workers(
    prefix: str, parallelism: int | None, worker: int | None, safe_scale_down_factor: int
) -> None:
    """Raise InvalidInputError of kind ``invalid-lingering`` with every problem of a call's arguments."""
    problems = []
    try:
        check_transactional_id(f"{prefix}-0")
    except TxnLogError as error:
        problems.append(str(error))
    if not is_text(prefix):
        problems.append(f"prefix is {repr_of(prefix, 80)}, not a text")
    if prefix == "":
        problems.append("the prefix is empty")
    if parallelism is not None and (type(parallelism) is not int or parallelism < 1):
        problems.append(f"parallelism is {repr_of(parallelism, 80)}, not an integer from 1 on")
    elif worker is not None and (
        type(worker) is not int or parallelism is None or not 0 <= worker < parallelism
    ):
        problems.append(f"worker is {repr_of(worker, 80)}, not an integer from 0 to parallelism - 1")
    if type(safe_scale_down_factor) is not int or safe_scale_down_factor < 1:
        problems.append(
            f"safe_scale_down_factor is {repr_of(safe_scale_down_factor, 80)}, not an integer from 1 on"
        )
    if problems:
        raise InvalidInputError(problems, kind="invalid-lingering")


def worker_ids(
    state: LogState, prefix: str, parallelism: int, worker: int, factor: int, *, own_only: bool
) -> list[str]:
    """Return the existing ids that are a worker's to clean up: its own first, then the others by number."""
    found = []
    for name in state.transactional_ids:
        number = worker_number(name, prefix)
        if number is None or (own_only and number != worker):
            continue
        if number % parallelism == worker and number < parallelism * factor:
            found.append((number, name))
    # The worker's own number is the smallest of its range.
    return [name for _, name in sorted(found)]


def lingering_transactions(
    state: LogState, prefix: str, now_ms: int, parallelism: int | None, factor: int
) -> list[LingeringTransaction]:
    """Return what is open under a job's ids, by number; see :meth:`Transactions.lingering`."""
    found = []
    for name in state.undecided:
        number = worker_number(name, prefix)
        if number is None:
            continue
        known = state.transactional_ids[name]
        worker = None
        if parallelism is not None and number < parallelism * factor:
            worker = number % parallelism
        found.append(
            LingeringTransaction(
                name,
                number,
                known.producer_id,
                known.epoch,
                known.status,
                known.started_entry or 0,
                duration_ms(known, now_ms) or 0,
                worker,
            )
        )
    return sorted(found, key=lambda one: one.number)

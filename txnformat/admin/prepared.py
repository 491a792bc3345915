"""Prepared transactions: what names them, and how their coordinator ends them, from any process.

A transaction that is prepared waits for an outcome that another system decides (two-phase commit, as in
KIP-939). The name can be written down there before it decides: with it alone the transaction is ended, also
after a crash of the process that prepared it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from txnformat import keys
from txnformat.admin.describe import TransactionOutcome, find_outcome
from txnformat.client.committer import Committer
from txnformat.core.intents import ProducerRef, Write
from txnformat.core.operations import Cause
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import (
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    ProducerFencedError,
    repr_of,
)
from txnformat.types import Outcome

__all__ = ["PreparedTransaction", "end_prepared"]

_PREFIX = "txnlog-prepared"
_NUMBER_MAX = 2**62
"""Producer ids and epochs end below this."""
_TOKEN = re.compile(
    rf"{_PREFIX}:([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}):(0|[1-9][0-9]{{0,18}}):(0|[1-9][0-9]{{0,18}}):(.+)",
    re.DOTALL | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """Names a prepared transaction.

    ``str()`` gives the token, ``parse`` reads it. It is no secret and gives no rights.
    """

    log_id: str
    transactional_id: str
    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{_PREFIX}:{self.log_id}:{self.producer_id}:{self.epoch}:{self.transactional_id}"

    @classmethod
    def parse(cls, token: object) -> Self:
        """Return what a token names. Raises InvalidInputError of kind ``invalid-token``."""
        found = _TOKEN.fullmatch(token) if isinstance(token, str) else None
        if found is not None:
            log_id, producer_id, epoch, transactional_id = found.groups()
            try:
                keys.check_transactional_id(transactional_id)
            except InvalidInputError:
                found = None
            else:
                if int(producer_id) < _NUMBER_MAX and int(epoch) < _NUMBER_MAX:
                    return cls(log_id, transactional_id, int(producer_id), int(epoch))
        raise InvalidInputError(
            f"{repr_of(token, 120)} is not the token of a prepared transaction",
            kind="invalid-token",
            hint=f"give the text that str(producer.prepare()) returned: "
            f"{_PREFIX}:<log id>:<producer id>:<epoch>:<transactional id>",
        )


def end_prepared(
    committer: Committer, token: str | PreparedTransaction, outcome: Outcome
) -> TransactionOutcome:
    """End a prepared transaction, or find out that it has ended so.

    Requests: those of a refresh, and 1 entry; none when it has ended, but 1 GET for each entry that is looked
    at when the id has ended others since.

    Raises InvalidInputError (``invalid-token``, ``token-of-another-log``); NotFoundError
    (``unknown-transaction``); InvalidTransactionStateError (``transaction-committed``,
    ``transaction-aborted``: the opposite outcome; ``transaction-not-prepared``); ProducerFencedError
    (``aborted-by-operator``: it was given up by force, and cannot be committed any more).
    """
    named = token if isinstance(token, PreparedTransaction) else PreparedTransaction.parse(token)
    state = committer.refresh()
    if named.log_id != state.log_id:
        raise InvalidInputError(
            "the token is of another log",
            kind="token-of-another-log",
            hint="open the log that the transaction was prepared in",
            log_id=state.log_id,
            token_log_id=named.log_id,
        )
    values: dict[str, Any] = {"transactional_id": named.transactional_id, "epoch": named.epoch}
    known = state.transactional_ids.get(named.transactional_id)
    if known is None or known.producer_id != named.producer_id or named.epoch > known.epoch:
        raise _unknown(named, values)
    if named.epoch == known.epoch:
        if known.status is not TransactionStatus.PREPARED:
            raise InvalidTransactionStateError(
                "the transaction is not prepared",
                kind="transaction-not-prepared",
                hint="only a prepared transaction can be ended from elsewhere",
                status=known.status.value,
                **values,
            )
        # Another process that ends it meanwhile ends this epoch: the log answers with that outcome, never
        # with a newer one.
        producer = ProducerRef(named.producer_id, named.epoch, named.transactional_id)
        with suppress(
            InvalidTransactionStateError, ProducerFencedError
        ):  # another process has ended it meanwhile
            committer.commit(committer.intend(Write(producer, end=outcome)))
        state = committer.state
    found = committer.read(find_outcome(state, named.transactional_id, named.epoch))
    if found is None or found.outcome is None:
        raise _unknown(named, values)
    if found.outcome is outcome:
        return found
    values["entry"] = found.entry
    if found.cause is Cause.OPERATOR:
        raise ProducerFencedError(
            "an operator has aborted the prepared transaction",
            kind="aborted-by-operator",
            hint="find out why, and correct what other systems have committed with it",
            **values,
        )
    past = "committed" if found.outcome is Outcome.COMMIT else "aborted"
    raise InvalidTransactionStateError(
        f"the transaction was {past} already",
        kind=f"transaction-{past}",
        hint="the coordinator must decide the outcome once",
        **values,
    )


def _unknown(named: PreparedTransaction, values: dict[str, Any]) -> NotFoundError:
    return NotFoundError(
        "the log knows no such transaction",
        kind="unknown-transaction",
        hint="check whether this is a copy of the log, or an older state of it",
        producer_id=named.producer_id,
        **values,
    )

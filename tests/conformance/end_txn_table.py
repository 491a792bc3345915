"""The table of ends: what the log answers when a transaction is to be ended. All of it, as data, in this one
place.

A row is a state of the transactional id and an epoch that the caller brings; its columns are what the caller
wants. Beside ours stands what Kafka's coordinator answers (transactions V2, KIP-890), and where the two
differ, why.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from tests.conformance.core_log import ABORT, COMMIT, NAME, CoreLog, staged
from txnformat.core.intents import Write
from txnformat.core.operations import Cause
from txnformat.errors import (
    InvalidTransactionStateError,
    ProducerFencedError,
    TransactionTimedOutError,
    TxnLogError,
)

__all__ = ["ERRORS", "KAFKAS", "STATES", "TABLE", "Answer", "Epoch", "Row"]


class Answer(StrEnum):
    """What comes back."""

    ENDS = "ends"
    """A new entry ends the transaction and begins the next epoch."""
    REPEATED = "repeated"
    """The entry that ended it before; nothing is written."""
    NOTHING_OPEN = "no-transaction"
    COMMITTED = "transaction-committed"
    ABORTED = "transaction-aborted"
    FENCED = "producer-fenced"
    AHEAD = "unknown-epoch"
    UNKNOWN = "unknown-transactional-id"
    TIMED_OUT = "transaction-timed-out"
    BY_OPERATOR = "aborted-by-operator"
    PREPARED = "transaction-prepared"


ERRORS: dict[Answer, type[TxnLogError]] = {
    Answer.NOTHING_OPEN: InvalidTransactionStateError,
    Answer.COMMITTED: InvalidTransactionStateError,
    Answer.ABORTED: InvalidTransactionStateError,
    Answer.FENCED: ProducerFencedError,
    Answer.AHEAD: InvalidTransactionStateError,
    Answer.UNKNOWN: InvalidTransactionStateError,
    Answer.TIMED_OUT: TransactionTimedOutError,
    Answer.BY_OPERATOR: ProducerFencedError,
    Answer.PREPARED: InvalidTransactionStateError,
}
"""The class that tells the caller what to do; the answer's value is the error's kind."""

KAFKAS: dict[Answer, str] = {
    Answer.ENDS: "NONE",
    Answer.REPEATED: "NONE",
    Answer.NOTHING_OPEN: "INVALID_TXN_STATE",
    Answer.COMMITTED: "INVALID_TXN_STATE",
    Answer.ABORTED: "INVALID_TXN_STATE",
    Answer.FENCED: "PRODUCER_FENCED",
    Answer.AHEAD: "INVALID_TXN_STATE",
    Answer.UNKNOWN: "INVALID_PRODUCER_ID_MAPPING",
    Answer.TIMED_OUT: "TRANSACTION_ABORTABLE",
    Answer.BY_OPERATOR: "PRODUCER_FENCED",
    Answer.PREPARED: "INVALID_TXN_STATE",
}
"""Kafka's word for each answer."""


class Epoch(StrEnum):
    """What the caller's epoch is to the log."""

    OLDER = "older"
    """Below the last that ended, or below the current one where none has ended."""
    ENDED = "ended"
    """That of the last end: a repeat of the same call, or the opposite."""
    PASSED = "passed"
    """Between the last end and now: given to an instance that has been replaced."""
    CURRENT = "current"
    HIGHER = "higher"


class Row(NamedTuple):
    """One line of the table."""

    state: str
    epoch: Epoch
    commit: Answer
    abort: Answer
    one_shot: Answer
    """Commit with records in the same step."""
    kafka: tuple[str, str]
    """Kafka's answers to commit and abort."""
    because: str = ""
    """Why ours is another answer than Kafka's."""


def _opened(name: str) -> CoreLog:
    """Return a log whose id has been opened twice: so every state has an older epoch."""
    log = CoreLog()
    log.open("before")  # the id has another producer id than 0
    log.open(name)
    log.open(name)
    return log


def _with(*steps: str) -> Callable[[str], CoreLog]:
    def build(name: str = NAME) -> CoreLog:
        log = _opened(name)
        for step in steps:
            producer = log.producer(name)
            if step == "open":
                log.open(name)
            elif step == "send":
                log.append(producer, 0, 2)
            elif step == "stage":
                log.apply(Write(producer, staged(0, 2), deferred=True))
            elif step == "prepare":
                log.prepare(producer)
            elif step in ("timeout", "operator"):
                log.apply(log.abort_for(Cause(step), name, force=True))
            elif step == "send elsewhere":
                log.append(log.open("another"), 0, 1)
            else:
                log.finish(producer, COMMIT if step == "commit" else ABORT)
        return log

    return build


STATES: dict[str, Callable[[str], CoreLog]] = {
    "Empty": _with(),
    "Empty, after a commit": _with("send", "commit", "open"),
    "Empty, after an abort": _with("send", "abort", "open"),
    "Empty, by an init that aborted": _with("send", "open"),
    "Ongoing, the first": _with("send"),
    "Ongoing, after a commit": _with("send", "commit", "send"),
    "Ongoing, after an abort": _with("send", "abort", "send"),
    "Ongoing, after an init that aborted": _with("send", "open", "send"),
    "CompleteCommit": _with("send", "commit", "send elsewhere"),
    "CompleteAbort": _with("send", "abort", "send elsewhere"),
    "CompleteAbort, of nothing": _with("abort"),
    "Ongoing, staged": _with("stage", "send elsewhere"),
    "Ongoing, after a timeout": _with("send", "timeout", "send"),
    "Prepared": _with("send", "prepare"),
    "Prepared, staged, after a commit": _with("send", "commit", "stage", "prepare"),
    "CompleteAbort, by a timeout": _with("send", "timeout", "send elsewhere"),
    "CompleteAbort, by an operator": _with("send", "operator", "send elsewhere"),
    "CompleteAbort, by an operator's force": _with("send", "prepare", "operator"),
    "Empty, after a timeout": _with("send", "timeout", "open"),
    "Empty, after an operator": _with("send", "operator", "open"),
}
"""How each state of an id comes about."""

E, R = Answer.ENDS, Answer.REPEATED
_NONE, _STATE, _FENCED = "NONE", "INVALID_TXN_STATE", "PRODUCER_FENCED"
_ALL_FENCED = (_FENCED, _FENCED)

_AHEAD_WHY = (
    "Kafka calls an epoch that it never gave fenced; nobody newer exists, the caller has another log (a copy)"
)
_TIMEOUT_WHY = (
    "Kafka calls it a mistake of the caller's; a timeout is none, and another transaction may succeed"
)
_LAST_WHY = "the last end is answered whatever came after it: Kafka forgets it at the next init or append"


def _fenced(state: str, epoch: Epoch) -> Row:
    return Row(state, epoch, Answer.FENCED, Answer.FENCED, Answer.FENCED, _ALL_FENCED)


def _ahead(state: str) -> Row:
    ahead = Answer.AHEAD
    return Row(state, Epoch.HIGHER, ahead, ahead, ahead, _ALL_FENCED, _AHEAD_WHY)


def _committed(state: str, kafka: tuple[str, str], because: str = "") -> Row:
    """Return the row of the last end when it was a commit."""
    return Row(state, Epoch.ENDED, R, Answer.COMMITTED, R, kafka, because)


def _aborted(state: str, kafka: tuple[str, str], because: str = "") -> Row:
    """Return the row of the last end when it was an abort."""
    return Row(state, Epoch.ENDED, Answer.ABORTED, R, Answer.ABORTED, kafka, because)


def _timed_out(state: str, kafka: tuple[str, str], because: str) -> Row:
    """Return the row of the last end when it was a timeout's."""
    return Row(state, Epoch.ENDED, Answer.TIMED_OUT, R, Answer.TIMED_OUT, kafka, because)


def _by_operator(state: str) -> Row:
    """Return the row of the last end when it was an operator's."""
    answer = Answer.BY_OPERATOR
    return Row(state, Epoch.ENDED, answer, answer, answer, _ALL_FENCED)


def _is_prepared(state: str) -> Row:
    return Row(state, Epoch.CURRENT, E, E, Answer.PREPARED, (_NONE, _NONE))


def _nothing_open(state: str) -> Row:
    return Row(state, Epoch.CURRENT, Answer.NOTHING_OPEN, E, E, (_STATE, _NONE))


def _open(state: str) -> Row:
    return Row(state, Epoch.CURRENT, E, E, E, (_NONE, _NONE))


TABLE: tuple[Row, ...] = (
    _nothing_open("Empty"),
    _fenced("Empty", Epoch.OLDER),
    _ahead("Empty"),
    _nothing_open("Empty, after a commit"),
    _fenced("Empty, after a commit", Epoch.OLDER),
    _committed("Empty, after a commit", _ALL_FENCED, _LAST_WHY),
    _fenced("Empty, after a commit", Epoch.PASSED),
    _ahead("Empty, after a commit"),
    _nothing_open("Empty, after an abort"),
    _fenced("Empty, after an abort", Epoch.OLDER),
    _aborted("Empty, after an abort", _ALL_FENCED, _LAST_WHY),
    _fenced("Empty, after an abort", Epoch.PASSED),
    _ahead("Empty, after an abort"),
    _nothing_open("Empty, by an init that aborted"),
    _fenced("Empty, by an init that aborted", Epoch.OLDER),
    _fenced("Empty, by an init that aborted", Epoch.ENDED),
    _ahead("Empty, by an init that aborted"),
    _open("Ongoing, the first"),
    _fenced("Ongoing, the first", Epoch.OLDER),
    _ahead("Ongoing, the first"),
    _open("Ongoing, after a commit"),
    _fenced("Ongoing, after a commit", Epoch.OLDER),
    _committed("Ongoing, after a commit", _ALL_FENCED, _LAST_WHY),
    _ahead("Ongoing, after a commit"),
    _open("Ongoing, after an abort"),
    _fenced("Ongoing, after an abort", Epoch.OLDER),
    _aborted("Ongoing, after an abort", _ALL_FENCED, _LAST_WHY),
    _ahead("Ongoing, after an abort"),
    _open("Ongoing, after an init that aborted"),
    _fenced("Ongoing, after an init that aborted", Epoch.OLDER),
    _fenced("Ongoing, after an init that aborted", Epoch.ENDED),
    _ahead("Ongoing, after an init that aborted"),
    _nothing_open("CompleteCommit"),
    _fenced("CompleteCommit", Epoch.OLDER),
    _committed("CompleteCommit", (_NONE, _STATE)),
    _ahead("CompleteCommit"),
    _nothing_open("CompleteAbort"),
    _fenced("CompleteAbort", Epoch.OLDER),
    _aborted("CompleteAbort", (_STATE, _NONE)),
    _ahead("CompleteAbort"),
    _nothing_open("CompleteAbort, of nothing"),
    _fenced("CompleteAbort, of nothing", Epoch.OLDER),
    _aborted("CompleteAbort, of nothing", (_STATE, _NONE)),
    _ahead("CompleteAbort, of nothing"),
    _open("Ongoing, staged"),
    _fenced("Ongoing, staged", Epoch.OLDER),
    _ahead("Ongoing, staged"),
    _open("Ongoing, after a timeout"),
    _fenced("Ongoing, after a timeout", Epoch.OLDER),
    _timed_out("Ongoing, after a timeout", _ALL_FENCED, _LAST_WHY),
    _ahead("Ongoing, after a timeout"),
    _is_prepared("Prepared"),
    _fenced("Prepared", Epoch.OLDER),
    _ahead("Prepared"),
    _is_prepared("Prepared, staged, after a commit"),
    _fenced("Prepared, staged, after a commit", Epoch.OLDER),
    _committed("Prepared, staged, after a commit", _ALL_FENCED, _LAST_WHY),
    _ahead("Prepared, staged, after a commit"),
    _nothing_open("CompleteAbort, by a timeout"),
    _fenced("CompleteAbort, by a timeout", Epoch.OLDER),
    _timed_out("CompleteAbort, by a timeout", (_STATE, _NONE), _TIMEOUT_WHY),
    _ahead("CompleteAbort, by a timeout"),
    _nothing_open("CompleteAbort, by an operator"),
    _fenced("CompleteAbort, by an operator", Epoch.OLDER),
    _by_operator("CompleteAbort, by an operator"),
    _ahead("CompleteAbort, by an operator"),
    _nothing_open("CompleteAbort, by an operator's force"),
    _fenced("CompleteAbort, by an operator's force", Epoch.OLDER),
    _by_operator("CompleteAbort, by an operator's force"),
    _ahead("CompleteAbort, by an operator's force"),
    _nothing_open("Empty, after a timeout"),
    _fenced("Empty, after a timeout", Epoch.OLDER),
    Row("Empty, after a timeout", Epoch.ENDED, Answer.FENCED, R, Answer.FENCED, _ALL_FENCED, _LAST_WHY),
    _fenced("Empty, after a timeout", Epoch.PASSED),
    _ahead("Empty, after a timeout"),
    _nothing_open("Empty, after an operator"),
    _fenced("Empty, after an operator", Epoch.OLDER),
    _by_operator("Empty, after an operator"),
    _fenced("Empty, after an operator", Epoch.PASSED),
    _ahead("Empty, after an operator"),
)
"""Every state and every kind of epoch that there is in it. An unknown id has one answer in all of them."""

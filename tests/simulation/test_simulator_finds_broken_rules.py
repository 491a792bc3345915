"""Broken rules of transactions are found: each mutant here changes one rule of the core, and some history
must notice.

What is changed is the rule itself, for every process alike: where writers and readers would agree on
something wrong, only the judges of the simulator can tell. The seeds are those of histories with many
transactions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.broken_rules import expect_found
from txnformat.core import decide
from txnformat.core import fold as apply_module
from txnformat.core.assemble import assemble
from txnformat.core.intents import EndTransaction, Intent, OpenProducer
from txnformat.core.operations import Cause, EndTxn, InitProducer, Operation
from txnformat.core.records import decide as decide_write
from txnformat.core.state import LogState
from txnformat.core.transactions import decide as decide_transaction
from txnformat.core.transactions import fold as apply_transaction
from txnformat.core.transactions.state import TransactionalIdState, TransactionStatus
from txnformat.persistent import replace
from txnformat.protocol import commit
from txnformat.protocol.effects import DrawId, Times
from txnformat.protocol.expiry import Watch, _Seen

pytestmark = pytest.mark.simulation

SEEDS = (945, 209, 141, 89, 53, 65, 277, 465, *range(1, 800, 4))
"""Those that meet what is rare come first."""
Patch = pytest.MonkeyPatch


def _replaced(patch: Patch, module: Any, name: str, change: Callable[..., Any]) -> None:
    """Let ``change(original, *arguments)`` stand for a function."""
    original = getattr(module, name)
    patch.setattr(module, name, lambda *args, **kwargs: change(original, *args, **kwargs))


def _folded(patch: Patch, kind: type[Operation], change: Callable[..., Any]) -> None:
    """Let ``change(original, state, operation, at)`` fold operations of a kind."""
    original = apply_module._FOLDS[kind]
    patch.setitem(apply_module._FOLDS, kind, lambda *args: change(original, *args))


def _decided(patch: Patch, kind: type[Any], change: Callable[..., Any]) -> None:
    """Let ``change(original, state, action)`` decide what is asked for."""
    original = decide._DECISIONS[kind]
    patch.setitem(decide._DECISIONS, kind, lambda *args: change(original, *args))


def a_timeout_has_no_length(patch: Patch) -> None:
    def expires_ms(known: TransactionalIdState) -> int | None:
        return known.started_ms if known.status is TransactionStatus.ONGOING else None

    patch.setattr(TransactionalIdState, "expires_ms", property(expires_ms))


def a_stage_does_not_prolong_the_time(patch: Patch) -> None:
    def expires_ms(known: TransactionalIdState) -> int | None:
        is_open = known.status is TransactionStatus.ONGOING and known.started_ms is not None
        return known.started_ms + known.allowed_ms if is_open else None  # type: ignore[operator]

    patch.setattr(TransactionalIdState, "expires_ms", property(expires_ms))


def log_time_proves_a_timeout(patch: Patch) -> None:
    def expired(original: Any, watch: Watch, state: LogState, now: Times) -> Any:
        return original(watch, state, now._replace(store_ms=max(now.store_ms, state.timestamp_ms)))

    _replaced(patch, Watch, "expired", expired)


def the_wall_clock_watches(patch: Patch) -> None:
    def expired(original: Any, watch: Watch, state: LogState, now: Times) -> Any:
        return original(watch, state, now._replace(boot_ms=now.wall_ms))

    _replaced(patch, Watch, "expired", expired)
    patch.setattr(Watch, "note", _noting_by_name)


def watching_never_begins_anew(patch: Patch) -> None:
    patch.setattr(Watch, "note", _noting_by_name)


def _noting_by_name(watch: Watch, state: LogState, boot_ms: int | None) -> dict[str, _Seen]:
    """Count from the first time that an id was ever seen with an open transaction, whichever it was."""
    if boot_ms is None:
        return watch._seen
    for name in state.undecided:
        known = state.transactional_ids[name]
        seen = watch._seen.get(name)
        since = seen.since_ms if seen is not None else boot_ms
        watch._seen[name] = _Seen(known.producer_id, known.timed_entry, since)
    return watch._seen


def staged_records_go_behind_a_gap(patch: Patch) -> None:
    def placed(original: Any, *args: Any) -> Any:
        return tuple(replace(part, base_offset=part.base_offset + 1) for part in original(*args))

    _replaced(patch, decide_transaction, "_placed", placed)


def staged_records_lie_in_another_order(patch: Patch) -> None:
    def place(original: Any, state: LogState, known: TransactionalIdState, *args: Any) -> Any:
        return original(state, replace(known, staged=known.staged[::-1]), *args)

    _replaced(patch, apply_transaction, "_place", place)


def an_abort_keeps_what_was_staged(patch: Patch) -> None:
    _replaced(patch, apply_transaction, "_forget_staged", lambda original, *args: None)


def a_timeout_keeps_the_epoch(patch: Patch) -> None:
    def end(original: Any, state: LogState, op: Any, at: Any) -> LogState:
        after: LogState = original(state, op, at)
        if op.cause is not Cause.TIMEOUT:
            return after
        known = after.transactional_ids[op.transactional_id]
        return after.with_transactional_id(op.transactional_id, replace(known, epoch=op.epoch))

    _folded(patch, EndTxn, end)


def _as_if_open(state: LogState, name: str) -> LogState:
    known = state.transactional_ids.get(name)
    if known is None or known.status is not TransactionStatus.PREPARED:
        return state
    return state.with_transactional_id(name, replace(known, status=TransactionStatus.ONGOING))


def init_passes_a_prepared_transaction(patch: Patch) -> None:
    def open_producer(original: Any, state: LogState, action: OpenProducer) -> Any:
        return original(_as_if_open(state, action.transactional_id), action)

    def init_producer(original: Any, state: LogState, op: Any, at: Any) -> Any:
        return original(_as_if_open(state, op.transactional_id), op, at)

    _decided(patch, OpenProducer, open_producer)
    _folded(patch, InitProducer, init_producer)


def an_operator_ends_what_is_prepared_without_force(patch: Patch) -> None:
    def end(original: Any, state: LogState, action: EndTransaction) -> Any:
        return original(state, replace(action, force=action.cause is Cause.OPERATOR))

    _decided(patch, EndTransaction, end)


def a_timeout_ends_what_is_prepared(patch: Patch) -> None:
    def expired(original: Any, watch: Watch, state: LogState, now: Times) -> Any:
        for name in state.undecided:
            state = _as_if_open(state, name)
        return original(watch, state, now)

    def end(original: Any, state: LogState, action: EndTransaction) -> Any:
        return original(_as_if_open(state, action.transactional_id), action)

    _replaced(patch, Watch, "expired", expired)
    _decided(patch, EndTransaction, end)


def others_ends_go_before_the_own_commit(patch: Patch) -> None:
    def with_ends(
        original: Any, state: LogState, waiting: Any, expired: Any, times: Any, write_id: str
    ) -> Any:
        ids = []
        for _ in expired:
            ids.append((yield DrawId()))  # noqa: PERF401  # no comprehension can yield effects
        ends = [Intent(one, state.entry + 1, action) for one, action in zip(ids, expired, strict=True)]
        made = assemble(state, [*ends, *waiting], store_time_ms=times.store_ms, write_id=write_id)
        asked = {intent.intent_id for intent in waiting}
        return replace(made, verdicts={key: said for key, said in made.verdicts.items() if key in asked})

    _replaced(patch, commit, "_with_ends", with_ends)


def a_prepared_transaction_takes_more_records(patch: Patch) -> None:
    def check_identity(original: Any, producer: Any, name: str, owner: Any, write: Any) -> Any:
        if owner is not None and owner.status is TransactionStatus.PREPARED and write.appends:
            owner = replace(owner, status=TransactionStatus.ONGOING)
        return original(producer, name, owner, write)

    _replaced(patch, decide_write, "check_identity", check_identity)


MUTANTS: list[tuple[Callable[[Patch], None], str]] = [
    (a_timeout_has_no_length, "before its time"),
    (a_stage_does_not_prolong_the_time, "before its time"),
    (log_time_proves_a_timeout, "before its time"),
    (the_wall_clock_watches, "before its time"),
    (watching_never_begins_anew, "before its time"),
    (staged_records_go_behind_a_gap, "sound log corrupt"),
    (staged_records_lie_in_another_order, "breaks invariants.*I10|read_committed shows"),
    (an_abort_keeps_what_was_staged, "the state has the tables"),
    (a_timeout_keeps_the_epoch, "breaks invariants"),
    (init_passes_a_prepared_transaction, "an init ended a prepared transaction"),
    (an_operator_ends_what_is_prepared_without_force, "without force"),
    (a_timeout_ends_what_is_prepared, "sound log corrupt: a timeout ends a prepared"),
    (others_ends_go_before_the_own_commit, "waited, and entry"),
    (a_prepared_transaction_takes_more_records, "sound log corrupt|breaks invariants"),
]


@pytest.mark.parametrize(("mutate", "found"), MUTANTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_rule_is_found(mutate: Callable[[Patch], None], found: str, monkeypatch: Patch) -> None:
    mutate(monkeypatch)
    expect_found(SEEDS, mutate.__name__, found)

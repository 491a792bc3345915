"""Broken protocols are found: each mutant here breaks one rule, and some history must notice.

A mutant is the real step with its effects, its view or its answers tampered with, so that it stays in step
with the code. The seeds are fixed; if a change of the simulator moves what they meet, widen the range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

from tests.simulation.broken_rules import expect_found
from txnformat import keys
from txnformat.core.decide import decide
from txnformat.core.intents import Intent, Rejected
from txnformat.errors import CommitStateUnknownError, ConflictError, StorageError
from txnformat.persistent import replace
from txnformat.protocol.commit import Answers, CommitSettings, commit_group
from txnformat.protocol.effects import CreateObject, DrawId, Effect, ListObjects, ReadClock, Steps
from txnformat.protocol.follow import refresh
from txnformat.protocol.view import View
from txnformat.store.base import CreateOutcome, CreateResult
from txnlog_testing.simulator.actors import CommitStep, Protocol

pytestmark = pytest.mark.simulation

SEEDS = (16, 4, 19, 284, *range(400))
T = TypeVar("T")
Group = Steps[tuple[View, Answers]]


def _tampered(steps: Steps[T], change: Any) -> Steps[T]:
    """Run ``steps``, but let ``change(effect, answer)`` say what they are told."""
    answer: Any = None
    failure: StorageError | None = None
    while True:
        try:
            effect: Effect = steps.throw(failure) if failure is not None else steps.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value
        answer, failure = None, None
        try:
            answer = change(effect, (yield effect))
        except StorageError as error:
            failure = error


def _without_boundary(effect: Effect, answer: Any) -> Any:
    is_boundary = isinstance(effect, ListObjects) and effect.prefix == keys.BOUNDARY_PREFIX
    return [] if is_boundary else answer


def boundary_is_never_read(view: View, intents: Sequence[Intent], settings: CommitSettings) -> Group:
    return (yield from _tampered(commit_group(view, intents, settings), _without_boundary))


def refresh_without_boundary(view: View) -> Steps[View]:
    return (yield from _tampered(refresh(view), _without_boundary))


def boundary_after_a_create_is_ignored(
    view: View, intents: Sequence[Intent], settings: CommitSettings
) -> Group:
    """Follow by the rule, but count a create as a success however old the view was."""
    created: list[bool] = []

    def change(effect: Effect, answer: Any) -> Any:
        if isinstance(effect, CreateObject):
            created.append(True)
        elif not isinstance(effect, ReadClock | ListObjects):
            created.clear()
        return _without_boundary(effect, answer) if created else answer

    return (yield from _tampered(commit_group(view, intents, settings), change))


def no_answer_is_success(view: View, intents: Sequence[Intent], settings: CommitSettings) -> Group:
    def change(effect: Effect, answer: Any) -> Any:
        unclear = isinstance(answer, CreateResult) and answer.outcome is CreateOutcome.AMBIGUOUS
        return CreateResult(CreateOutcome.CREATED) if unclear else answer

    return (yield from _tampered(commit_group(view, intents, settings), change))


def unknown_is_failure(view: View, intents: Sequence[Intent], settings: CommitSettings) -> Group:
    view, answers = yield from commit_group(view, intents, settings)
    for intent_id, answer in answers.items():
        if isinstance(answer, CommitStateUnknownError):
            answers[intent_id] = ConflictError("no answer came", kind="commit-contention")
    return view, answers


def http_412_is_lost(view: View, intents: Sequence[Intent], settings: CommitSettings) -> Group:
    """Believe a 412 without reading the slot back, and tell the caller that somebody else won."""
    told: list[bool] = []

    def change(effect: Effect, answer: Any) -> Any:
        if isinstance(effect, CreateObject) and answer.outcome is CreateOutcome.EXISTS:
            told.append(True)
        return answer

    after, answers = yield from _tampered(commit_group(view, intents, settings), change)
    if told:
        lost = ConflictError("somebody else has the slot", kind="commit-contention")
        answers = {intent.intent_id: lost for intent in intents}
    return after, answers


def retry_is_a_new_intent(view: View, intents: Sequence[Intent], settings: CommitSettings) -> Group:
    """Send what has an unknown outcome again in another slot, under another identity."""
    view, answers = yield from commit_group(view, intents, settings)
    for intent in intents:
        if isinstance(answers[intent.intent_id], CommitStateUnknownError):
            again = replace(intent, intent_id=(yield DrawId()), first_slot=view.state.entry + 1)
            view, second = yield from commit_group(view, [again], settings)
            answers[intent.intent_id] = second[again.intent_id]
    return view, answers


def window_is_ignored(view: View, intents: Sequence[Intent], settings: CommitSettings) -> Group:
    """Look for an intent only in entries that this view does not have yet."""
    renewed = [replace(intent, first_slot=view.state.entry + 1) for intent in intents]
    return (yield from commit_group(view, renewed, settings))


def rejection_from_an_old_view(view: View, intents: Sequence[Intent], settings: CommitSettings) -> Group:
    verdicts = {intent.intent_id: decide(view.state, intent) for intent in intents}
    refused: Answers = {name: said.error for name, said in verdicts.items() if isinstance(said, Rejected)}
    view, answers = yield from commit_group(
        view, [intent for intent in intents if intent.intent_id not in refused], settings
    )
    return view, {**answers, **refused}


def clocks_are_never_wrong(view: View, intents: Sequence[Intent], settings: CommitSettings) -> Group:
    def change(effect: Effect, answer: Any) -> Any:
        return answer._replace(wall_ms=answer.store_ms) if isinstance(effect, ReadClock) else answer

    return (yield from _tampered(commit_group(view, intents, settings), change))


def verdict_before_the_entry_is_ours(
    view: View, intents: Sequence[Intent], settings: CommitSettings
) -> Group:
    """Tell everybody of a group what was decided even if the store refuses the entry."""

    def change(effect: Effect, answer: Any) -> Any:
        refused = isinstance(answer, CreateResult) and answer.outcome is CreateOutcome.REFUSED
        return CreateResult(CreateOutcome.CREATED) if refused else answer

    return (yield from _tampered(commit_group(view, intents, settings), change))


MUTANTS: list[tuple[CommitStep, Any, str]] = [
    (
        boundary_is_never_read,
        refresh_without_boundary,
        "not in the chain|another chain|the chain holds|the tip is",
    ),
    (
        boundary_after_a_create_is_ignored,
        refresh,
        "not in the chain|another chain|the chain holds|the tip is|no answer within",
    ),
    (no_answer_is_success, refresh, "does not chain|not in the chain|the chain holds|the tip is"),
    (unknown_is_failure, refresh, "but was answered ConflictError"),
    (http_412_is_lost, refresh, "but was answered ConflictError"),
    (
        retry_is_a_new_intent,
        refresh,
        "is in the log twice|breaks invariants|the chain holds|but was answered",
    ),
    (window_is_ignored, refresh, "is in entries|breaks invariants|the log twice|but was answered"),
    (rejection_from_an_old_view, refresh, "fits every state since the call began"),
    (clocks_are_never_wrong, refresh, "whose clock is far off"),
    (
        verdict_before_the_entry_is_ours,
        refresh,
        "not in the chain|another chain|the chain holds|the tip is",
    ),
]


@pytest.mark.parametrize(
    ("commit", "follow", "found"), MUTANTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_broken_protocol_is_found(commit: CommitStep, follow: Any, found: str) -> None:
    expect_found(SEEDS, commit.__name__, found, Protocol(commit, follow))

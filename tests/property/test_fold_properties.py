"""The fold and the decisions, held against a model that looks at every record."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.random_writer import Writer
from tests.rounds import rounds
from txnformat.core.decide import decide
from txnformat.core.intents import (
    Done,
)
from txnformat.core.producers.absence import is_absent
from txnlog_testing.strategies import HISTORY_GROUPS_MAX, OPENING, Command, groups

histories = st.tuples(
    st.one_of(groups.map(lambda later: OPENING + later), groups),
    st.sets(st.integers(0, HISTORY_GROUPS_MAX), max_size=3),
    st.lists(st.one_of(st.integers(-1_000, 5_000), st.just(30_000)), min_size=1, max_size=5),
)
"""Groups of commands, before which of them the log is reopened from a snapshot, and steps of the store's
time."""


@settings(max_examples=rounds(35, 1_000), suppress_health_check=[HealthCheck.too_slow])
@given(histories)
def test_fold_and_decisions_agree_with_the_naive_model(
    history: tuple[list[list[Command]], set[int], list[int]],
) -> None:
    """Verdicts, offsets, log ends, LSOs, abort indexes and visible records are the model's; invariants
    hold.
    """
    commands, reopened, steps = history
    writer = Writer()
    for number, group in enumerate(commands):
        if number in reopened and writer.state.entry >= 0:
            writer.reopen()
        writer.commit(group, steps[number % len(steps)])
        for intent in writer.intents.values():
            assert not is_absent(writer.state, intent.action), "what the log holds is proven not to be there"
    for derivation in writer.derivations:
        assert list(derivation.compare(writer.state)) == []
    for intent_id, result in writer.results.items():
        verdict = decide(writer.state, writer.intents[intent_id])
        assert isinstance(verdict, Done)
        assert (verdict.entry, verdict.intent_id) == (result.entry, intent_id)

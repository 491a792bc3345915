"""Random histories with erasures against an oracle: what must go is in no object of the root, and nothing
else is lost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.erasure.histories import History
from tests.rounds import rounds


@settings(max_examples=rounds(4, 300), deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_erased_is_nowhere_and_nothing_else_is_lost(seed: int) -> None:
    History(seed).run(30)

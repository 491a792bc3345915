"""LogSegmentTest: the abort index of a segment can be derived again."""

from __future__ import annotations

from tests.conformance.cases import case
from tests.conformance.chain import ABORT, COMMIT, Chain
from txnformat.core.transactions.abort_index import AbortedTransaction


@case("LogSegmentTest", "testRecoverTransactionIndex")
def test_the_abort_index_is_derived_again_from_the_entries_alone() -> None:
    """From the first entry, and from any snapshot, also one that was taken while the transactions were
    open.
    """
    chain = Chain("a", "b")
    chain.send("a", 4)  # 0-3
    chain.send("b", 6)  # 4-9
    chain.send("a", 2)  # 10-11
    chain.end("a", ABORT)  # 12
    chain.send("a", 1)  # 13
    chain.end("a", COMMIT)  # 14
    chain.end("b", ABORT)  # 15
    expected = [AbortedTransaction(0, 0, 12, 4), AbortedTransaction(1, 4, 15, 16)]
    assert chain.index() == expected
    assert chain.index(chain.folded()) == expected
    for entry in range(len(chain.entries)):
        assert chain.index(chain.reopened(entry)) == expected, entry
    chain.check_reopening()

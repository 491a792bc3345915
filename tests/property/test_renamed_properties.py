"""A topic whose columns are renamed, dropped and added again reads as rows by place do, in every reader and
at any time."""

from __future__ import annotations

import pytest

from tests.property.renamed_histories import RenamedLog
from tests.rounds import rounds
from txnformat.store.memory import MemoryStore
from txnlog import TxnLog

STEPS = 24


@pytest.mark.parametrize("seed", range(rounds(12, 400)))
def test_a_column_is_its_place(seed: int) -> None:
    history = RenamedLog(MemoryStore(), seed, embedding=seed % 2 == 0)
    for number in range(STEPS):
        history.step()
        if number % 4 == 3:
            history.check()
    history.check()
    history.check_old_names()
    history.check_snapshots()
    history.seal()
    history.compact()
    history.check()
    history.check_snapshots()
    report = TxnLog.open(history.log.store).verify(deep=True)
    assert not report.problems, report.problems
    history.close()

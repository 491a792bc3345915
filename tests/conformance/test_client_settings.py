"""What a producer is told once: refused before anything is asked of the log, all problems together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.cases import case
from txnformat.log import TxnLog
from txnformat.store.memory import MemoryStore
from txnlog import InvalidInputError, Producer


@case("TransactionCoordinatorTest", "shouldReturnInvalidRequestWhenTransactionalIdIsEmpty")
@pytest.mark.parametrize("name", ["", "x" * 250, "ä" * 125, "\ud800", 7, b"etl"])
def test_an_id_that_is_empty_over_long_or_no_text_is_refused_by_the_constructor(name: Any) -> None:
    """1 to 249 bytes of UTF-8; nothing has been written, and no producer exists."""
    store = MemoryStore()
    with TxnLog.create(store) as log:
        entry = log.refresh().entry
        with pytest.raises(InvalidInputError) as caught:
            Producer(log, name)
        assert caught.value.kind == "invalid-settings"
        assert log.refresh().entry == entry
        with Producer(log, "ä" * 124 + "x") as longest:
            assert longest.epoch == 0

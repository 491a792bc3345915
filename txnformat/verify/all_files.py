"""The data files of a log, checked one by one: in another process where they are decoded and that is
possible.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing

from txnformat.clock import Clock, SystemClock
from txnformat.store.base import ObjectStore
from txnformat.store.open import reopening
from txnformat.verify.deep_child import Asked
from txnformat.verify.deep_files import NoProcessError, check_apart
from txnformat.verify.files import check_patiently
from txnformat.verify.report import Record
from txnformat.verify.requests import Requests

__all__ = ["check_files"]

logger = logging.getLogger("txnlog")


def check_files(
    store: ObjectStore,
    clock: Clock,
    requests: Requests,
    asked: Sequence[Asked],
    sizes: Mapping[str, int],
    *,
    deep: bool,
) -> Generator[Record]:
    """Yield the findings about each file, in order.

    ``sizes``: of all objects, by key. ``deep``: the files are decoded, in another process if one can open the
    store.
    """
    open_store = _way_to_store(store, clock) if deep and asked else None
    if open_store is not None:
        try:
            with closing(check_apart(open_store, asked)) as records:
                for index, record in enumerate(records, 1):
                    yield record
                    requests.advance("files", index, len(asked))
            return
        except NoProcessError as error:
            logger.warning("no process can be started, so this process decodes the data files: %s", error)

    def check(one: Asked) -> Record:
        return check_patiently(store, clock, one.use, sizes, one.schema, deep=deep)

    yield from requests.parallel("files", check, asked)


def _way_to_store(store: ObjectStore, clock: Clock) -> Callable[[], ObjectStore] | None:
    """Return what opens the store in another process; None where it, or the clock, is part of this one."""
    if type(clock) is not SystemClock or not sys.executable or getattr(sys, "frozen", False):
        return None
    return reopening(store)

"""How a round of an import ends, whatever it imports from: committed, or given up."""

from __future__ import annotations

import logging

from txnformat.errors import CommitStateUnknownError
from writers.producer import Producer

__all__ = ["abort", "commit"]

logger = logging.getLogger("txnlog")

REPEATS_MAX = 5
"""How often a commit whose outcome is unknown is repeated."""


def commit(producer: Producer) -> None:
    """Commit; an unknown outcome is settled by the same call again."""
    for attempt in range(REPEATS_MAX + 1):
        try:
            producer.commit()
        except CommitStateUnknownError:
            if attempt == REPEATS_MAX:
                raise
        else:
            return


def abort(producer: Producer) -> None:
    """Give up what the round has sent, as far as that is possible.

    The producer's close does the rest. The caller raises the first error.
    """
    try:
        producer.abort()
    except Exception as error:  # noqa: BLE001 - the error that led here is the caller's
        logger.debug("the round could not be aborted: %s", error)

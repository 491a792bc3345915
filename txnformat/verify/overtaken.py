"""Objects that went while the log was verified: a vacuum deletes what the newest state does not lead to any
more.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from txnformat import keys
from txnformat.core.state import LogState
from txnformat.errors import TxnLogError
from txnformat.protocol.follow import fold_bytes
from txnformat.verify.live import live_objects
from txnformat.verify.report import ProblemKind, VerifyProblem
from txnformat.verify.requests import Requests

__all__ = ["without_overtaken"]


def without_overtaken(
    requests: Requests, state: LogState | None, problems: Sequence[VerifyProblem]
) -> tuple[VerifyProblem, ...]:
    """Return the problems, each once, without objects that are missing because they were removed after
    ``state``, which the log was compared with.

    ``state``: None if the log has none. Requests: none if no object is missing; else 1 GET for each entry
    since, and if there is one those of :func:`~txnformat.verify.live.live_objects`.
    """
    found = tuple(dict.fromkeys(problems))
    if state is None or not any(_may_be_gone(one) for one in found):
        return found
    newest = state
    try:
        while (data := requests.get(keys.entry_key(newest.entry + 1))) is not None:
            newest = fold_bytes(newest, data)
        if newest.entry == state.entry:
            return found
        live: set[str] = set()
        live_objects(requests, newest, live.add)
    except TxnLogError:  # what cannot be read is told by the next run, which begins with it
        return found
    return tuple(one for one in found if not (_may_be_gone(one) and _is_gone(newest, live, one.object)))


def _is_gone(state: LogState, live: Container[str], key: str) -> bool:
    return key not in live and keys.born_of(key) < state.vacuum_floor


def _may_be_gone(problem: VerifyProblem) -> bool:
    return problem.kind is ProblemKind.MISSING and keys.named_after(problem.object) is not None

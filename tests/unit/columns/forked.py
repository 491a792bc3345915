"""Work that may end the process, tried in a process of its own."""

import os
from collections.abc import Callable

from txnformat.errors import InvalidInputError

__all__ = ["ends_well"]


def ends_well(*works: Callable[[], object]) -> None:
    """Run them in one forked process, and fail when that ends by a signal or one ends in another way than
    with the product's error."""
    child = os.fork()
    if child == 0:
        status = 3
        try:
            status = next((outcome for outcome in map(_outcome, works) if outcome), 0)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert not os.WIFSIGNALED(status), f"ended by signal {os.WTERMSIG(status)}"
    assert os.WEXITSTATUS(status) == 0, {1: "accepted", 2: "another kind", 3: "another error"}


def _outcome(work: Callable[[], object]) -> int:
    try:
        work()
    except InvalidInputError as error:
        return 0 if error.kind == "schema-mismatch" else 2
    except BaseException:  # noqa: BLE001 - told by the status
        return 3
    return 1

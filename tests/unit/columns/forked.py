"""Work that may end the process, tried in a process of its own."""

import os
from collections.abc import Callable

from txnformat.errors import InvalidInputError

__all__ = ["ends_well"]


def ends_well(work: Callable[[], object]) -> None:
    """Run something in a forked process, and fail when that ends by a signal or by another error than the product's."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
        except InvalidInputError as error:
            status = 0 if error.kind == "schema-mismatch" else 2
        except BaseException:  # noqa: BLE001 - told by the status
            status = 3
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert not os.WIFSIGNALED(status), f"ended by signal {os.WTERMSIG(status)}"
    assert os.WEXITSTATUS(status) == 0, {1: "accepted", 2: "another kind", 3: "another error"}

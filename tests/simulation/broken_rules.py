"""Looking for a history that notices a broken rule: what the tests of every kind of rule share."""

from __future__ import annotations

import re
from collections.abc import Iterable

from txnlog_testing.simulator.simulator import SimulationError, run_history

__all__ = ["expect_found"]


def expect_found(seeds: Iterable[int], rule: str, message: str) -> None:
    """Run histories until one fails, and check that it says why.

    Parameters
    ----------
    rule : str
        What is broken, for people.
    message : str
        Regular expression of what the failure has to say.
    """
    error = _first_failure(seeds)
    print(f"{rule}: {error}")
    assert error is not None, f"no seed notices {rule}"
    assert re.search(message, str(error))


def _first_failure(seeds: Iterable[int]) -> SimulationError | None:
    for seed in seeds:
        try:
            run_history(seed)
        except SimulationError as error:
            return error
    return None

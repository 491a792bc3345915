"""Looking for a history that notices a broken rule: what the tests of every kind of rule share."""

from __future__ import annotations

import re
from collections.abc import Iterable

from txnlog_testing.simulator.actors import Protocol
from txnlog_testing.simulator.simulator import SimulationError, run_history

__all__ = ["expect_found"]


def expect_found(seeds: Iterable[int], rule: str, message: str, protocol: Protocol | None = None) -> None:
    """Run histories until one fails and says why. A rule that is broken may show itself in other ways before.

    Parameters
    ----------
    rule : str
        What is broken, for people.
    message : str
        Regular expression of what the failure has to say.
    protocol
        What is run in place of the real one.
    """
    others = []
    for seed in seeds:
        failure = _failure(seed, protocol)
        if failure is None:
            continue
        print(f"{rule}: {failure}")
        assert "python -m txnlog_testing.replay" in failure
        if re.search(message, failure):
            return
        others.append(failure)
    raise AssertionError(f"no seed notices {rule} by {message!r}; others: {others}")


def _failure(seed: int, protocol: Protocol | None) -> str | None:
    try:
        run_history(seed, protocol)
    except SimulationError as error:
        return str(error)
    return None

"""The same random users of a log on every store; see :mod:`tests.model.log_machine`.

`make campaigns` runs four times as many histories, or more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.log_machine import LogMachine, MemoryMachine, RealMachine
from tests.rounds import rounds
from txnformat.store.base import ObjectStore
from txnformat.store.open import open_store
from txnlog_testing.stores.s3_server import S3Server, moto_server

NIGHTLY_EXAMPLES = 1_000
"""From here on (HYPOTHESIS_PROFILE=nightly) real stores get their share of a long run, too."""


def _run(machine: type[LogMachine], examples: int, steps: int) -> None:
    """Run histories: as many as the profile says in memory, and ``examples`` of them elsewhere."""
    is_nightly = settings.default is not None and settings.default.max_examples >= NIGHTLY_EXAMPLES
    chosen = settings(
        max_examples=examples * (10 if is_nightly else 1),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    run_state_machine_as_test(machine, settings=chosen)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    """Return a server of this module's own."""
    with moto_server() as server:
        yield server


def _machine(location: Callable[[str], ObjectStore]) -> type[RealMachine]:
    return type("RealMachine", (RealMachine,), {"location": staticmethod(location)})


def test_users_of_a_log_in_memory_under_faults() -> None:
    """All calls are told the truth, and readers see whole committed transactions, however calls and faults
    interleave."""
    _run(MemoryMachine, rounds(35, 150), 50)


def test_what_happens_in_memory_follows_from_what_was_drawn() -> None:
    """The same draws lead to the same objects under the same names at the same time, or Hypothesis cannot
    shrink."""

    def histories() -> list[tuple[float, list[str]]]:
        ends = []

        class Traced(MemoryMachine):
            def teardown(self) -> None:
                super().teardown()
                if hasattr(self, "store"):
                    ends.append((self.clock.ms, [info.key for info in self.store.list("")]))

        chosen = settings(max_examples=rounds(5, 15), stateful_step_count=50, derandomize=True, database=None)
        run_state_machine_as_test(Traced, settings=chosen)
        return ends

    assert histories() == histories()


def test_users_of_a_log_on_disk(tmp_path: Path) -> None:
    """The same on the local file system."""
    _run(_machine(lambda name: open_store(tmp_path / name)), rounds(12, 50), 40)


def test_users_of_a_log_on_s3(s3: S3Server) -> None:
    """The same on a server that speaks S3."""
    _run(
        _machine(lambda name: open_store(s3.url(name), storage_options=s3.storage_options)), rounds(2, 8), 30
    )

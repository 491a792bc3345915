"""What every test shares: hypothesis profiles, and Spark tests kept in one process.

Everything under ``tests/spark`` starts Spark: it gets the marker ``spark``, and one worker runs all of it,
because a JVM costs seconds and 1 GB. (pytest-xdist 3.8 has ``--dist=loadgroup`` for this; under pytest 9.2 it
does nothing.) Files whose tests start drivers of their own, to kill them, share no JVM: any worker runs one
of them.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator

# Before numpy comes: its threads for linear algebra spin while they wait, in every Python that a test starts.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import JSONFileLoader
from hypothesis import HealthCheck, Phase, settings
from xdist.scheduler import LoadScopeScheduling

from tests.rounds import IS_FULL
from txnformat.client.background import Background
from txnlog_testing.temporary import own_temporary_directory

SPARK = Path(__file__).parent / "spark"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell does so with what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow machine is not a defect: no deadline, no check of how fast data is made, and no explain phase, which
# traces every line.
# HYPOTHESIS_PROFILE chooses; CI takes "ci" by itself.
settings.register_profile(
    "default",
    deadline=None,
    print_blob=True,
    phases=[phase for phase in Phase if phase is not Phase.explain],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.register_profile(
    "nightly", settings.get_profile("default"), max_examples=1000, stateful_step_count=500
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


OWN_DRIVERS = ("tests/spark/test_chaos_", "tests/spark/test_fault_")


MEANWHILE = "tests/integration/store/test_s3_faults.py"
"""What takes longer than the archive of Spark's classes (tests/jvm.py), which the first Spark test makes."""

LONG = (
    "tests/integration/",
    "tests/conformance/test_end_to_end_matrix",
    "tests/conformance/test_store_s3",
    "tests/kafka/",
    "tests/meta/test_docs_cli",
    "tests/meta/test_docs_prompt",
    "tests/meta/test_docs_site",
    "tests/model/",
    "tests/notebooks/",
    "tests/power/",
    "tests/property/",
)
"""Files that take longest, besides those whose tests are marked: the last one to begin should be a short one.
"""

TOGETHER = (
    *OWN_DRIVERS,
    "tests/integration/",
    "tests/conformance/",
    "tests/meta/",
    "tests/cli/",
    "tests/browser/",
    "tests/unit/",
    "tests/rights/",
    "tests/telemetry/",
)
"""Files of which each is one piece: their tests share a server, or are so short that handing out single ones
would cost more."""


# Each of many hundred S3 clients would parse the same megabytes of JSON that describe the service, which
# takes 0.2 s.
JSONFileLoader.load_file = staticmethod(functools.cache(JSONFileLoader().load_file))


def _delay_background_work(seconds: float) -> None:
    """Let what clients do behind an answer (snapshots, seals, warnings) begin late: no verdict of a test may
    hang on when it ends.

    ``TXNLOG_TEST_BACKGROUND_SECONDS=0.3 make test`` asks for it.
    """
    run = Background._run

    def late(self: Background, name: str, job: Callable[[], object]) -> None:
        time.sleep(seconds)
        run(self, name, job)

    Background._run = late  # type: ignore[method-assign]


if "TXNLOG_TEST_BACKGROUND_SECONDS" in os.environ:
    _delay_background_work(float(os.environ["TXNLOG_TEST_BACKGROUND_SECONDS"]))


def pytest_configure(config: pytest.Config) -> None:
    """Give all that the tests start a temporary directory, which goes with the session; pytest's own folders
    stay where it keeps the last ones."""
    if not hasattr(config, "workerinput"):  # workers have the environment of the process that starts them
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        stack = contextlib.ExitStack()
        stack.enter_context(own_temporary_directory())
        config.add_cleanup(stack.close)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep the exit status for ``.ci/run``: only after 1, and never after an internal error, all tests have
    run."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set("txnlog/exitstatus", int(exitstatus))


@pytest.fixture
def frozen_garbage() -> Iterator[None]:
    """Keep objects of earlier tests out of the collections of forked children: native clients (gRPC, Kafka) end a child that collects them."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class SparkTogether(LoadScopeScheduling):
    """Hands out single tests, but those under ``tests/spark`` as one piece, those under ``tests/kafka`` as
    another, and of TOGETHER each file."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(TOGETHER):
            return nodeid.split("::")[0]
        if nodeid.startswith("tests/kafka/"):  # they share a broker
            return "kafka"
        return "spark" if nodeid.startswith("tests/spark/") else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SparkTogether:
    """Replace the scheduler of ``--dist``. It keeps our order: xdist would begin with the pieces of most
    tests."""
    config.option.loadscopereorder = False
    return SparkTogether(config, log)


@pytest.hookimpl(tryfirst=True)  # and yet after the shuffle: pytest-randomly wraps this hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the Spark tests, leave campaigns to ``make campaigns``, and start the long tests first."""
    left = [] if IS_FULL else [item for item in items if item.get_closest_marker("campaign")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
    for item in items:
        if SPARK in item.path.parents:
            item.add_marker(pytest.mark.spark)
        elif item.get_closest_marker("spark"):
            raise pytest.UsageError(f"{item.nodeid}: a test that starts Spark belongs in tests/spark")
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    """Tests of the shared Spark are one piece, which one worker begins with; the other one begins with
    MEANWHILE."""
    if item.get_closest_marker("spark"):
        return 2 if item.nodeid.startswith(OWN_DRIVERS) else 0
    if item.nodeid.startswith(MEANWHILE):
        return 1
    return 3 if item.get_closest_marker("simulation") or item.nodeid.startswith(LONG) else 4

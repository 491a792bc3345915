"""Mechanisms 46 to 49: how a transaction comes to linger, and how whoever starts again finds it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lingering.lingering import NUMBERS, Scene, send
from txnformat.admin.transactions import EndingOutcome
from txnformat.errors import ProducerFencedError
from txnlog import Producer, TxnLog


def test_46_leftovers_of_tests_that_no_checkpoint_knows_are_cleaned_by_a_fresh_start() -> None:
    """Runs that never reached a checkpoint left transactions open under names that only their prefix
    tells.
    """
    scene = Scene()
    for subtask in range(3):
        scene.begun(f"job-{subtask}", subtask)
    scene.begun("another-0", 9)
    assert scene.stable() == 0
    for worker in range(2):  # the fresh start has two workers
        scene.other_process().transactions.abort_lingering("job", 2, worker)
    assert scene.stable() == 3, "another job's transaction is not touched"
    assert sorted(scene.log.refresh().undecided) == ["another-0"]


def test_46_a_run_that_failed_before_its_first_checkpoint_left_only_what_it_sent() -> None:
    scene = Scene()
    failed = scene.begun("job-0", 1)
    scene.other_process().transactions.abort_lingering("job", 1, 0)
    again = scene.begun("job-0", 2)
    again.commit()
    assert scene.read() == [2]
    with pytest.raises(ProducerFencedError):
        failed.commit()


_DIES = """
import os, signal, sys
from txnlog import Producer, TxnLog
producer = Producer(TxnLog.open(sys.argv[1]), "job-7", buffer=sys.argv[2])
producer.init()
producer.begin()
producer.send("t", [{"n": 1}], partition=0)
producer.flush()
os.kill(os.getpid(), signal.SIGKILL)  # before anything outside the log has heard of the transaction
"""


@pytest.mark.parametrize("buffer", ["inline", "deferred"])
def test_47_death_after_the_transaction_was_opened_and_before_it_was_recorded(
    buffer: str, tmp_path: Path
) -> None:
    log = TxnLog.create(tmp_path)
    log.create_topic("t", NUMBERS)
    died = subprocess.run([sys.executable, "-c", _DIES, str(tmp_path), buffer], env=os.environ, check=False)
    assert died.returncode == -signal.SIGKILL
    (left,) = log.transactions.list(states=["Ongoing"])
    assert left.transactional_id == "job-7", "the log knows it, whoever recorded it or not"
    with Producer(log) as plain:
        plain.send("t", [{"n": 2}], partition=0)
    assert log.read("t").read_all().column("n").to_pylist() == ([] if buffer == "inline" else [2])
    (ended,) = log.transactions.abort(prefix="job-")
    assert (ended.transactional_id, ended.outcome) == ("job-7", EndingOutcome.ABORTED)
    assert log.read("t").read_all().column("n").to_pylist() == [2]


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_48_a_checkpoint_has_the_token_and_recovery_commits_or_aborts(outcome: str) -> None:
    scene = Scene()
    producer = scene.begun("job-0", 1, transaction_timeout_ms=3_000)
    token = str(producer.prepare())  # what the checkpoint keeps
    del producer  # the process dies
    scene.clock.ms += 1_000_000
    writer = scene.other_process()
    assert writer.maintain("timeouts").timed_out == (), "no timeout ends what is prepared"
    if outcome == "commit":
        writer.commit_prepared(token)
        writer.commit_prepared(token)  # recovery died after it, and recovers again
    else:
        writer.abort_prepared(token)
        writer.abort_prepared(token)
    assert scene.read() == ([1] if outcome == "commit" else [])
    again = scene.begun("job-0", 2)
    again.commit()
    assert scene.read()[-1:] == [2]


def test_48_who_restarts_before_the_outcome_is_known_is_told_so_and_begins_nothing() -> None:
    scene = Scene()
    token = str(scene.begun("job-0", 1).prepare())
    again = Producer(scene.other_process(), "job-0", buffer="inline")
    again.init()
    assert str(again.prepared) == token
    again.commit()
    again.begin()
    send(again, 2)
    again.commit()
    assert scene.read() == [1, 2]


def test_49_a_fixed_id_is_aborted_by_its_name() -> None:
    scene = Scene()
    scene.begun("job-0", 1)
    scene.begun("job-1", 2)
    (ended,) = scene.log.transactions.abort("job-0")
    assert ended.outcome is EndingOutcome.ABORTED
    assert sorted(scene.log.refresh().undecided) == ["job-1"]


def test_49_a_fixed_id_that_starts_again_aborts_what_it_left() -> None:
    scene = Scene()
    left = scene.begun("job-0", 1)
    again = scene.begun("job-0", 2)
    again.commit()
    assert scene.read() == [2]
    with pytest.raises(ProducerFencedError):
        left.commit()

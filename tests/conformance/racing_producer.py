"""A process that races for one transactional id, or for producer ids: what the tests of races run, several at
a time."""

from __future__ import annotations

import json
import sys

import pyarrow as pa

from txnlog import Producer, ProducerFencedError, TxnLog


def race(path: str, racer: int, commits: int) -> None:
    """Open the id, commit once under it, and open it again, until ``commits`` are acknowledged.

    Prints one line of JSON for each opening: the epoch, and whether the commit was acknowledged or fenced.
    """
    done = 0
    with TxnLog.open(path) as log:
        while done < commits:
            producer = Producer(log, "one id", buffer="inline")
            producer.init()
            outcome = "fenced"
            epoch = producer.epoch
            try:
                producer.begin()
                for _ in range(2):
                    producer.send("t", pa.table({"racer": [racer], "epoch": [epoch]}))
                    producer.flush()
                producer.commit()
                outcome = "committed"
                done += 1
            except ProducerFencedError:
                pass
            print(json.dumps([epoch, outcome]), flush=True)


def take_ids(path: str, count: int) -> None:
    """Print the ids of ``count`` producers, as one line of JSON."""
    with TxnLog.open(path) as log:
        ids = []
        for _ in range(count):
            producer = Producer(log)
            producer.init()
            ids.append(producer.producer_id)
        print(json.dumps(ids))


if __name__ == "__main__":
    if sys.argv[1] == "race":
        race(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        take_ids(sys.argv[2], int(sys.argv[3]))

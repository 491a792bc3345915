"""A process that copies one partition of a topic in transactions: run, killed and run again by
test_end_to_end_bounce.py.

Arguments: the log's path, the partition, the buffer, records per transaction. Every third transaction is
aborted and its records are copied by the next one. How far it has come is a record of the topic ``progress``,
sent in the same transaction: who starts again opens its transactional id, which decides what was left open,
and reads it there. A line is printed at every step, so that whoever watches can kill at any of them; on
SIGTERM it closes its producer and ends.
"""

from __future__ import annotations

import importlib.abc
import signal
import sys

import pyarrow as pa

from txnlog import Producer, TxnLog


class NoPandas(importlib.abc.MetaPathFinder):
    """pyarrow imports pandas where there is one: half of the time that this process takes to start."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Say that there is no pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


sys.meta_path.insert(0, NoPandas())


def tell(what: str) -> None:
    """Print a step."""
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def terminate(*_: object) -> None:
    """End as an exception does: through all ``with`` statements."""
    raise SystemExit(0)


def copied(log: TxnLog, partition: int) -> int:
    """Return the offset from which to copy."""
    done = log.read("progress", partitions=[partition]).read_all()["next"].to_pylist()
    return done[-1] if done else 0


def main(path: str, partition: int, buffer: str, size: int) -> None:
    """Copy all that is there."""
    signal.signal(signal.SIGTERM, terminate)
    log = TxnLog.open(path)
    with log, Producer(log, f"copier-{partition}", buffer=buffer) as producer:
        source = log.read("input", partitions=[partition]).read_all()
        position = copied(log, partition)
        tell("ready")
        attempt = 0
        while position < source.num_rows:
            records = source.slice(position, size)
            half = records.num_rows // 2
            producer.begin()
            producer.send("output", records.slice(0, half))
            producer.flush()
            tell("flushed")
            producer.send("output", records.slice(half))
            producer.send(
                "progress", pa.table({"next": pa.array([position + records.num_rows], pa.int64())}), partition
            )
            producer.flush()
            tell("sent")
            if attempt % 3 == 0:
                producer.abort()
                tell("aborted")
            else:
                producer.commit()
                position += records.num_rows
                tell("committed")
            attempt += 1
    tell("done")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))

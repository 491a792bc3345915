"""A client that does not know the feature ``lifecycle-1``: a process that test_mixed_versions.py starts, not
a test itself.

A client knows the features of a log by one table, ``KNOWN_FEATURES``, and this process begins with the table
of the versions before that feature. All the rest is the code of today. That a client of before refuses an
upgraded log follows from that table alone: the entry of the upgrade names the feature, in an operation that
these versions had, and the entries after it are not looked at.

``older_client.py <root>`` does what each line of its input says, one word and numbers, and answers with a
line of JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import txnformat.core.state

txnformat.core.state.KNOWN_FEATURES = txnformat.core.state.FEATURES

from txnformat.store.local import LocalStore  # after the table
from txnlog import Producer, TxnLog, TxnLogError


class Client:
    """A log on a disk, and one transactional producer."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.log: TxnLog | None = None
        self.producer: Producer | None = None

    def open(self) -> None:
        """Open the log as one that knows nothing of it."""
        self.log = TxnLog.open(LocalStore(self.root))

    def init(self) -> None:
        """Open the transactional id."""
        assert self.log is not None
        self.producer = Producer(self.log, "older", buffer="inline")
        self.producer.init()

    def begin(self, *numbers: int) -> None:
        """Begin a transaction and append."""
        assert self.producer is not None
        self.producer.begin()
        self.send(*numbers)

    def send(self, *numbers: int) -> None:
        """Append in the open transaction."""
        assert self.producer is not None
        self.producer.send("t", [{"n": number} for number in numbers], partition=0)
        self.producer.flush()

    def commit(self) -> None:
        """Commit the open transaction."""
        assert self.producer is not None
        self.producer.commit()

    def abort(self) -> None:
        """Abort the open transaction."""
        assert self.producer is not None
        self.producer.abort()

    def read(self) -> list[int]:
        """Return the committed numbers."""
        assert self.log is not None
        self.log.refresh()
        found: list[int] = self.log.read("t").read_all()["n"].to_pylist()
        return found


def main() -> None:
    """Serve until the input ends."""
    client = Client(sys.argv[1])
    for line in sys.stdin:
        word, *numbers = line.split()
        answer: dict[str, Any] = {"result": None}
        try:
            answer["result"] = getattr(client, word)(*map(int, numbers))
        except TxnLogError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

"""One racer of many processes that create the same slots: ``python -m txnlog_testing.stores.create_race``.

Arguments: location of the store, the racer's number, number of slots. It prints ``ready``, waits for a line,
creates every slot in order, and prints one letter per slot: ``C`` created, ``E`` exists, ``A`` ambiguous,
``R`` refused. For stores that several processes share.
"""

from __future__ import annotations

import sys

from txnformat.keys import entry_key
from txnformat.store.open import open_store

__all__ = ["main", "slot_bytes"]


def slot_bytes(racer: int, slot: int) -> bytes:
    """Return what a racer puts into a slot: no two alike, of many lengths, so that a mixture shows."""
    return f"{racer}:{slot};".encode() * (1 + (racer * 7 + slot * 3) % 211)


def main(location: str, racer: int, slots: int) -> None:
    """Run one racer."""
    store = open_store(location)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    answers = (store.create(entry_key(slot), slot_bytes(racer, slot)) for slot in range(slots))
    sys.stdout.write("".join(answer.outcome[0].upper() for answer in answers) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

"""The garbage collector of Spark's Python workers: what they have imported is not looked through after every
task.

Spark's daemon calls ``gc.collect()`` in a worker after each task: 15 to 25 ms for the objects that pyspark,
pyarrow, pandas and numpy have made at import, where the rest of a small task takes 5. Frozen, these are
passed over, and what tasks make is still collected. Objects that the user's functions have made by then are
frozen, too, so it is done a few times only.
"""

from __future__ import annotations

import gc
import sys

__all__ = ["FREEZES_MAX", "OBJECTS_MAX", "settle"]

OBJECTS_MAX = 5_000
"""Objects of the oldest generation that a worker may go on looking through after each task: a millisecond's
worth."""

FREEZES_MAX = 3
"""How often a worker freezes: its first task finds what the worker imports, later ones what the task before
has imported."""

_DAEMON = "pyspark.daemon"
_freezes = 0


def settle() -> None:
    """Freeze what has outlived collections in this process, when it is much; does nothing outside of Spark's
    workers.

    To be called at the beginning of a task: the collection after the one before has just removed all garbage,
    and what a collection never looks at again is freed only by its reference count.
    """
    global _freezes  # of the process, as what it is about
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if _freezes >= FREEZES_MAX or getattr(main, "name", None) != _DAEMON:
        return
    if len(gc.get_objects(generation=2)) > OBJECTS_MAX:
        _freezes += 1
        gc.freeze()

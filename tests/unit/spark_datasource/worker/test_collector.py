"""Only Spark's workers freeze what they hold: a program of the user's keeps its garbage collector as it
is.
"""

from __future__ import annotations

import gc

from spark_datasource.worker.collector import OBJECTS_MAX, settle


def test_nothing_is_frozen_outside_of_sparks_workers() -> None:
    gc.collect()  # everything that is left is of the oldest generation
    assert len(gc.get_objects(generation=2)) > OBJECTS_MAX
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before

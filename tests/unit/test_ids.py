"""The machine's ids: their form, which keys and the specification rely on."""

from __future__ import annotations

import re
import uuid

from txnformat.clock import SystemIds
from txnformat.keys import UUID_PATTERN


def test_a_fresh_id_is_a_random_uuid_in_its_canonical_form() -> None:
    ids = SystemIds()
    drawn = [ids.new() for _ in range(2_000)]
    assert len(set(drawn)) == len(drawn)
    for text in drawn:
        parsed = uuid.UUID(text)
        assert (str(parsed), parsed.version, parsed.variant) == (text, 4, uuid.RFC_4122)
        assert re.fullmatch(UUID_PATTERN, text)


def test_uniform_numbers_are_in_the_half_open_unit_interval() -> None:
    ids = SystemIds()
    drawn = [ids.uniform() for _ in range(1_000)]
    assert all(0 <= number < 1 for number in drawn)
    assert len(set(drawn)) > 900

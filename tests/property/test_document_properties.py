"""Canonical JSON: sorted by code point, no spaces, UTF-8; the same bytes as Python's own encoder, which has
written it before."""

from __future__ import annotations

import enum
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnformat.core.wire.document import plain_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner) | st.tuples(inner, inner),
)
EVERY_CHARACTER = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))


class Number(enum.IntEnum):
    """A number of a class of its own."""

    THREE = 3


def by_python(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@given(VALUES)
def test_it_is_what_pythons_encoder_writes(value: object) -> None:
    assert plain_json(value) == by_python(value)


@pytest.mark.parametrize(
    "value", [EVERY_CHARACTER, {"￿": 1, "\U00010000": 2, "Z": 3, "é": 4}, np.str_("x"), Number.THREE]
)
def test_so_it_is_for_what_is_rare(value: object) -> None:
    assert plain_json({"a": value}) == by_python({"a": value})


def test_what_has_no_form_is_refused() -> None:
    with pytest.raises(TypeError, match="no form in JSON"):
        plain_json({"a": object()})

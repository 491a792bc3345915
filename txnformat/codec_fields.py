"""Fields that several rows of a snapshot have, checked on the way in. Pure."""

from __future__ import annotations

from txnformat import keys
from txnformat.document import Document
from txnformat.errors import InvalidInputError
from txnformat.field_types import INT64_MAX, PARTITIONS_MAX
from txnformat.operation_codec import check_ranges

__all__ = ["name_of", "number_of", "ranges_of", "reader_of", "transactional_id_of", "uuid_of"]


def uuid_of(doc: Document, key: str) -> str:
    """Return the uuid in a field, checked."""
    value = doc.text(key)
    if not keys.check_uuid(value):
        doc.fail(key, "uuid")
    return value


def transactional_id_of(doc: Document) -> str:
    """Return the transactional id in a JSON object, checked."""
    value = doc.text("transactional_id", bytes_max=keys.TRANSACTIONAL_ID_BYTES_MAX)
    return value or doc.fail("transactional_id", "text that is not empty")


def reader_of(doc: Document, what: str) -> str:
    """Return the name of a group or a subscription in a JSON object, checked."""
    try:
        return keys.check_reader_name(doc.text(what), what)
    except InvalidInputError:
        doc.fail(what, f"{what} name")


def name_of(doc: Document, field: str) -> str:
    """Return a text that is not empty."""
    return doc.text(field) or doc.fail(field, "text that is not empty")


def number_of(doc: Document) -> int:
    """Return the number of a partition in a JSON object, checked."""
    return doc.integer("partition", maximum=PARTITIONS_MAX - 1)


def ranges_of(doc: Document, field: str) -> tuple[tuple[int, int], ...]:
    """Return ranges in a field, checked: not empty, ascending, and no two of them overlap or touch."""
    pairs: list[tuple[int, int]] = []
    for pair in doc.items(field):
        if not isinstance(pair, list) or [type(one) for one in pair] != [int, int]:
            doc.fail(field, "list of [start, end]")
        pairs.append((pair[0], pair[1]))
    if any(not 0 <= bound <= INT64_MAX for pair in pairs for bound in pair):
        doc.fail(field, "offsets from 0 on")
    check_ranges(tuple(pairs), field, doc.path)
    return tuple(pairs)

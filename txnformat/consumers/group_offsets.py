"""Positions of a group as a caller names them, checked and made an intent's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from txnformat.arguments import is_utf8
from txnformat.core.groups.operations import NO_OFFSET, NO_POSITION, OffsetCommit, PositionCommit
from txnformat.core.intents import GroupOffsets
from txnformat.core.wire.document import check_text
from txnformat.errors import InvalidInputError, repr_of
from txnformat.keys import check_reader_name
from txnformat.log import TxnLog
from txnformat.lookup import topic_named

__all__ = ["GroupMetadata", "OffsetAndMetadata", "OffsetSource", "Offsets", "group_offsets", "offsets_of"]


class OffsetAndMetadata(NamedTuple):
    """A position with a text of the application."""

    offset: int
    metadata: str = ""


Offset = int | OffsetAndMetadata
Offsets = Mapping[tuple[str, int], Offset]
"""The next offset to read, by (topic, partition)."""


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A group, and the generation in which its member reads (KIP-447)."""

    group: str
    generation: int | None = None
    """Generation of the committer. If None, it is not the group's one member."""


@runtime_checkable
class OffsetSource(Protocol):
    """Something that reads under a group, and whose positions a transaction can take along: a consumer."""

    def group_offsets(self, log_id: str) -> GroupOffsets:
        """Return positions as an intent has them: of this log by (topic, partition), foreign ones by name.

        The expected positions (None: no position) must be committed now. Raises InvalidInputError with every
        problem of the form, NotFoundError about a topic.
        """
        ...

    def offsets_committed(self, offsets: GroupOffsets) -> None:
        """Take note that they are in force."""
        ...


def group_offsets(
    log: TxnLog,
    group: str | GroupMetadata,
    offsets: Offsets | None,
    expected: Mapping[tuple[str, int], int | None] | None = None,
    positions: Mapping[str, str] | None = None,
    expected_positions: Mapping[str, str | None] | None = None,
) -> GroupOffsets:
    """Return positions as an intent has them.

    ``offsets``: the next offset to read, by (topic, partition). ``expected``: what is committed now of some
    of them; None: nothing. ``positions``, ``expected_positions``: the same of what is not of this log. Raises
    InvalidInputError with every problem of the form, NotFoundError (``unknown-topic``).
    """
    named = group if isinstance(group, GroupMetadata) else GroupMetadata(group)
    check_reader_name(named.group, "group")
    for name, given in (
        ("offsets", offsets),
        ("expected", expected),
        ("positions", positions),
        ("expected_positions", expected_positions),
    ):
        if given is not None and not isinstance(given, Mapping):
            raise InvalidInputError(
                f"{name} is {repr_of(given, 80)}, not a mapping",
                kind="invalid-offsets",
                hint='give the next offset to read, as in {("orders", 0): 7}; positions are texts: '
                '{"file": "line 9"}',
            )
    wanted, compared = dict(offsets or {}), dict(expected or {})
    foreign, compared_foreign = dict(positions or {}), dict(expected_positions or {})
    problems = [
        f"expected names {repr_of(key)}, and no offset or position to commit is given for it"
        for key in {*compared, *compared_foreign} - {*wanted, *foreign}
    ]
    texts: list[tuple[object, object]] = [
        *foreign.items(),
        *((name, text) for name, text in compared_foreign.items() if text is not None),
    ]
    problems += [
        f"the position of {repr_of(name, 80)} is {repr_of(text, 80)}: name and position are texts in UTF-8"
        for name, text in texts
        if not (isinstance(name, str) and isinstance(text, str) and is_utf8(name) and is_utf8(text))
    ]
    if named.generation is not None and type(named.generation) is not int:
        problems.append(f"the group's generation is {repr_of(named.generation, 80)}, not a whole number")
    for key, offset in wanted.items():
        problems += _problems(key, offset, compared.get(key))
    if not wanted and not foreign:
        problems.append("no offset is given: give offsets, positions, or a Consumer that has polled")
    if problems:
        raise InvalidInputError(sorted(problems), kind="invalid-offsets")
    found = []
    for (topic, partition), offset in wanted.items():
        at = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        topic_id = topic_named(log, topic).topic_id
        found.append(
            OffsetCommit(
                topic_id,
                partition,
                at.offset,
                check_text(at.metadata, name="metadata") if at.metadata else "",
                (NO_OFFSET if compared[topic, partition] is None else compared[topic, partition])
                if (topic, partition) in compared
                else None,
            )
        )
    return GroupOffsets(
        named.group,
        tuple(sorted(found, key=lambda one: one.key)),
        tuple(
            PositionCommit(
                check_text(name, name="name of a position"),
                check_text(position, name="position"),
                "",
                (compared_foreign[name] or NO_POSITION) if name in compared_foreign else None,
            )
            for name, position in sorted(foreign.items())
        ),
        named.generation,
    )


def _problems(key: object, offset: object, expected: object) -> list[str]:
    match key:
        case (str(), int() as partition) if type(partition) is int and partition >= 0:
            pass
        case _:
            return [f"{repr_of(key, 80)} is not (topic, partition)"]
    value = offset.offset if isinstance(offset, OffsetAndMetadata) else offset
    problems = []
    metadata: object = offset.metadata if isinstance(offset, OffsetAndMetadata) else None
    if not isinstance(metadata, str | None):
        problems.append(f"the metadata of {repr_of(key)} is {repr_of(metadata, 80)}, not a text")
    if type(value) is not int or value < 0:
        problems.append(f"the offset of {repr_of(key)} is {repr_of(value, 80)}, not a number from 0 on")
    if expected is not None and (type(expected) is not int or expected < NO_OFFSET):
        problems.append(
            f"the expected offset of {repr_of(key)} is {repr_of(expected, 80)}, not a number from 0 on, "
            "or None"
        )
    return problems


def offsets_of(source: object, log_id: str, *others: object) -> GroupOffsets:
    """Return the positions of a consumer, for the log with this id.

    Raises InvalidInputError if it is none, or something is given besides.
    """
    if not isinstance(source, OffsetSource):
        raise InvalidInputError(
            f"{repr_of(source, 80)} is not a group",
            kind="invalid-offsets",
            hint="give a group's name, a GroupMetadata, or a Consumer",
        )
    if any(other is not None for other in others):
        raise InvalidInputError(
            "a consumer sends its own positions: offsets cannot be given as well",
            kind="invalid-offsets",
            hint="give consumer.group_metadata, and the positions",
        )
    return source.group_offsets(log_id)

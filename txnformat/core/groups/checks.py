"""Checking what users ask for in a consumer group's name, before any of it is decided: an entry must be
readable.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from txnformat import keys
from txnformat.core.groups.operations import NO_OFFSET, NO_POSITION, OffsetCommit, PositionCommit
from txnformat.core.groups.state import GroupState
from txnformat.core.intents import GroupOffsets
from txnformat.core.wire.document import check_text
from txnformat.errors import ConflictError, InvalidInputError, repr_of

__all__ = ["SESSION_TIMEOUT_MS_MAX", "check_generation", "check_group_offsets", "check_member"]

SESSION_TIMEOUT_MS_MAX = 30 * 60_000
"""Longest session timeout of a member (Kafka's group.max.session.timeout.ms)."""


def check_generation(name: str, group: GroupState, generation: int | None) -> None:
    """Raise ConflictError (``member-fenced``) if a generation is not that of the group's member; None
    is any.
    """
    if generation is None or (generation == group.generation and group.member is not None):
        return
    raise ConflictError(
        "this consumer is no longer the member of its group",
        kind="member-fenced",
        hint="stop it: a newer consumer has joined the group, or the group was reset or deleted",
        group=name,
        generation=generation,
        current_generation=group.generation,
        member=None if group.member is None else group.member.name,
    )


def check_member(group: str, member: str) -> None:
    """Raise InvalidInputError if no group or member may be called so."""
    keys.check_reader_name(group, "group")
    try:
        check_text(member, name="member", bytes_max=keys.TRANSACTIONAL_ID_BYTES_MAX)
    except InvalidInputError as error:
        raise InvalidInputError(error.what, kind="invalid-member-name", hint=error.hint) from None


def check_group_offsets(wanted: Sequence[GroupOffsets]) -> None:
    """Raise InvalidInputError about every name (``invalid-group-name``), offset, position and text
    (``invalid-offset-commit``) that no log can hold.
    """
    problems: list[str] = []
    for one in wanted:
        keys.check_reader_name(one.group, "group")
        # True and 1.0 are equal to generation 1, and no reader could decode the entry that has them.
        if one.generation is not None and type(one.generation) is not int:
            problems.append(
                f"generation {repr_of(one.generation, 80)} of group {repr_of(one.group)} is not a whole "
                "number"
            )
        if not one.offsets and not one.positions:
            problems.append(f"nothing is committed for group {repr_of(one.group)}")
        for offset in one.offsets:
            problems += _offset_problems(offset)
        for position in one.positions:
            problems += _position_problems(position)
        commits: tuple[OffsetCommit | PositionCommit, ...] = (*one.offsets, *one.positions)
        twice = [key for key, count in Counter(commit.key for commit in commits).items() if count > 1]
        problems += [f"group {repr_of(one.group)} commits {repr_of(key)} twice" for key in twice]
    names = Counter(one.group for one in wanted)
    problems += [f"group {name!r} is named twice in one step" for name, count in names.items() if count > 1]
    if problems:
        raise InvalidInputError(
            problems,
            kind="invalid-offset-commit",
            hint="commit, once for each partition, the offset of the next record to read",
        )


def _offset_problems(commit: OffsetCommit) -> list[str]:
    problems = []
    if type(commit.offset) is not int or commit.offset < 0:
        problems.append(
            f"offset {repr_of(commit.offset, 80)} of partition {repr_of(commit.partition, 80)} is not 0 "
            "or more"
        )
    if type(commit.partition) is not int or commit.partition < 0:
        problems.append(f"{repr_of(commit.partition, 80)} is not a partition number")
    expected = commit.expected
    if expected is not None and (type(expected) is not int or expected < NO_OFFSET):
        problems.append(f"expected offset {repr_of(expected, 80)} is not 0 or more, or {NO_OFFSET} for none")
    return [*problems, *_text_problems("metadata", commit.metadata, may_be_empty=True)]


def _position_problems(commit: PositionCommit) -> list[str]:
    expected = NO_POSITION if commit.expected is None else commit.expected
    return [
        *_text_problems("the name of a foreign position", commit.name),
        *_text_problems(f"the position in {repr_of(commit.name, 80)}", commit.position),
        *_text_problems("metadata", commit.metadata, may_be_empty=True),
        *_text_problems(f"the expected position in {repr_of(commit.name, 80)}", expected, may_be_empty=True),
    ]


def _text_problems(what: str, text: object, *, may_be_empty: bool = False) -> list[str]:
    if not isinstance(text, str):
        return [f"{what} is {repr_of(text, 80)}, not a text"]
    if may_be_empty and not text:
        return []
    try:
        check_text(text, name=what)
    except InvalidInputError as error:
        return [f"{error.what}: {error.hint}"]
    return []

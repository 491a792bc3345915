"""The requests of the protocol's steps to the world, as values.

A step is a generator: it yields an :class:`Effect` and is sent the answer, or has the
:class:`~txnformat.errors.StorageError` of a failed request thrown into it. It touches nothing itself, so the
same code runs on a real store (:mod:`txnformat.client.driver`) and in the deterministic simulator.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

__all__ = [
    "CreateObject",
    "DrawId",
    "DrawUniform",
    "Effect",
    "GetObject",
    "ListObjects",
    "MakeDurable",
    "PutObject",
    "ReadClock",
    "Simultaneous",
    "Sleep",
    "Steps",
    "Times",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GetObject:
    """Answer: the bytes, or None."""

    key: str


@dataclass(frozen=True, slots=True)
class CreateObject:
    """Answer: a CreateResult of exactly one attempt."""

    key: str
    data: bytes


@dataclass(frozen=True, slots=True)
class PutObject:
    """Answer: None."""

    key: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ListObjects:
    """Answer: the keys, sorted."""

    prefix: str
    start_after: str | None = None
    """Exclusive."""


@dataclass(frozen=True, slots=True)
class MakeDurable:
    """Answer: None, once these objects, which others made, would survive a power cut.

    Costs an object store nothing.
    """

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Simultaneous:
    """Several requests at once. Answer: a list; a failed request is its error in the list, not thrown."""

    requests: tuple[GetObject | ListObjects, ...]


@dataclass(frozen=True, slots=True)
class Sleep:
    """Answer: None, after the time has passed."""

    milliseconds: float


@dataclass(frozen=True, slots=True)
class ReadClock:
    """Answer: Times."""


@dataclass(frozen=True, slots=True)
class DrawId:
    """Answer: a fresh uuid."""


@dataclass(frozen=True, slots=True)
class DrawUniform:
    """Answer: a float in [0, 1)."""


class Times(NamedTuple):
    """All clocks, read together."""

    wall_ms: int
    boot_ms: int | None
    """Time since boot, suspended time included; None where no clock counts it."""
    store_ms: int
    """The store's time."""


Effect = (
    GetObject
    | CreateObject
    | PutObject
    | ListObjects
    | MakeDurable
    | Simultaneous
    | Sleep
    | ReadClock
    | DrawId
    | DrawUniform
)

Steps = Generator[Effect, Any, T]
"""A step that returns a ``T``."""

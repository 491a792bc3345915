"""Defects for a sink, to see that the campaign finds them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from txnformat.committer import Committer
from txnformat.intents import Write

__all__ = ["DEFECTS", "break_sink"]

_broken: set[str] = set()


def _forgets_versions() -> None:
    """Commit batches without the application's version: what is done again is there twice."""
    intend = Committer.intend

    def without(self: Committer, write: Any, *args: Any, **options: Any) -> Any:
        if isinstance(write, Write) and (write.app is not None or write.apps_beside):
            write = replace(write, app=None, apps_beside=())
        return intend(self, write, *args, **options)

    Committer.intend = without  # type: ignore[assignment, method-assign]


def _forgets_commits() -> None:
    """Say of every third batch that it is committed, and do nothing: its rows are lost."""
    intend, commit = Committer.intend, Committer.commit
    forgotten: list[Any] = []

    def noticed(self: Committer, write: Any, *args: Any, **options: Any) -> Any:
        intent = intend(self, write, *args, **options)
        if isinstance(write, Write) and write.app is not None and write.app.version % 3 == 2:
            forgotten.append(intent)
        return intent

    def forgetful(self: Committer, intent: Any, *args: Any, **options: Any) -> Any:
        return None if intent in forgotten else commit(self, intent, *args, **options)

    Committer.intend = noticed  # type: ignore[assignment, method-assign]
    Committer.commit = forgetful  # type: ignore[method-assign]


DEFECTS = {"forgets-versions": _forgets_versions, "forgets-commits": _forgets_commits}


def break_sink(defect: str) -> None:
    """Put a defect into this process, once."""
    if defect not in _broken:
        _broken.add(defect)
        DEFECTS[defect]()

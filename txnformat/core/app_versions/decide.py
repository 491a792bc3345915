"""Deciding application versions: whether a write was done before, and whether its version may follow.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from txnformat.core.app_versions.state import INSTANCE_BYTES_MAX
from txnformat.core.intents import AppRef
from txnformat.core.state import LogState
from txnformat.core.wire.document import check_text
from txnformat.errors import InvalidInputError, NotFoundError, StaleAppVersionError

__all__ = ["check_grows", "check_not_gone", "find_version"]

_NEW_HISTORY = "do not repeat old batches with new data; use a new application id for a new history"


def find_version(state: LogState, app: AppRef) -> int | None:
    """Return the entry that holds an application's version; None when it is still to be written, and may be.

    Raises StaleAppVersionError: ``stale-app-version`` (the log holds a later one), ``stale-instance`` (a
    newer instance has taken over, whatever the version), ``missing-versions`` (the one before it is not in
    the log; ``is_next``). InvalidInputError: no reader could decode it.
    """
    _check(app)
    known = state.app_versions.get(app.key)
    if known is not None and known.is_superseded(app.instance):
        raise StaleAppVersionError(
            "another instance of the application has taken over from this one",
            kind="stale-instance",
            hint="stop this instance: two instances with one application id write from one position, such "
            "as a "
            "checkpoint and its copy",
            app_id=app.app_id,
            version=app.version,
            instance=app.instance,
            newest=known.version,
            newest_instance=known.instances[0],
        )
    if known is not None and known.version == app.version:
        return known.entry
    check_grows(state, [app])
    expected = 0 if known is None else known.version + 1
    if app.is_next and app.version != expected:
        raise StaleAppVersionError(
            "the log lacks earlier versions of this application",
            kind="missing-versions",
            hint="they may be in another log, or this log was recreated or restored; the log lacks their "
            "records",
            app_id=app.app_id,
            expected=expected,
            got=app.version,
        )
    return None


def check_grows(state: LogState, apps: Iterable[AppRef]) -> None:
    """Raise StaleAppVersionError unless each version is above the newest one in the log; InvalidInputError if
    no reader could decode one.
    """
    for app in apps:
        _check(app)
        known = state.app_versions.get(app.key)
        if known is not None and known.version >= app.version:
            raise StaleAppVersionError(
                f"the log holds {'this' if known.version == app.version else 'a later'} version of the "
                "application",
                hint=_NEW_HISTORY,
                app_id=app.app_id,
                version=app.version,
                newest=known.version,
            )


def check_not_gone(state: LogState, apps: Iterable[AppRef], names: Iterable[str]) -> None:
    """Raise NotFoundError of kind ``topic-gone`` if an application has written to a topic that was deleted,
    and now writes to one of its name.
    """
    for app in apps:
        known = state.app_versions.get(app.key)
        gone = sorted(set(known.gone).intersection(names)) if known is not None and known.gone else ()
        if gone:
            raise NotFoundError(
                "a topic that the application has written to was deleted",
                kind="topic-gone",
                hint="nothing was written; to write to a new topic of this name, use a new application "
                "id, or a new checkpoint of a stream",
                app_id=app.app_id,
                version=app.version,
                topic=gone[0],
            )


def _check(app: AppRef) -> None:
    check_text(app.namespace, name="namespace of an application id")
    check_text(app.app_id, name="application id")
    if app.instance is not None:
        check_text(app.instance, name="instance of an application", bytes_max=INSTANCE_BYTES_MAX)
    if app.version < 0:
        raise InvalidInputError(
            f"an application version is {app.version}, which is below 0", kind="invalid-app-version"
        )

"""Folding application versions. Pure."""

from __future__ import annotations

from txnformat.core.app_versions.state import NO_VERSION
from txnformat.core.folding import At, corrupt
from txnformat.core.operations import AppVersion
from txnformat.core.state import LogState
from txnformat.persistent import put, replace

__all__ = ["apply_app_version"]


def apply_app_version(state: LogState, op: AppVersion, at: At) -> LogState:
    """Return the state after an application has written a version."""
    key = (op.namespace, op.app_id)
    known = state.app_versions.get(key)
    if known is not None and op.version <= known.version:
        corrupt(
            at, "an application version does not grow", app_id=op.app_id, known=known.version, got=op.version
        )
    if known is not None and known.is_superseded(op.instance):
        corrupt(at, "a superseded instance of an application continues", app_id=op.app_id)
    if any(topic_id not in state.topics for topic_id in op.topics):
        corrupt(at, "an application version names a topic that does not exist", app_id=op.app_id)
    now = (known or NO_VERSION).followed_by(op.version, at.entry, op.instance, op.topics)
    return replace(state, app_versions=put(state.app_versions, key, now))

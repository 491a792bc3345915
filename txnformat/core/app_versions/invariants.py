"""Invariants of application versions. Pure. See :mod:`txnformat.core.invariants`."""

from __future__ import annotations

from collections.abc import Iterator

from txnformat.core.app_versions.state import NO_VERSION
from txnformat.core.entry import CommitEntry
from txnformat.core.lifecycle.invariants import deleted_in
from txnformat.core.operations import AppVersion
from txnformat.core.state import LogState

__all__ = ["check_app_versions_step"]


def check_app_versions_step(before: LogState, entry: CommitEntry, after: LogState) -> Iterator[str]:
    """Yield the violations of I11 in one step."""
    highest: dict[tuple[str, str], int] = {}
    for operation in entry.operations:
        if isinstance(operation, AppVersion):
            key = (operation.namespace, operation.app_id)
            known = before.app_versions.get(key)
            floor = highest.get(key, known.version if known else -1)
            if operation.version <= floor:
                yield f"I11 application {key}: version {operation.version} follows {floor}"
            highest[key] = operation.version
            instances = known.instances if known else ()
            if operation.instance in instances[1:]:
                yield (
                    f"I11 application {key}: instance {operation.instance} continues after "
                    f"{instances[0]} took over"
                )
            if (
                operation.instance is not None
                and key in after.app_versions
                and after.app_versions.get(key, NO_VERSION).instances[:1] != (operation.instance,)
            ):
                yield (
                    f"I11 application {key}: the state does not have instance {operation.instance} as "
                    "the newest"
                )
    gone = bool(deleted_in(entry))
    for key, version in highest.items():
        if gone and key not in after.app_versions:
            continue
        if after.app_versions.get(key, NO_VERSION)[:2] != (version, entry.entry):
            yield (
                f"I11 application {key}: the state has {after.app_versions.get(key)}, expected version "
                f"{version}"
            )

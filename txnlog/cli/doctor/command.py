"""``txnlog doctor``: does everything fit together here, and if not, what is to be done."""

from __future__ import annotations

import click

from txnlog.cli.doctor.diagnosis import Check, Status
from txnlog.cli.failures import NEGATIVE
from txnlog.cli.options import Place, with_optional_place
from txnlog.cli.output import counted, print_json, say

__all__ = ["doctor"]


@click.command()
@with_optional_place
@click.option("--no-write", is_flag=True, help="Skip the checks that create objects in the store.")
def doctor(place: Place | None, no_write: bool, as_json: bool) -> int:
    """Check environment, store and log, and say what to do.

    Without --root only the environment. The store's checks create and delete a few small objects below the
    root; the log itself is not written to. Exit code 1 when there is a problem.
    """
    from txnlog.cli.doctor.environment import check_environment

    checks = check_environment(None if place is None else place.root)
    if place is not None:
        from txnlog.cli.doctor.log import check_log
        from txnlog.cli.doctor.store import check_store

        found, store = check_store(place, write=not no_write)
        checks += found
        if store is not None:
            checks += check_log(store)
    problems = sum(check.status is Status.PROBLEM for check in checks)
    warnings = sum(check.status is Status.WARNING for check in checks)
    if as_json:
        print_json({"ok": not problems, "problems": problems, "warnings": warnings, "checks": checks})
    else:
        _show(checks)
        say(f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}")
    return NEGATIVE if problems else 0


def _show(checks: list[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        say(f"{check.status.value:<8} {check.area:<12} {check.name:<{width}}  {check.found}")
        if check.fix:
            say(f"{'':<8} {'':<12} {'':<{width}}  fix: {check.fix}")

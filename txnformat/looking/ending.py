"""The command that ends a transaction, as a person can paste it into a shell. Pure."""

from __future__ import annotations

import shlex

from txnformat.core.transactions.state import TransactionalIdState, TransactionStatus

__all__ = ["EFFECTS", "ending_command", "quoted", "status_of"]

EFFECTS = {
    "open": "aborts it and fences its producer; it also ends by itself when its timeout is over",
    "late": "ends all transactions whose timeout is over; the next commit of any client does the same",
    "prepared": "aborts it for good: tell the system that coordinates it, which can then no longer commit it",
    "hanging": "checks the log: no command ends a transaction that no transactional id has",
}
"""The effect of the command, by status."""


def status_of(known: TransactionalIdState, now_ms: int) -> str:
    """Return "prepared", "late" or "open" for an id with a transaction that is not decided."""
    if known.status is TransactionStatus.PREPARED:
        return "prepared"
    return "late" if known.expires_ms is not None and now_ms >= known.expires_ms else "open"


def quoted(text: str) -> str:
    """Return one word for a shell.

    Characters that a terminal acts on are written as escapes, which bash and zsh read back.
    """
    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(_escaped(character) for character in text)
    return f"$'{escaped}'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode())


def ending_command(status: str, transactional_id: str, url: str) -> str:
    """Return the command line that ends a transaction of this status in the log at ``url``."""
    root = f"--root {quoted(url)}"
    if status == "hanging":
        return f"txnlog verify {root}"
    if status == "late":
        return f"txnlog transactions end-expired {root}"
    verb = "force-terminate" if status == "prepared" else "abort"
    if "\0" in transactional_id:  # no shell has a word for it: what stands before the NUL may be another id
        call = verb.replace("-", "_")
        program = f"import txnlog; txnlog.TxnLog.open({url!a}).transactions.{call}({transactional_id!a})"
        return f"python -c {quoted(program)}"
    name = quoted(transactional_id)
    return f"txnlog transactions {verb} {root} {'-- ' if transactional_id.startswith('-') else ''}{name}"

"""The command line as a whole: its commands, its way in, and the one place where errors end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO, cast

import click

from txnformat.errors import InternalError, StorageError, TxnLogError
from txnformat.spans import flush, span
from txnformat.version import __version__
from txnlog.cli import (
    completion,
    consume,
    dump,
    groups,
    history,
    maintain,
    metrics,
    produce,
    subscriptions,
    topics,
    transactions,
    verify,
)
from txnlog.cli.altering.command import alter_topic
from txnlog.cli.doctor.command import doctor
from txnlog.cli.erasure.command import erase
from txnlog.cli.erasure.deleting import delete_records, delete_topic
from txnlog.cli.exchange.groups import export_group, import_group
from txnlog.cli.exchange.schemas import schema
from txnlog.cli.failures import BROKEN_PIPE, INTERNAL, INTERRUPTED, TERMINATED, Interrupted, Notes, report
from txnlog.cli.looking.command import report as report_command
from txnlog.cli.looking.command import ui
from txnlog.cli.options import Commands
from txnlog.cli.output import Guarded, is_terminal, show_lines
from txnlog.cli.views.command import publish

__all__ = ["application", "main", "run"]

PROGRAM = "txnlog"
COMPLETE_VARIABLE = "_TXNLOG_COMPLETE"
PARENT_VARIABLE = "TRACEPARENT"
"""The span that started this program, as OpenTelemetry has programs tell each other."""

FLUSH_SECONDS = 10
"""How long the end of a command that is traced waits for the exporter: as long as one tries by default."""

_terminated = threading.Event()
"""SIGTERM has come."""


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 a check found problems, 2 bad input, 3 not found, 4 conflict, 5 storage, "
    "6 corrupt or unknown format, 7 outcome unknown.",
)
@click.version_option(__version__, prog_name=PROGRAM)
def application() -> None:
    """Work with a transactional log on object storage: topics, transactions, groups, snapshots.

    Every command takes the log from --root or the environment variable TXNLOG_ROOT, and prints JSON with
    --json.
    """


for command in (
    topics.create,
    topics.topics,
    topics.create_topic,
    alter_topic,
    topics.alter_log,
    topics.describe,
    schema,
    produce.produce,
    consume.consume,
    import_group,
    export_group,
    topics.offsets,
    delete_records,
    delete_topic,
    transactions.transactions,
    groups.groups,
    subscriptions.subscriptions,
    history.history,
    dump.dump,
    verify.verify,
    doctor,
    maintain.maintain,
    maintain.vacuum,
    maintain.truncate,
    maintain.compact,
    publish,
    erase,
    topics.rotate_key,
    topics.upgrade,
    metrics.metrics,
    report_command,
    ui,
    completion.completion,
):
    application.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; every error is reported here."""
    options = list(arguments)
    if sys.stdout is None:  # known before anything is done, which could not be told any more
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # for the rest of the process
        closed = StorageError(
            "standard output is closed; the command did nothing",
            kind="output-failed",
            hint="redirect it, for example to > /dev/null",
        )
        return report(closed, as_json=False)
    as_json = "--json" in (options[: options.index("--")] if "--" in options else options)
    traced = span("txnlog", command=_command(options), parent=os.environ.get(PARENT_VARIABLE))
    with Notes(as_json=as_json) as notes, traced:
        code = _run(options, notes, as_json=as_json)
        if code == INTERRUPTED and _terminated.is_set():
            code = TERMINATED
        notes.show()
        if traced:
            traced.set(exit_code=code)
            if code:
                traced.failed(notes.error or SystemExit(code))
    return code


def _command(options: list[str]) -> str | None:
    """Return the words that name the command, without any value of an option; None: there is no such
    command.
    """
    found: list[str] = []
    command: click.Command | None = application
    for word in options:
        command = command.commands.get(word) if isinstance(command, click.Group) else None
        if command is None:
            break
        found.append(word)
    return " ".join(found) or None


def _run(options: list[str], notes: Notes, *, as_json: bool) -> int:
    try:
        with application.make_context(PROGRAM, options) as context:
            answer = application.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:  # "txnlog", "txnlog dump": the help is the answer
        show_lines(error.format_message(), sys.stderr)
        return error.exit_code
    except (TxnLogError, click.ClickException, Interrupted) as error:
        return notes.report(error)
    except (KeyboardInterrupt, click.Abort):
        return notes.report(Interrupted("interrupted"))
    except BrokenPipeError as error:
        notes.error = error
        return BROKEN_PIPE
    except OSError as error:
        problem = StorageError(f"input or output failed: {error.strerror or error}", kind="output-failed")
        return notes.report(problem)
    except Exception as error:  # noqa: BLE001  # a defect: the one case where the user gets a traceback
        if not as_json:
            notes.error = error
            traceback.print_exc()
            return INTERNAL
        defect = InternalError(
            f"a defect of txnlog: {type(error).__name__}: {error}", hint="please report it"
        )
        defect.add_note(traceback.format_exc())
        return notes.report(defect)
    return answer if isinstance(answer, int) else 0


def _occupy_standard_files() -> None:
    """Keep the numbers of closed standard files from being those of data files, which C's messages would then
    go into.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # print would take stdout instead
    if is_terminal(sys.stderr):
        sys.stderr = cast(TextIO, Guarded(sys.stderr))


def main() -> NoReturn:
    """Run the command line of this process, and end it."""
    _occupy_standard_files()
    if COMPLETE_VARIABLE in os.environ:  # a shell asks for completions
        application.main(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE)

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        """End as Ctrl-C does: what is under way is given up or committed, and positions of groups are
        kept.
        """
        _terminated.set()
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # who starts programs may have it ignored
        signal.signal(signal.SIGTERM, terminate)
    code = run(sys.argv[1:])
    with contextlib.suppress(OSError):  # the reader has gone, and the code says so
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    with contextlib.suppress(KeyboardInterrupt):
        flush(FLUSH_SECONDS, is_last=True)
    # Python's own end is left out: a thread of Arrow that lets go of a Python object just then would abort
    # the process
    # (status 134) after all the work is done.
    os._exit(code)


if __name__ == "__main__":
    main()

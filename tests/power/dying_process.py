"""A process that kills itself between the link of an entry and the sync of its directory: run by
test_power_cut.py.

``dying_process.py <root>`` creates a log, and takes version 1 of an application: it never answers.
"""

from __future__ import annotations

import os
import signal
import sys

from txnformat.core.intents import AppRef, Write
from txnformat.store.local import LocalStore
from txnformat.store.posix import Posix
from txnlog import TxnLog

APP = AppRef("power", "job", 1)


class Dying(Posix):
    """The real calls; once armed, the next link is this process's last but for the removal of a temporary
    name."""

    is_armed = False
    has_linked = False

    def link(self, temporary: str, name: str, directory: int) -> None:
        super().link(temporary, name, directory)
        self.has_linked = self.is_armed

    def fsync_directory(self, directory: int) -> None:
        if self.has_linked:
            os.kill(os.getpid(), signal.SIGKILL)
        super().fsync_directory(directory)


def main(root: str) -> None:
    posix = Dying()
    log = TxnLog.create(LocalStore(root, posix=posix))
    log.committer.commit(log.committer.intend(Write(app=AppRef("power", "other", 1))))
    posix.is_armed = True
    log.committer.commit(log.committer.intend(Write(app=APP)))
    os.write(1, b"told\n")


if __name__ == "__main__":
    main(sys.argv[1])

"""``python -m txnlog``, and the command ``txnlog``: the way in, where Ctrl-C counts before all that the
command line needs is loaded.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 130
_AS_JSON = (
    '{"error": {"class": "Interrupted", "kind": "interrupted", "message": "interrupted", "values": {}, '
    '"hint": null, "exit_code": 130}}'
)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """End at once: nothing was begun. An exception would pass through modules that are half loaded."""
    line = _AS_JSON if "--json" in sys.argv else "txnlog: interrupted"
    try:
        os.write(2, f"{line}\n".encode())
    finally:
        os._exit(_INTERRUPTED)


def main() -> NoReturn:
    """Run the command line of this process, and end it."""
    is_own = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )  # else it is ignored, as behind nohup
    if is_own:
        signal.signal(signal.SIGINT, _end)
    from txnlog.cli.app import main as run

    if is_own:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()

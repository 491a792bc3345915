"""Tries a wheel as a new user does: ``python -m scripts.newcomer WHEEL``.

``make release`` does it with each wheel.

There are an empty directory, an empty HOME, a Python, a Java, and docs/start.md. The page's blocks of the
shell are run and its blocks of Python are pasted into the prompt, top to bottom; the page that ``txnlog ui``
serves is fetched. Then the container file's packages are installed and its commands are run. The first step
that fails ends the try. The steps of docs/start.md may take ten minutes together.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.meta.markdown import blocks
from tests.meta.pages import page
from tests.meta.prompt import Prompt, blocks_to_paste
from txnformat.clock import SystemClock, waited_ms

__all__ = ["CONTAINER", "START", "Container", "container", "main", "shell_blocks", "try_as_newcomer"]

ROOT = Path(__file__).resolve().parents[1]
START = "docs/start.md"
CONTAINER = "deploy/Dockerfile"
SECONDS_MAX = 600
"""For the steps of the page; the container's are not counted."""
SERVES = "txnlog ui"
"""A command of the page that ends only when it is told to."""


class Container(NamedTuple):
    """The parts of the container file that are tried."""

    extras: str
    """As in ``txnlog[s3,ui]``, without the brackets."""
    entry: list[str]
    command: list[str]
    others: list[list[str]]
    """Further words behind ``txnlog`` in the comment's ``docker run`` commands."""


def container(text: str) -> Container:
    """Return the parts of a container file."""
    words = {
        name: json.loads(value)
        for name, value in re.findall(r"^(ENTRYPOINT|CMD) (\[.*\])$", text, re.MULTILINE)
    }
    (extras,) = set(re.findall(r'\$\{wheel\}\[([\w,]+)\]"', text))
    others = [
        shlex.split(line) for line in re.findall(r"^#   docker run .* txnlog (\S.*)$", text, re.MULTILINE)
    ]
    return Container(extras, words["ENTRYPOINT"], words["CMD"], others)


def shell_blocks(text: str) -> tuple[list[str], list[str]]:
    """Return the blocks of the shell of a page without the commands that serve, and these."""
    plain, serving = [], []
    for block in blocks(text):
        if block.info == "sh":
            lines = block.text.splitlines()
            plain.append("\n".join(line for line in lines if not line.startswith(SERVES)))
            serving += [line.partition("#")[0].strip() for line in lines if line.startswith(SERVES)]
    return plain, serving


class _Newcomer:
    """A directory, and the environment of the processes in it."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder, self.wheel = folder, wheel.resolve()
        self.bin = folder / "my-venv" / "bin"
        java = subprocess.run([ROOT / "scripts" / "find-java"], check=True, stdout=subprocess.PIPE, text=True)
        base = folder / "python"
        base.mkdir()
        (base / "python3").symlink_to(getattr(sys, "_base_executable", sys.executable))
        (folder / "home").mkdir()
        self.environment = {
            "PATH": f"{self.bin}:{base}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "JAVA_HOME": java.stdout.strip(),
            "LANG": "C.UTF-8",
            "SPARK_LOCAL_IP": "127.0.0.1",
            # A bar of progress would stand before the prompt, which is waited for.
            "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.showConsoleProgress=false pyspark-shell",
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
        }

    def shell(self, text: str) -> str:
        """Run a block of the shell; return what it shows."""
        asked = text.replace("'.[", f"'{self.wheel}[")
        done = subprocess.run(
            ["sh", "-e"],
            check=False,
            input=asked,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            sys.exit(f"exit code {done.returncode}:\n{asked}\n{done.stdout}")
        return done.stdout

    def paste(self) -> None:
        """Paste the blocks of Python."""
        with Prompt(self.folder, self.bin / "python", self.environment) as prompt:
            for block in blocks_to_paste(START):
                prompt.paste(block.text)

    @contextmanager
    def service(self, words: list[str]) -> Iterator[subprocess.Popen[str]]:
        """Run a command that ends when it is told to; it has to end well."""
        asked = [str(self.bin / words[0]), *words[1:]]
        process = subprocess.Popen(
            asked, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True
        )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            if code := process.wait(60):
                sys.exit(f"{shlex.join(words)}: exit code {code} after SIGTERM")
        finally:
            process.kill()
            process.communicate()

    def fetch(self, words: list[str]) -> None:
        """Fetch the page that a command serves, at a free port of this machine."""
        host = [each if each != "0.0.0.0" else "127.0.0.1" for each in words]
        with self.service([*host, "--port", "0", "--json"]) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                sys.exit(f"{shlex.join(words)}: it does not serve")
            with urllib.request.urlopen(json.loads(line)["url"], timeout=60) as answer:
                text = answer.read().decode()
            if "orders" not in text:
                sys.exit(f"{shlex.join(words)}: the page does not name the topic")

    def contain(self) -> None:
        """Install the packages of the container file, and run its commands."""
        parts = container((ROOT / CONTAINER).read_text(encoding="utf-8"))
        self.shell(f"pip install --quiet '{self.wheel}[{parts.extras}]'")
        with self.service([*parts.entry, *parts.command]) as process:
            assert process.stdout is not None
            if not process.stdout.readline():
                sys.exit(f"{shlex.join(parts.command)}: it says nothing")
        for words in parts.others:
            self.fetch([*parts.entry, *words])


def try_as_newcomer(wheel: Path, folder: Path) -> dict[str, float]:
    """Try it.

    Parameters
    ----------
    wheel : Path
        The wheel.
    folder : Path
        An empty directory, where everything goes.

    Returns
    -------
    dict
        Seconds of each step.

    Raises
    ------
    SystemExit
        A step has failed, and the text says which.
    """
    (install, *others), serving = shell_blocks(page(START))
    newcomer = _Newcomer(folder, wheel)
    spent: dict[str, float] = {}
    clock = SystemClock()

    def timed(name: str, action: Callable[[], object]) -> None:
        begun = clock.now()
        action()
        spent[name] = waited_ms(begun, clock.now()) / 1_000

    def installed() -> None:
        shown = newcomer.shell(install)
        if "txnlog ui runs" not in shown or "0 problems, 0 warnings" not in shown:
            sys.exit(f"txnlog doctor is not content:\n{shown}")

    timed("install", installed)
    timed("produce, consume, stream", newcomer.paste)
    timed("look", lambda: [newcomer.shell(block) for block in others])
    newcomer.environment["TXNLOG_ROOT"] = str(folder / "shop")
    for line in serving:
        timed("page", functools.partial(newcomer.fetch, shlex.split(line)))
    if sum(spent.values()) > SECONDS_MAX:
        sys.exit(f"a new user needs more than {SECONDS_MAX} s: {spent}")
    timed("container", newcomer.contain)
    return spent


def main(arguments: list[str] | None = None) -> None:
    """Try the wheel that is named, and say how long each step took."""
    (wheel,) = sys.argv[1:] if arguments is None else arguments
    with tempfile.TemporaryDirectory(prefix="txnlog-newcomer-") as name:
        spent = try_as_newcomer(Path(wheel), Path(name))
    for step, seconds in spent.items():
        print(f"{step:<26}{seconds:6.0f} s")
    print(f"{'from nothing to the page':<26}{sum(spent.values()) - spent['container']:6.0f} s")


if __name__ == "__main__":
    main()

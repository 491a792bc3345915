"""Chromium in tests, driven over a pipe by its own protocol: no driver program, no port, no other package.

Commands and events are JSON with a zero byte behind each (``--remote-debugging-pipe``). What the pages fetch,
log and ask is kept.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["DESKTOP", "PHONE", "Chromium", "Screen", "Tab", "chromium", "find_chromium"]

PROGRAMS = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
PATIENCE_S = 60
"""Until an answer of a browser that hangs is given up."""
ON_PIPES = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
KEYS = {
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "Home": 36,
    "End": 35,
    "Tab": 9,
    "Enter": 13,
}


class Screen(NamedTuple):
    """A screen to look at a page with."""

    width: int
    height: int
    mobile: bool = False
    dark: bool = False


DESKTOP = Screen(1100, 900)
PHONE = Screen(390, 844, mobile=True)


def find_chromium() -> str | None:
    """Return the path of a browser: ``TXNLOG_CHROMIUM``, or one on the PATH; None when there is none."""
    named = os.environ.get("TXNLOG_CHROMIUM")
    return named or next((found for found in map(shutil.which, PROGRAMS) if found), None)


class Chromium:
    """A running browser. Not for several threads."""

    def __init__(self, program: str, profile: str) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # root cannot use the browser's own sandbox; and no name but this machine's leads anywhere
        arguments = [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
            "about:blank",
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", ON_PIPES, str(to_browser), str(from_browser), *arguments],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self.tabs: dict[str, Tab] = {}

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send a command, and return its answer; events that come before it go to their tabs."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self.receive()
            if found.get("id") == number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                result: dict[str, Any] = found["result"]
                return result

    def receive(self) -> dict[str, Any]:
        """Return the next message; an event goes to its tab first."""
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0, until - time.monotonic()))
            data = os.read(self._in, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError("the browser does not answer")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        tab = self.tabs.get(message.get("sessionId", ""))
        if tab is not None and "method" in message:
            tab.take(message["method"], message["params"])
        return message

    def tab(self, screen: Screen = DESKTOP) -> Tab:
        """Open a tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        found = self.tabs[session] = Tab(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            found.call(f"{domain}.enable")
        found.show_on(screen)
        return found

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(RuntimeError, OSError):
            self.call("Browser.close")
        os.close(self._out)
        os.close(self._in)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Tab:
    """A page in the browser, and everything that it did."""

    def __init__(self, browser: Chromium, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target
        self.requests: list[str] = []
        """URLs of all requests."""
        self.dialogs: list[str] = []
        """Texts of alerts and other dialogs."""
        self.faults: list[str] = []
        """Uncaught errors of scripts, and what the browser logs: violations of the page's policy are among
        it."""
        self._events: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command to the page."""
        return self._browser.call(method, self._session, **parameters)

    def take(self, method: str, parameters: dict[str, Any]) -> None:
        """Keep an event."""
        self._events.append(method)
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(parameters["message"])
        elif method == "Runtime.exceptionThrown":
            self.faults.append(str(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.faults.append(parameters["entry"]["text"])

    def show_on(self, screen: Screen) -> None:
        """Take another screen."""
        scale = 2 if screen.mobile else 1
        size = {"width": screen.width, "height": screen.height, "deviceScaleFactor": scale}
        self.call("Emulation.setDeviceMetricsOverride", **size, mobile=screen.mobile)
        scheme = "dark" if screen.dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url: str) -> None:
        """Load a page."""
        self._events.clear()
        self.call("Page.navigate", url=url)
        while "Page.loadEventFired" not in self._events:
            self._browser.receive()

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression, or of its promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Return the value of an expression once it is true; the page looks at it again with each picture
        that it draws."""
        return self.evaluate(
            f"""new Promise((done, failed) => {{
              const until = performance.now() + {PATIENCE_S // 2 * 1000};
              const look = () => {{
                const found = ({expression});
                if (found) done(found);
                else if (performance.now() > until) failed(new Error("it did not become true"));
                else setTimeout(look, 20);
              }};
              look();
            }})"""
        )

    def press(self, key: str) -> None:
        """Press a key and let it go."""
        code = KEYS[key]
        for kind in ("rawKeyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                nativeVirtualKeyCode=code,
            )
        if key == "Enter":
            self.call("Input.dispatchKeyEvent", type="char", text="\r", key=key)

    def picture(self, path: Path, *, height: int | None = None) -> None:
        """Save what the screen shows as a PNG, or its upper ``height`` pixels."""
        clip = {}
        if height is not None:
            width = self.evaluate("document.documentElement.clientWidth")
            clip = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, **clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """Close the tab."""
        self._browser.call("Target.closeTarget", targetId=self._target)
        self._browser.tabs.pop(self._session, None)


@contextlib.contextmanager
def chromium(program: str) -> Iterator[Chromium]:
    """Run a browser with a profile of its own, which is deleted."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Chromium(program, profile)
        try:
            yield browser
        finally:
            browser.close()

"""A headless Chromium, driven over the pipe of its DevTools protocol: no driver, no package, no network.

Takes the program that CHROMIUM names, else one on the PATH or one that Playwright has fetched.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
_FETCHED = ("chromium_headless_shell-*/chrome-*/*headless*shell", "chromium-*/chrome-linux*/chrome")
PATIENCE_S = 30.0


def found() -> str | None:
    """Path of a browser; None if there is none."""
    if named := os.environ.get("CHROMIUM"):
        return named
    on_path = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if on_path:
        return on_path
    cache = Path.home() / ".cache" / "ms-playwright"
    return next((str(path) for pattern in _FETCHED for path in sorted(cache.glob(pattern))), None)


class Tab:
    """One page. `requests` are the addresses that it asked for, `complaints` what its console and policy said."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.requests: list[str] = []
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Result of a command. RuntimeError with what the browser says."""
        return self._browser.call(method, parameters, self._session, self)

    def heard(self, event: dict[str, Any]) -> None:
        """Keep what a test asks about."""
        told = event["params"]
        if event["method"] == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif event["method"] == "Log.entryAdded":
            self.complaints.append(told["entry"]["text"])
        elif event["method"] == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"]))

    def show(self, width: int, scheme: str, *, script: bool = True) -> None:
        """Be a window of `width` CSS pixels, "light" or "dark", with or without scripts."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)

    def open(self, address: str) -> None:
        """Load an address and wait until it stands."""
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def wait(self, expression: str) -> None:
        """Go on when a JavaScript expression is true. RuntimeError where it never is."""
        ends = time.monotonic() + PATIENCE_S
        while self.ask(expression) is not True:
            if time.monotonic() > ends:
                raise RuntimeError(f"{expression} is not true after {PATIENCE_S} s")
            time.sleep(0.02)

    def ask(self, expression: str) -> Any:
        """Value of a JavaScript expression in the page; what it throws is raised."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(f"{expression}: {told['exceptionDetails']}")
        return told["result"].get("value")

    def click(self, selector: str) -> None:
        """Scroll to an element and press the mouse button in its middle, as a person would."""
        x, y = self.ask(
            f"(() => {{ const it = document.querySelector({json.dumps(selector)});"
            " it.scrollIntoView({block: 'center', behavior: 'instant'}); const box = it.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def write(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press a key by its DOM name, e.g. Enter."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=text if kind == "keyDown" else "")

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write a PNG of the page, all of it or the window's part."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


class Browser:
    """A running Chromium. Replies and events come over one pipe, in order."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, back: int) -> None:
        self._process, self._to, self._back = process, to, back
        self._numbers = itertools.count(1)
        self._rest = b""
        self._tabs: dict[str, Tab] = {}

    def tab(self) -> Tab:
        """A new page with cookies and caches of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", {"url": "about:blank", "browserContextId": context})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        tab = Tab(self, session)
        self._tabs[session] = tab
        return tab

    def call(
        self, method: str, parameters: dict[str, Any] | None = None, session: str | None = None, tab: Tab | None = None
    ) -> dict[str, Any]:
        """Result of a command; events that come before it go to their tab."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters or {}}
        os.write(self._to, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                result: dict[str, Any] = told["result"]
                return result
            if "method" in told and (hearer := self._tabs.get(told.get("sessionId", ""), tab)):
                hearer.heard(told)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._back, 1 << 20)
            if not part:
                raise RuntimeError(f"the browser has gone, with {self._process.wait()}")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        return told


# The protocol wants commands at descriptor 3 and answers at 4, which may be anything's here and nothing's there.
_PLACED = """
import os, sys
given, taken = int(sys.argv[1]), int(sys.argv[2])
os.dup2(given, 3)
os.dup2(taken, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


@contextlib.contextmanager
def running(program: str, folder: Path) -> Iterator[Browser]:
    """A browser with its profile and its log in `folder`, which ends with the block."""
    theirs, ours = os.pipe(), os.pipe()
    given, taken = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs[0], ours[1]))
    options = (
        "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={folder / 'profile'}",
    )  # fmt: skip
    with (folder / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _PLACED, str(given), str(taken), program, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(given, taken),
            start_new_session=True,
        )
    for end in (theirs[0], ours[1], given, taken):
        os.close(end)
    try:
        yield Browser(process, theirs[1], ours[0])
    finally:
        os.close(theirs[1])
        os.close(ours[0])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

"""A headless Chromium, spoken to through the two pipes of its DevTools protocol; standard library only."""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# The protocol wants descriptors 3 and 4. A process of its own moves them: code after a fork would not suit JAX.
LAUNCHER = """
import os, sys
read, write, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
os.dup2(read, 100), os.dup2(write, 101)
os.dup2(100, 3), os.dup2(101, 4)
os.execv(program[0], program)
"""
PATIENCE = 60.0  # seconds, for one answer on a busy machine


def chromium() -> str | None:
    """The path of a browser, if there is one."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page of a browser; `troubles` are the errors that it has reported."""

    def __init__(self, program: str, folder: Path):
        read, to_browser = os.pipe()
        self._from_browser, write = os.pipe()
        self._to_browser = to_browser
        command = [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(read), str(write), *command]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(launcher, pass_fds=(read, write), **quiet)
        os.close(read)
        os.close(write)
        self._said, self._asked, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command, and wait for its answer; events that come before it are kept."""
        self._asked += 1
        message = {"id": self._asked, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        while (found := self._next()).get("id") != self._asked:
            self.events.append(found)
        if "error" in found:
            raise RuntimeError(f"{method}: {found['error']}")
        return found["result"]

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._said:
            ready, _, _ = select.select([self._from_browser], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(self._from_browser, 1 << 20) if ready else b""
            if not piece:
                raise RuntimeError(f"The browser does not answer; it has ended with {self._process.poll()}.")
            self._said += piece
        message, _, self._said = self._said.partition(b"\0")
        return json.loads(message)

    def open(self, path: Path, *, width: int = 1400, dark: bool = False) -> None:
        """A page at a width of the window, in light or dark."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.ask("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript is on the page."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    @property
    def troubles(self) -> list[Any]:
        """Errors of the console, exceptions, and everything that was fetched beside the page."""
        console = {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"}
        found = [event["params"] for event in self.events if event.get("method") in console]
        asked = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return found + [url for url in asked[1:] if not url.startswith("data:image/png")]

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(PATIENCE)
        os.close(self._to_browser)
        os.close(self._from_browser)

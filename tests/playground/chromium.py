"""A headless Chromium that a test drives over two pipes, by the DevTools protocol."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from time import monotonic, sleep
from typing import Any

from report.browser import COMMON, chromium

SWITCHES = (*COMMON, "--remote-debugging-pipe")
START = """
import os, sys
read, write = (os.dup2(int(number), 20 + place) for place, number in enumerate(sys.argv[1:3]))
os.dup2(read, 3), os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""A program that starts Chromium, which takes commands from descriptor 3 and answers to 4."""


class Browser:
    """A running browser. Its answers come in the order of the commands, with events between."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._number = 0
        self._rest = b""
        self._pages: list[str] = []

    def command(self, method: str, session: str = "", seconds: float = 60, **values: Any) -> Any:
        """Return the result of a command. Raises AssertionError for an error or no answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": values}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = monotonic() + seconds
        while True:
            answer = self._message(until, method)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def target(self) -> str:
        """Return a new, empty page."""
        found = str(self.command("Target.createTarget", url="about:blank")["targetId"])
        self._pages.append(found)
        return found

    def close_pages(self) -> None:
        """Close all pages, and so end their workers."""
        for page in self._pages:
            self.command("Target.closeTarget", targetId=page)
        self._pages.clear()

    def _message(self, until: float, method: str) -> Any:
        while b"\0" not in self._rest:
            ready, _, _ = select([self._read], [], [], max(0.0, until - monotonic()))
            assert ready, f"no answer to {method} in time"
            self._rest += os.read(self._read, 1 << 20)
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


class Page:
    """A page in a browser, ``width`` pixels wide. A ``lax`` one is not held to its policy."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        width: int = 1440,
        *,
        dark: bool = False,
        lax: bool = False,
    ) -> None:
        self.browser = browser
        attached = browser.command("Target.attachToTarget", targetId=browser.target(), flatten=True)
        self.session = attached["sessionId"]
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.command("Page.setBypassCSP", enabled=lax)
        self.open(url)

    def open(self, url: str) -> None:
        """Load the page anew at an address, and wait until its script is through."""
        self.command("Page.navigate", url="about:blank")
        self.command("Page.navigate", url=url)
        self.wait("document.documentElement.dataset.ready !== undefined", 30)

    def ask(self, script: str, seconds: float = 60) -> Any:
        """Return what an expression gives; a promise is awaited."""
        found = self.command(
            "Runtime.evaluate",
            seconds,
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float) -> None:
        """Wait until a condition holds. Raises AssertionError if it does not in time."""
        until = monotonic() + seconds
        while not self.ask(
            f"new Promise((done) => setTimeout(() => done(Boolean({condition})), 50))"
        ):
            assert monotonic() < until, (
                f"{condition} does not hold: {self.ask('document.body.innerText')[-500:]}"
            )

    def frame(self, url: str, seconds: float) -> str:
        """Return the session of a loaded frame with an address, in a process of its kind."""
        until = monotonic() + seconds
        while monotonic() < until:
            for target in self.browser.command("Target.getTargets")["targetInfos"]:
                if (target["type"], target["url"]) == ("iframe", url):
                    values = {"targetId": target["targetId"], "flatten": True}
                    session = str(
                        self.browser.command("Target.attachToTarget", **values)["sessionId"]
                    )
                    values = {"expression": "document.readyState"}
                    state = self.browser.command("Runtime.evaluate", session, **values)
                    if state["result"]["value"] == "complete":
                        return session
            sleep(0.05)
        raise AssertionError(f"no frame {url} in time")

    def press(self, key: str) -> None:
        """Press a key where the focus is."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        code = {"Tab": 9, "Enter": 13, " ": 32}[key]
        for kind in ("keyDown", "keyUp"):
            self.command(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                text=text if kind == "keyDown" else "",
                windowsVirtualKeyCode=code,
            )

    def command(self, method: str, seconds: float = 60, **values: Any) -> Any:
        """Return the result of a command for this page."""
        return self.browser.command(method, self.session, seconds, **values)


@contextmanager
def running(folder: Path) -> Iterator[Browser]:
    """Yield a browser with its files in a folder, and end it; skip the test where none is."""
    path = chromium()
    commands, answers = os.pipe(), os.pipe()

    ends = commands[0], answers[1]
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            START,
            *map(str, ends),
            path,
            *SWITCHES,
            f"--user-data-dir={folder}",
        ],
        pass_fds=ends,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands[0])
    os.close(answers[1])
    try:
        yield Browser(commands[1], answers[0])
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        os.close(commands[1])
        os.close(answers[0])

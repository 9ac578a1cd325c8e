"""Drives a real Chromium over the pipe of its DevTools protocol: no driver, no library, no port."""

import fcntl
import json
import os
import select
import signal
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

# The names on Debian, other Linuxes and macOS.
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# A busy machine with two cores starts a browser in 10 s.
_PATIENCE_S = 60.0
# Where Chromium reads commands and writes answers (--remote-debugging-pipe).
_READS, _WRITES = 3, 4


class BrowserError(Exception):
    """The browser refused, or did not answer in time."""


class Browser:
    """One headless Chromium with a profile of its own; `page()` opens a tab without history."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(
            prefix="hifi-browser-", ignore_cleanup_errors=True
        )
        commands, self._to = (_high(end) for end in os.pipe())
        self._from, answers = (_high(end) for end in os.pipe())
        flags = [
            "--headless=new",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._profile.name}",
            # The sandbox needs rights that root and containers lack; only our own console is
            # opened.
            "--no-sandbox",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            "--font-render-hinting=none",
        ]
        log = Path(self._profile.name, "log")
        self.pid = os.posix_spawn(
            program,
            [program, *flags],
            os.environ,
            setpgroup=0,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, commands, _READS),
                (os.POSIX_SPAWN_DUP2, answers, _WRITES),
                (os.POSIX_SPAWN_OPEN, 2, str(log), os.O_WRONLY | os.O_CREAT, 0o600),
            ],
        )
        os.close(commands)
        os.close(answers)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._to, self._from):
            os.close(end)
        # The whole group: renderers and helpers would outlive it.
        with _gone_is_fine():
            os.killpg(self.pid, signal.SIGKILL)
        with _gone_is_fine():
            os.waitpid(self.pid, 0)
        self._profile.cleanup()

    @contextmanager
    def page(
        self,
        *,
        width: int = 1280,
        height: int = 900,
        scheme: Literal["light", "dark"] = "light",
        is_phone: bool = False,
    ) -> Iterator["Tab"]:
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)
        session = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        tab = Tab(self, session["sessionId"])
        try:
            tab.prepare(width=width, height=height, scheme=scheme, is_phone=is_phone)
            yield tab
        finally:
            self.send("Target.disposeBrowserContext", browserContextId=context)

    def send(self, method: str, *, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send one command and return its answer; keep what happens meanwhile in `events`."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until_s = time.monotonic() + _PATIENCE_S
        while True:
            answer = self._next(until_s, what=method)
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            if "method" in answer:
                self.events.append(answer)

    def _next(self, until_s: float, *, what: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not select.select([self._from], [], [], left_s)[0]:
                raise BrowserError(f"no answer within {_PATIENCE_S:.0f} s: {what}")
            chunk = os.read(self._from, 1 << 20)
            if not chunk:
                log = Path(self._profile.name, "log").read_text(errors="replace")
                raise BrowserError(f"the browser has ended: {log[-500:]}")
            self._buffer += chunk
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        return message


class Tab:
    """One page, with a person's keyboard and mouse."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def prepare(self, *, width: int, height: int, scheme: str, is_phone: bool) -> None:
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.send(f"{domain}.enable")
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if is_phone else 1,
            mobile=is_phone,
        )
        self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.send(method, session=self._session, **params)

    def frame(self, part: str) -> "Tab":
        """Return another site's frame, which is its own process, by a part of its address."""
        until_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until_s:
            for target in self._browser.send("Target.getTargets")["targetInfos"]:
                if target["type"] == "iframe" and part in target["url"]:
                    found = self._browser.send(
                        "Target.attachToTarget", targetId=target["targetId"], flatten=True
                    )
                    frame = Tab(self._browser, found["sessionId"])
                    for domain in ("Page", "Runtime", "Log"):
                        frame.send(f"{domain}.enable")
                    return frame
            time.sleep(0.05)
        raise BrowserError(f"after {_PATIENCE_S:.0f} s still no frame with {part}")

    def open(self, url: str) -> None:
        # Mark the old document, to distinguish its end from the new one's.
        found = self.send("Page.navigate", url=url)
        if found.get("errorText"):
            raise BrowserError(f"{url}: {found['errorText']}")
        self.wait_for("document.readyState === 'complete'", what=f"{url} is loaded")

    def run(self, script: str) -> Any:
        """Return the value of an expression; wait for a promise."""
        answer = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def text(self, selector: str = "body") -> str:
        found: str = self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return found

    def wait_for(self, script: str, *, what: str) -> None:
        """Wait until an expression is true; while a page changes, asking may fail."""
        until_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                if self.run(f"Boolean({script})"):
                    return
            except BrowserError:
                if time.monotonic() > until_s:
                    raise
            if time.monotonic() > until_s:
                raise BrowserError(f"after {_PATIENCE_S:.0f} s this is still not true: {what}")
            time.sleep(0.05)

    def click_and_load(self, selector: str) -> None:
        """Click something that leads to another document, and wait for that."""
        self.leave(lambda: self.run(f"document.querySelector({json.dumps(selector)}).click()"))

    def leave(self, act: Callable[[], object]) -> None:
        self.run("window.wasHere = true")
        act()
        self.wait_for(
            "!window.wasHere && document.readyState === 'complete'", what="the next page is loaded"
        )

    def key(self, name: str, *, text: str = "") -> None:
        """Press one key, for example Tab or Enter."""
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        common = {"key": name, "windowsVirtualKeyCode": codes.get(name, 0)}
        down: dict[str, Any] = {"type": "keyDown" if text else "rawKeyDown", **common}
        if text:
            down["text"] = text
        self.send("Input.dispatchKeyEvent", **down)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def come_to(self, wanted: str, *, steps_max: int = 60) -> None:
        """Press Tab until the field of that name, or the element with that text, has the focus."""
        for _ in range(steps_max):
            self.key("Tab")
            here = "document.activeElement.name || document.activeElement.innerText"
            if self.run(here) == wanted:
                return
        raise AssertionError(f"no way to {wanted!r} with the Tab key")

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def picture(self, *, height_max: int | None = None) -> bytes:
        """Return the whole page as PNG, or its upper part."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        answer = self.send(
            "Page.captureScreenshot",
            format="png",
            captureBeyondViewport=True,
            clip={
                "x": 0,
                "y": 0,
                "width": size["width"],
                "height": min(size["height"], height_max or size["height"]),
                "scale": 1,
            },
        )
        return b64decode(answer["data"])

    def complaints(self) -> list[str]:
        """Return complaints about our pages in the browser's console: errors, policy refusals."""
        self.run("1")
        found = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            params = event["params"]
            match event["method"]:
                case "Log.entryAdded" if params["entry"]["level"] in {"error", "warning"}:
                    found.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
                case "Runtime.exceptionThrown":
                    found.append(str(params["exceptionDetails"]))
                case "Runtime.consoleAPICalled" if params["type"] in {"error", "warning"}:
                    found.append(str(params["args"]))
                case _:
                    continue
        return found


def _high(end: int) -> int:
    """Return the same pipe under a number that the browser does not expect."""
    moved = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(end)
    return moved


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except (ProcessLookupError, ChildProcessError):
        return

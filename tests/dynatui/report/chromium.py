"""Controls a headless Chromium through its DevTools pipe: commands, keys, and errors in a page.

Needs only the standard library and the browser. Knows nothing of the tested pages.
"""

import json
import os
import select
import shutil
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_S = 60.0
_WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective));
"""
_FAULTS = ("Runtime.exceptionThrown", "Page.javascriptDialogOpening", "Runtime.consoleAPICalled", "Log.entryAdded")
_CODES = {"ArrowLeft": 37, "ArrowRight": 39, "PageUp": 33, "PageDown": 34, "Home": 36, "End": 35, "Tab": 9, " ": 32}
_CODES |= {"Enter": 13, "Escape": 27}


class Browser:
    def __init__(self, process: "subprocess.Popen[bytes]", to_browser: int, from_browser: int) -> None:
        self._process = process
        self._out = to_browser
        self._in = from_browser
        self._numbers = count(1)
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Sends a command and returns its result.

        Raises:
            RuntimeError: The command fails.
            TimeoutError: Chromium does not answer.
        """
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") != number:
                self.events.append(told)
            elif "error" in told:
                raise RuntimeError(f"{method}: {told['error']}")
            else:
                return dict(told["result"])

    def open(self, url: str, *, scripts: bool = True, width: int = 1280, **media: str) -> "Tab":
        """Opens and loads a page.

        Args:
            url: Address of the page.
            scripts: Whether the page's scripts run.
            width: Width of the window in pixels.
            media: Emulated CSS media features; names have `_` for `-`.
        """
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        tab = Tab(self, self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.ask(f"{domain}.enable")
        tab.ask("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
        tab.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        tab.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        tab.ask("Emulation.setEmulatedMedia", features=features)
        self.events.clear()
        tab.ask("Page.navigate", url=url)
        tab.await_event("Page.loadEventFired")
        return tab

    def next_event(self) -> dict[str, Any]:
        self.events.append(self._next())
        return self.events[-1]

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            read = os.read(self._in, 1 << 16)
            if not read:
                raise EOFError(f"Chromium has ended with {self._process.wait()}")
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))


class Tab:
    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.ask(method, self._session, **parameters)

    def await_event(self, method: str) -> None:
        while not any(self._is(event, method) for event in self._browser.events):
            self._browser.next_event()

    def value(self, expression: str) -> Any:
        done = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def text(self, selector: str) -> str:
        return str(self.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    def press(self, key: str, *, shift: bool = False) -> None:
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        told = {"key": key, "modifiers": 8 * shift, "windowsVirtualKeyCode": _CODES.get(key, ord(key[0].upper()))}
        self.ask("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **told)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **told)

    def until(self, expression: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not self.value(expression):
            if time.monotonic() > until:
                raise TimeoutError(expression)
            time.sleep(0.02)

    def faults(self) -> list[str]:
        found = [json.dumps(event) for event in self._browser.events for kind in _FAULTS if self._is(event, kind)]
        return found + list(self.value("window.violations"))

    def requests(self) -> list[str]:
        sent = [event for event in self._browser.events if self._is(event, "Network.requestWillBeSent")]
        urls = [str(event["params"]["request"]["url"]) for event in sent]
        return [url for url in urls if not url.startswith("data:")]

    def close(self) -> None:
        self.ask("Page.close")

    def picture(self, path: Path) -> None:
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        drawn = self.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(b64decode(drawn["data"]))

    def _is(self, event: dict[str, Any], method: str) -> bool:
        return event.get("sessionId") == self._session and event.get("method") == method


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    assert PROGRAM
    read, to_browser = os.pipe()
    from_browser, write = os.pipe()
    quiet = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
    options = (*quiet, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank")
    moved = f'exec "$0" "$@" 3<&{read} 4>&{write}'
    process = subprocess.Popen(
        ["bash", "-c", moved, PROGRAM, *options],
        pass_fds=(read, write),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read)
    os.close(write)
    browser = Browser(process, to_browser, from_browser)
    try:
        yield browser
    finally:
        browser.ask("Browser.close")
        process.wait(PATIENCE_S)
        os.close(to_browser)
        os.close(from_browser)

"""A headless Chromium for tests, driven over its debugging pipe: no driver and no package is needed.

It is `$CHROMIUM`, or the first of NAMES that the path has.
"""

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")


def found() -> str | None:
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """Messages of the DevTools protocol, each ended by a zero byte."""

    def __init__(self, reading: Any, writing: Any) -> None:
        self.reading, self.writing = reading, writing
        self.events: list[dict[str, Any]] = []
        self.number = 0
        self.session: str | None = None

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.writing.write(json.dumps(message).encode() + b"\0")
        self.writing.flush()
        while (answer := self._next()).get("id") != self.number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, page: Path, width: int, height: int = 900) -> None:
        """Show `page` in a new tab of this size, and wait until it is loaded."""
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.events.clear()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def prefer(self, scheme: str) -> None:
        """scheme: "light" or "dark", as the system of a reader says, for the page that is open."""
        wish = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", media="", features=[wish])

    def printed(self) -> int:
        """Pages of paper."""
        data = self.call("Page.printToPDF", preferCSSPageSize=True)["data"]
        return len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(data)))

    def press(self, key: str) -> None:
        codes = {"Tab": 9, "Enter": 13}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            extra = text if kind == "keyDown" else {}
            code = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
            self.call("Input.dispatchKeyEvent", type=kind, **code, **extra)

    def ask(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """What the console was told, and what was thrown."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event["method"] in kinds]

    def requested(self) -> list[str]:
        """Addresses that were asked for, but for the data within the page."""
        asked = [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in asked if not url.startswith("data:")]

    def picture(self, path: Path) -> None:
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def _next(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self.reading.read(1)) != b"\0":
            assert byte, "the browser ended"
            data += byte
        message: dict[str, Any] = json.loads(data)
        return message


@contextlib.contextmanager
def opened(profile: Path) -> Iterator[Browser]:
    """profile: an empty folder of its own."""
    to_read, from_write = os.pipe()
    from_read, to_write = os.pipe()
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
    # A browser reads its commands from descriptor 3 and answers on 4.
    process = subprocess.Popen(
        [
            *("bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "browser"),
            *(found() or "", *arguments, f"--user-data-dir={profile}"),
        ],
        pass_fds=(to_read, to_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(to_write)
    with open(from_read, "rb") as reading, open(from_write, "wb") as writing:
        try:
            yield Browser(reading, writing)
        finally:
            process.terminate()
            process.wait(timeout=20)

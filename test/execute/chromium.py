"""A chromium without a window, driven over DevTools' pipe."""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Failure(Exception):
    pass


class Browser:
    """One page of a chromium; commands and events are JSON texts with a zero byte behind each, on its descriptors 3 and 4."""

    def __init__(self, width=1240):
        self.profile = tempfile.mkdtemp(prefix="cinch-browser-")
        to_read, self.write = os.pipe()
        self.read, to_write = os.pipe()
        command = [shutil.which("chromium"), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
                   "--disable-background-networking", "--disable-component-update", "--disable-sync", f"--window-size={width},1000",
                   f"--user-data-dir={self.profile}", "--remote-debugging-pipe", "about:blank"]
        to_read, to_write = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_read, to_write)]
        # The child finds its ends as 3 and 4, whatever their numbers are here.
        script = 'exec 3<&"$0" 4>&"$1"; shift; exec "$@"'
        self.process = subprocess.Popen(["bash", "-c", script, str(to_read), str(to_write), *command], pass_fds=(to_read, to_write),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (to_read, to_write):
            os.close(end)
        self.buffer, self.number, self.events, self.session = b"", 0, [], None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def message(self, limit):
        while b"\0" not in self.buffer:
            left = limit - time.monotonic()
            if left <= 0 or not select.select([self.read], [], [], left)[0]:
                raise Failure("the browser does not answer")
            piece = os.read(self.read, 1 << 20)
            if not piece:
                raise Failure("the browser has ended")
            self.buffer += piece
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        limit = time.monotonic() + 120
        while True:
            answer = self.message(limit)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise Failure(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise Failure(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def open(self, path):
        self.events = []
        self.call("Page.navigate", url=path.as_uri())
        for _ in range(300):
            if self.value("document.readyState === 'complete' && location.protocol === 'file:'"):
                return
            time.sleep(0.1)
        raise Failure(f"{path} does not load")

    def key(self, key, shift=False):
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, modifiers=8 if shift else 0,
                      windowsVirtualKeyCode={"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "p": 80, " ": 32}[key])

    def click(self, selector):
        x, y = self.value(f"(() => {{ const b = document.querySelector('{selector}'); b.scrollIntoView({{block: 'center'}}); "
                          f"const r = b.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path, scheme, box=None):
        """Of the whole page, or of a box of it: x, y, width, height."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        time.sleep(0.3)
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        box = box or {"x": 0, "y": 0, "width": size["width"], "height": size["height"]}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                         clip={**box, "scale": 1})["data"]
        path.write_bytes(base64.b64decode(data))
        return self.value("getComputedStyle(document.body).backgroundColor")

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.profile, True)

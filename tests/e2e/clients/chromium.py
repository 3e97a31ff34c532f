"""A headless Chromium, driven over its DevTools pipe: nothing but Python is needed."""
import base64
import json
import os
import pathlib
import subprocess
import tempfile
import time


class Tab:
    """One page. Tabs of one context share their storage, as windows of one person do."""

    def __init__(self, browser, target, width=1100, height=800):
        self.browser, self.target = browser, target
        self.session = browser.send(None, "Target.attachToTarget", targetId=target,
                                    flatten=True)["sessionId"]
        self.call("Runtime.enable")
        self.call("Page.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method, **params):
        return self.browser.send(self.session, method, **params)

    def js(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, expression, seconds=900):
        end = time.time() + seconds
        while time.time() < end:
            if self.js(expression):
                return
            time.sleep(0.05)
        raise AssertionError(
            f"never true: {expression}; page: {self.js('document.body.innerText')}"
        )

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def picture(self, name):
        folder = os.environ.get("KTX_PICTURES")
        if folder:
            data = self.call("Page.captureScreenshot")["data"]
            pathlib.Path(folder, name + ".png").write_bytes(base64.b64decode(data))

    def key(self, key, code, modifiers=0, text=""):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=code, modifiers=modifiers,
                      **({"text": text} if kind == "keyDown" and text else {}))

    def crash(self):
        """Ends its process; there is no answer to that."""
        self.browser.post(self.session, "Page.crash")

    def close(self):
        self.browser.send(None, "Target.closeTarget", targetId=self.target)


class Browser:
    """One Chromium. `problems` are the exceptions that no page caught."""

    def __init__(self):
        to_browser, self.write_fd = os.pipe()
        self.read_fd, from_browser = os.pipe()
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)

        def arrange():
            # Chromium reads commands from descriptor 3 and answers on 4.
            source, target = os.dup(to_browser), os.dup(from_browser)
            os.dup2(source, 3)
            os.dup2(target, 4)

        self.process = subprocess.Popen(
            [os.environ["KTX_BROWSER"], "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--remote-debugging-pipe", "--no-first-run",
             f"--user-data-dir={self.profile.name}", "about:blank"],
            preexec_fn=arrange, close_fds=False, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.last, self.held, self.problems = 0, b"", []

    def post(self, session, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.write_fd, json.dumps(message).encode() + b"\0")

    def send(self, session, method, **params):
        self.post(session, method, **params)
        while True:
            while b"\0" not in self.held:
                more = os.read(self.read_fd, 1 << 20)
                if not more:
                    raise RuntimeError("the browser ended")
                self.held += more
            line, self.held = self.held.split(b"\0", 1)
            answer = json.loads(line)
            if answer.get("method") == "Runtime.exceptionThrown":
                self.problems.append(answer["params"]["exceptionDetails"])
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer["result"]

    def context(self):
        """A profile of its own: storage that no other context sees."""
        return self.send(None, "Target.createBrowserContext")["browserContextId"]

    def forget(self, context):
        self.send(None, "Target.disposeBrowserContext", browserContextId=context)

    def tab(self, context, **size):
        target = self.send(None, "Target.createTarget", url="about:blank",
                           browserContextId=context)["targetId"]
        return Tab(self, target, **size)

    def close(self):
        try:
            self.send(None, "Browser.close")
        except (RuntimeError, OSError):
            pass
        self.process.wait(60)
        self.profile.cleanup()

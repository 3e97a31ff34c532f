#!/usr/bin/env python3
"""A hub of models on this machine, for tests of ktx-pull: the paths, redirects, headers and refusals
of the real one, and its bad days.

    fake_hub.py FOLDER --log LOG [--busy 2] [--cut 100000] ...

FOLDER/OWNER/NAME/... are the files. Two ports are opened: the hub's, which is printed, and one that
it redirects files to. LOG gets a line of JSON for each request.
"""
import argparse
import hashlib
import http.server
import json
import os
import socketserver
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--log", required=True)
    parser.add_argument("--token", help="the hub refuses requests without it")
    parser.add_argument("--busy", type=int, default=0, help="so many answers of 429 first")
    parser.add_argument("--retry-after", default="0")
    parser.add_argument("--broken", type=int, default=0, help="so many answers of 500 first")
    parser.add_argument("--cut", type=int, default=0, help="bytes of an answer before it is cut")
    parser.add_argument("--cuts", type=int, default=10**9, help="so many answers are cut")
    parser.add_argument("--expire", type=int, default=0, help="uses of a redirect's address")
    parser.add_argument("--wrong", action="store_true", help="a byte of each file is another one")
    parser.add_argument("--no-ranges", action="store_true")
    parser.add_argument("--loop", action="store_true", help="redirects lead to redirects")
    parser.add_argument("--refer", help="redirects lead there")
    parser.add_argument("--size", type=int, help="the size that ranges are said to be of")
    parser.add_argument("--name", action="append", default=[], help="a further file is listed")
    parser.add_argument("--answer", help="the body of the list")
    parser.add_argument("--endless", choices=["headers", "page", "list"],
                        help="the answer to a question for files has no end there")
    parser.add_argument("--slow", type=float, default=0, help="seconds for each 64 KiB")
    return parser.parse_args()


class Hub:
    def __init__(self, options):
        self.options = options
        self.lock = threading.Lock()
        self.left = {"busy": options.busy, "broken": options.broken, "cut": options.cuts}
        self.uses = {}
        self.digests = {}
        self.cdn_port = 0

    def take(self, what):
        """Whether one is left of so many."""
        with self.lock:
            self.left[what] -= 1
            return self.left[what] >= 0

    def use(self, signature):
        with self.lock:
            self.uses[signature] = self.uses.get(signature, 0) + 1
            return self.uses[signature]

    def log(self, **fields):
        with self.lock, open(self.options.log, "a") as out:
            out.write(json.dumps(fields) + "\n")

    def digest(self, path):
        """Of models of many GiB as well, so it is computed once."""
        info = os.stat(path)
        key = (path, info.st_mtime_ns, info.st_size)
        if key not in self.digests:
            sha256 = hashlib.sha256()
            with open(path, "rb") as file:
                while piece := file.read(1 << 20):
                    sha256.update(piece)
            self.digests[key] = sha256.hexdigest()
        return self.digests[key]

    def listing(self, model):
        root = os.path.join(self.options.folder, model)
        siblings = []
        for folder, _, names in os.walk(root):
            for name in sorted(names):
                path = os.path.join(folder, name)
                size, digest = os.path.getsize(path), self.digest(path)
                entry = {"rfilename": os.path.relpath(path, root), "size": size,
                         "blobId": digest[:40]}
                if name.endswith(".gguf"):
                    entry["lfs"] = {"sha256": digest, "size": size, "pointerSize": 135}
                siblings.append(entry)
        for name in self.options.name:
            lfs = {"sha256": "0" * 64, "size": 4, "pointerSize": 135}
            siblings.append({"rfilename": name, "size": 4, "lfs": lfs})
        return {"id": model, "sha": COMMIT, "gated": False, "siblings": siblings}


def handler_of(hub, is_hub):
    options = hub.options

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self, status, body=b"", **headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            hub.log(host="hub" if is_hub else "cdn", path=self.path,
                    range=self.headers.get("Range"), token=self.headers.get("Authorization"),
                    agent=self.headers.get("User-Agent"))
            url = urllib.parse.urlparse(self.path)
            parts = [urllib.parse.unquote(part) for part in url.path.split("/")[1:]]
            if not is_hub:
                return self.send_blob(parts, url.query)
            if options.endless:
                return self.send_for_ever()
            if hub.take("busy"):
                return self.answer(429, b"slow down", Retry_After=options.retry_after)
            if hub.take("broken"):
                return self.answer(500, b"<html>oops</html>")
            if options.token and self.headers.get("Authorization") != "Bearer " + options.token:
                return self.answer(401, b'{"error": "Invalid username or password."}')
            if parts[:2] == ["api", "models"]:
                return self.send_listing("/".join(parts[2:4]))
            if len(parts) > 4 and parts[2] == "resolve":
                return self.redirect(parts)
            return self.answer(404, b"Not found")

        def send_for_ever(self):
            status = 404 if options.endless == "page" else 200
            self.wfile.write(b"HTTP/1.1 %d So\r\n" % status)
            if options.endless != "headers":
                self.wfile.write(b"Content-Type: text/plain\r\n\r\n")
            self.close_connection = True
            try:
                while True:
                    self.wfile.write(b"x-more: and more\r\n" * 4096)
            except OSError:
                pass

        def send_listing(self, model):
            if not os.path.isdir(os.path.join(options.folder, model)):
                return self.answer(404, b'{"error": "Repository not found"}')
            body = options.answer or json.dumps(hub.listing(model))
            return self.answer(200, body.encode())

        def redirect(self, parts):
            path = "/".join(parts[:2] + parts[4:])
            where = f"http://127.0.0.1:{hub.cdn_port}/{urllib.parse.quote(path)}"
            where += f"?signature={time.monotonic_ns()}"
            if options.loop:
                where = self.path
            return self.answer(302, b"Found", Location=options.refer or where,
                               X_Repo_Commit=COMMIT, ETag='"of the pointer"')

        def send_blob(self, parts, query):
            if options.expire and hub.use(query) > options.expire:
                return self.answer(403, b"<Error>AccessDenied: Request has expired</Error>")
            path = os.path.join(options.folder, *parts)
            length = os.path.getsize(path)
            size = options.size or length
            begin, end = 0, length
            asked = self.headers.get("Range")
            partial = bool(asked) and not options.no_ranges
            if partial:
                first, last = asked.removeprefix("bytes=").split("-")
                begin, end = int(first), min(int(last) + 1, length)
            self.send_response(206 if partial else 200)
            if partial:
                self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
            self.send_header("Content-Length", str(end - begin))
            self.end_headers()
            stop = end
            if options.cut and end - begin > options.cut and hub.take("cut"):
                stop = begin + options.cut
            wrong = length // 2 if options.wrong else -1
            try:
                with open(path, "rb") as file:
                    file.seek(begin)
                    for at in range(begin, stop, 65536):
                        piece = bytearray(file.read(min(65536, stop - at)))
                        if at <= wrong < at + len(piece):
                            piece[wrong - at] ^= 1
                        self.wfile.write(piece)
                        if options.slow:
                            self.wfile.flush()
                            time.sleep(options.slow)
            except OSError:
                pass
            if stop < end:
                self.close_connection = True

    return Handler


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        """A client that was killed is what the tests do."""


def main():
    options = arguments()
    hub = Hub(options)
    cdn = Server(("127.0.0.1", 0), handler_of(hub, is_hub=False))
    hub.cdn_port = cdn.server_port
    threading.Thread(target=cdn.serve_forever, daemon=True).start()
    front = Server(("127.0.0.1", 0), handler_of(hub, is_hub=True))
    print(front.server_port, flush=True)
    front.serve_forever()


if __name__ == "__main__":
    main()

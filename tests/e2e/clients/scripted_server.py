"""The page of a real server, in front of a model that does what the question says:

    slow 20     twenty words, one each 30 ms         die 5    five words, then the connection breaks
    end 5       five words, then a polite end without the end mark              wait     nothing
    length 5    five words, ended by the limit of tokens     else     "answer N: the question"

With `keeps` it keeps streams as the real one does: X-Conversation-Id, /v1/stream.
"""
import http.server
import json
import socket
import struct
import threading
import time
import urllib.request


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, body, headers):
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path.split("?")[0] == "/":
            return self.reply(self.server.page, self.server.page_headers)
        if self.path.split("?")[0] == "/stats" and self.server.stats_error:
            self.send_response(403)
            body = json.dumps({"error": {"message": self.server.stats_error}}).encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            return self.wfile.write(body)
        if self.path.split("?")[0] == "/v1/stream":
            return self.read_again(self.path.split("conv_id=")[1])
        self.server.paths.append(self.path)
        if self.path.split("?")[0] == "/props":
            return self.reply(json.dumps(self.server.props).encode(),
                              {"Content-Type": "application/json"})
        self.reply(json.dumps({"data": self.server.models}).encode(),
                   {"Content-Type": "application/json"})

    def do_DELETE(self):
        kept = self.server.streams.pop(self.path.split("conv_id=")[1], None)
        if kept:
            kept["cancelled"] = True
        self.send_response(204)
        self.end_headers()

    def read_again(self, name):
        kept = self.server.streams.get(name)
        self.server.read_again += 1
        self.send_response(200 if kept else 404)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        at = 0
        while kept:
            done, text = kept["done"], bytes(kept["text"][at:])
            self.wfile.write(text)
            self.wfile.flush()
            at += len(text)
            if done and at == len(kept["text"]):
                return
            time.sleep(0.01)

    def write(self, text):
        if self.kept is None:
            self.wfile.write(text)
            return self.wfile.flush()
        if self.kept["cancelled"]:
            raise OSError("cancelled")
        self.kept["text"] += text
        try:
            self.wfile.write(text)
            self.wfile.flush()
        except OSError:
            pass  # the answer goes on

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/streams/lookup":
            names = [name for name in body["conversation_ids"] if name in self.server.streams]
            return self.reply(json.dumps([{"conversation_id": name} for name in names]).encode(),
                              {"Content-Type": "application/json"})
        self.server.asked.append(body)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        name, self.kept = self.headers["X-Conversation-Id"], None
        if self.server.keeps:
            self.kept = self.server.streams[name] = {"text": bytearray(), "done": False,
                                                     "cancelled": False}
        try:
            self.answer(body["messages"])
        except OSError:
            pass  # the page went away, which is what some tests do
        if self.kept:
            self.kept["done"] = True

    def event(self, delta=None, reason=None, **more):
        choice = {"index": 0, "delta": delta or {}, "finish_reason": reason}
        event = {"choices": [choice], "model": self.server.asked[-1].get("model", "scripted")}
        self.write(b"data: " + json.dumps({**event, **more}).encode() + b"\n\n")

    def answer(self, messages):
        question = [m for m in messages if m["role"] == "user"][-1]["content"]
        kind, _, count = question.partition(" ")
        if kind == "wait":
            self.server.released.wait()
        elif kind in ("slow", "die", "end", "length"):
            for i in range(int(count)):
                self.event({"content": f"word{i} "})
                time.sleep(0.03)
        else:
            self.event({"content": f"answer {len(self.server.asked)}: {question}"})
        if kind == "die":
            # No end of the stream but a reset, as of a server that was killed.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            for i in range(int(count), 2 * int(count) if self.kept else 0):
                self.event({"content": f"word{i} "})
                time.sleep(0.03)
        if kind != "end" and (kind != "die" or self.kept):
            self.event(reason="length" if kind == "length" else "stop")
            if self.server.usage:
                usage = {"prompt_tokens": self.server.usage, "completion_tokens": 10}
                self.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode()
                           + b"\n\n")
            self.write(b"data: [DONE]\n\n")


class ScriptedServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, url):
        super().__init__(("127.0.0.1", 0), Handler)
        request = urllib.request.Request(url, headers={"Accept": "text/html"})
        with urllib.request.urlopen(request) as reply:
            self.page = reply.read()
            self.page_headers = {name: reply.headers[name] for name in (
                "Content-Type", "Content-Security-Policy", "X-Content-Type-Options")}
        self.props, self.usage, self.stats_error = {}, 0, ""
        self.models, self.paths = [{"id": "scripted"}], []
        self.asked, self.released = [], threading.Event()
        self.keeps, self.streams, self.read_again = False, {}, 0
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass

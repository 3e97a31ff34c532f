"""The page of a real server, in front of a model that does what the question says:

    slow 20     twenty words, one each 30 ms         die 5    five words, then the connection breaks
    end 5       five words, then a polite end without the end mark              wait     nothing
    length 5    five words, ended by the limit of tokens     else     "answer N: the question"
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
        self.server.paths.append(self.path)
        if self.path.split("?")[0] == "/props":
            return self.reply(json.dumps(self.server.props).encode(),
                              {"Content-Type": "application/json"})
        self.reply(json.dumps({"data": self.server.models}).encode(),
                   {"Content-Type": "application/json"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self.answer(body["messages"])
        except OSError:
            pass  # the page went away, which is what some tests do

    def event(self, delta=None, reason=None, **more):
        choice = {"index": 0, "delta": delta or {}, "finish_reason": reason}
        event = {"choices": [choice], "model": self.server.asked[-1].get("model", "scripted")}
        self.wfile.write(b"data: " + json.dumps({**event, **more}).encode() + b"\n\n")
        self.wfile.flush()

    def answer(self, messages):
        question = [m for m in messages if m["role"] == "user"][-1]["content"]
        kind, _, count = question.partition(" ")
        if kind == "wait":
            self.server.released.wait(60)
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
        elif kind != "end":
            self.event(reason="length" if kind == "length" else "stop")
            if self.server.usage:
                usage = {"prompt_tokens": self.server.usage, "completion_tokens": 10}
                self.wfile.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode()
                                 + b"\n\n")
            self.wfile.write(b"data: [DONE]\n\n")


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
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass

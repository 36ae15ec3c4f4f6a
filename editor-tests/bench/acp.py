"""Shared code of the benchmarks in Python: a mock model, and an agent that is driven over ACP."""

import http.server
import json
import os
import re
import subprocess
import threading
import time


class Model(http.server.BaseHTTPRequestHandler):
    """Makes the given calls, one per answer, and records the times of the requests and answers of turns."""

    protocol_version = "HTTP/1.1"
    # One packet per answer: the second of two waits for the first to be acknowledged, for 40 ms.
    wbufsize = -1
    calls = []
    asked = []
    answered = []

    def log_message(self, *_):
        pass

    def do_POST(self):
        asked = time.perf_counter()
        body = self.rfile.read(int(self.headers["content-length"]))
        # A request for a title offers no tools.
        is_turn = re.search(rb'"tools":\s*\[', body) is not None
        if is_turn:
            Model.asked.append(asked)
        delta, reason = {"content": "Done."}, "stop"
        if is_turn and Model.calls:
            name, arguments = Model.calls.pop(0)
            function = {"name": name, "arguments": json.dumps(arguments)}
            delta = {"tool_calls": [{"index": 0, "id": f"c{len(Model.asked)}", "type": "function", "function": function}]}
            reason = "tool_calls"
        chunks = [{"index": 0, "delta": delta, "finish_reason": None}, {"index": 0, "delta": {}, "finish_reason": reason}]
        body = "".join("data: " + json.dumps({"choices": [chunk]}) + "\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())
        self.wfile.flush()
        if is_turn:
            Model.answered.append(time.perf_counter())


def serve():
    """Starts the model; its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def settings_of(home, port, settings):
    """Writes these settings into `home`, with the model at this port."""
    provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"http://127.0.0.1:{port}/v1"}, "models": {"m": {}}}
    settings = {"model": "local/m", "provider": {"local": provider}, "snapshot": False, **settings}
    folder = os.path.join(home, ".config", "adjutant")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "adjutant.json"), "w") as file:
        json.dump(settings, file)


def usage(pid):
    """Resident memory in KiB, and seconds of CPU time, from the process's clock, because /proc has ticks of 10 ms."""
    with open(f"/proc/{pid}/status") as status:
        memory = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    return memory, time.clock_gettime(~pid << 3 | 2)


class Agent:
    """One process with one session in `root` and the home `home`; without a session if `opens` is false."""

    def __init__(self, binary, home, root, port, settings, opens=True, env=None):
        settings_of(home, port, settings)
        env = {"HOME": home, "PATH": os.environ["PATH"], "TMPDIR": home, "ADJUTANT_DISABLE_TITLES": "1", "ADJUTANT_TRUST": "all", **(env or {})}
        self.process = subprocess.Popen([binary, "acp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=root)
        self.number = 0
        self.ask("initialize", {"protocolVersion": 1})
        self.session = self.ask("session/new", {"cwd": root, "mcpServers": []})["sessionId"] if opens else None

    def ask(self, method, params):
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        while True:
            heard = json.loads(self.process.stdout.readline())
            if heard.get("id") == self.number and "method" not in heard:
                return heard["result"]

    def prompt(self, text, calls=()):
        """The times of the prompt, of the request to the model, and of the response."""
        Model.calls, Model.asked, Model.answered = list(calls), [], []
        began = time.perf_counter()
        end = self.ask("session/prompt", {"sessionId": self.session, "prompt": [{"type": "text", "text": text}]})
        assert end["stopReason"] == "end_turn", end
        assert len(Model.asked) == len(calls) + 1, len(Model.asked)
        return began, Model.asked, Model.answered

    def end(self):
        self.process.stdin.close()
        self.process.wait()

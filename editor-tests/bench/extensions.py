"""What plugins cost:

    python3 editor-tests/bench/extensions.py target/release/adjutant

The first use of the host is how much later the first request of a session reaches the model where there is a plugin
than where there is none, beside what the runtime takes to do nothing. Then a turn of many steps, each a call of
`read`: the time from the model's last word to the next request, without plugins, with one that hooks into no step, and
with `tool.execute.before` and `tool.execute.after`. Half of what the last is dearer than the one before is a hook's
round trip. The kinds take turns, so that what else the machine does is shared by all. With the user's own plugin and
one of the project there are two hosts.
"""

import http.server
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BINARY = os.path.abspath(sys.argv[1])
ROUNDS = int(os.environ.get("ROUNDS", "15"))
STEPS = int(os.environ.get("STEPS", "200"))

NOTHING = "export const P = async () => ({})"
HOOKS = """export const P = async () => ({
  "tool.execute.before": async (input, output) => { output.args = { ...output.args } },
  "tool.execute.after": async (input, output) => { output.output += "" },
})"""


class Model(http.server.BaseHTTPRequestHandler):
    """Has a line read in each step, and notes when it is asked and when it has said its last word."""

    protocol_version = "HTTP/1.1"
    left = 0
    asked = []
    said = []

    def log_message(self, *_):
        pass

    def do_POST(self):
        Model.asked.append(time.perf_counter())
        self.rfile.read(int(self.headers["content-length"]))
        delta, reason = {"content": "Done."}, "stop"
        if Model.left:
            Model.left -= 1
            arguments = json.dumps({"filePath": "big.txt", "offset": Model.left + 1, "limit": 1})
            call = {"index": 0, "id": f"c{Model.left}", "type": "function", "function": {"name": "read", "arguments": arguments}}
            delta, reason = {"tool_calls": [call]}, "tool_calls"
        chunks = [{"index": 0, "delta": delta, "finish_reason": None}, {"index": 0, "delta": {}, "finish_reason": reason}]
        body = "".join("data: " + json.dumps({"choices": [chunk]}) + "\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())
        Model.said.append(time.perf_counter())


class Session:
    """One session of one process, with these plugins of the user's and of the project."""

    def __init__(self, port, own=None, project=None):
        self.home = tempfile.mkdtemp(prefix="adjutant-bench-")
        root = os.path.join(self.home, "project")
        os.makedirs(os.path.join(root, ".git"))
        with open(os.path.join(root, "big.txt"), "w") as file:
            file.writelines(f"line {n}\n" for n in range(STEPS + 2))
        for folder, plugin in [(os.path.join(self.home, ".config", "opencode"), own), (os.path.join(root, ".opencode"), project)]:
            if plugin:
                os.makedirs(os.path.join(folder, "plugin"))
                with open(os.path.join(folder, "plugin", "p.js"), "w") as file:
                    file.write(plugin)
        provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"http://127.0.0.1:{port}/v1"}, "models": {"m": {}}}
        settings = {"model": "local/m", "provider": {"local": provider}, "snapshot": False, "budget": {"steps": STEPS + 10}}
        os.makedirs(os.path.join(self.home, ".config", "adjutant"))
        with open(os.path.join(self.home, ".config", "adjutant", "adjutant.json"), "w") as file:
            json.dump(settings, file)
        env = {"HOME": self.home, "PATH": os.environ["PATH"], "TMPDIR": self.home, "ADJUTANT_DISABLE_TITLES": "1", "ADJUTANT_TRUST": "all"}
        self.process = subprocess.Popen([BINARY, "acp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=root)
        self.number = 0
        self.ask("initialize", {"protocolVersion": 1})
        self.session = self.ask("session/new", {"cwd": root, "mcpServers": []})["sessionId"]

    def ask(self, method, params):
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        while True:
            heard = json.loads(self.process.stdout.readline())
            if heard.get("id") == self.number and "method" not in heard:
                return heard["result"]

    def prompt(self, steps):
        """When the prompt was sent, when the model was asked, and when it had said its last word."""
        Model.left, Model.asked, Model.said = steps, [], []
        began = time.perf_counter()
        end = self.ask("session/prompt", {"sessionId": self.session, "prompt": [{"type": "text", "text": "Read."}]})
        assert end["stopReason"] == "end_turn", end
        assert len(Model.asked) == steps + 1, len(Model.asked)
        return began, Model.asked, Model.said

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)


def first(port, **plugins):
    """From the first prompt to the first request, in ms."""
    session = Session(port, **plugins)
    began, asked, _ = session.prompt(0)
    session.end()
    return (asked[0] - began) * 1000


def gaps(port, **plugins):
    """The median step of a turn, in ms."""
    session = Session(port, **plugins)
    session.prompt(0)
    _, asked, said = session.prompt(STEPS)
    session.end()
    return statistics.median((later - before) * 1000 for before, later in zip(said, asked[1:]))


def runtime():
    """What the runtime takes to do nothing, in ms."""
    program, options = (shutil.which("bun"), ["-e", "0"]) if shutil.which("bun") else (shutil.which("node"), ["-e", "0"])
    began = time.perf_counter()
    subprocess.run([program, *options], check=True)
    return os.path.basename(program), (time.perf_counter() - began) * 1000


def told(name, times):
    times = sorted(times)
    print(f"  {name}: {statistics.median(times):.2f} ms (from {times[0]:.2f} to {times[-1]:.2f})")
    return statistics.median(times)


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    kinds = [("without plugins", {}), ("with one", {"project": NOTHING}), ("with one of each origin", {"project": NOTHING, "own": NOTHING})]
    times, bare = {name: [] for name, _ in kinds}, []
    for _ in range(ROUNDS):
        for name, plugins in kinds:
            times[name].append(first(port, **plugins))
        program, took = runtime()
        bare.append(took)
    print(f"from the first prompt to the first request, {ROUNDS} times each:")
    told(f"{program} -e 0", bare)
    medians = [told(name, times[name]) for name, _ in kinds]
    print(f"  so the first use of a host takes {medians[1] - medians[0]:.0f} ms, of two {medians[2] - medians[0]:.0f} ms")
    kinds = [
        ("without plugins", {}),
        ("with one that hooks into no step", {"project": NOTHING}),
        ("with tool.execute.before and after", {"project": HOOKS}),
        ("with the same in both hosts", {"project": HOOKS, "own": HOOKS}),
    ]
    times = {name: [] for name, _ in kinds}
    for _ in range(max(3, ROUNDS // 3)):
        for name, plugins in kinds:
            times[name].append(gaps(port, **plugins))
    print(f"a step, medians of {STEPS} in {max(3, ROUNDS // 3)} sessions each:")
    medians = [told(name, times[name]) for name, _ in kinds]
    print(f"  so both hooks take {medians[2] - medians[1]:.2f} ms a step, one {(medians[2] - medians[1]) / 2:.2f} ms")


main()

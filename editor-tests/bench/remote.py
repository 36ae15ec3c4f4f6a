"""The cost of serving compared with stdio: python3 editor-tests/bench/remote.py target/release/adjutant

The same prompts to the offline model, in turns over a pipe and over a WebSocket: from the prompt to the first update,
and to the answer. Then connections that do nothing: memory and processor, at 1, 10, 100 and 1,000.
"""

import base64
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from acp import usage

BINARY = os.path.abspath(sys.argv[1])
ROUNDS = int(os.environ.get("ROUNDS", "60"))
SIZES = [int(n) for n in os.environ.get("SIZES", "1,10,100,1000").split(",")]


class Pipe:
    """adjutant acp."""

    def __init__(self, env, cwd):
        self.process = subprocess.Popen([BINARY, "acp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=cwd)

    def say(self, message):
        self.process.stdin.write(message.encode() + b"\n")
        self.process.stdin.flush()

    def hear(self):
        return json.loads(self.process.stdout.readline())


class Socket:
    """A WebSocket, as far as this needs one."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /acp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        self.file = self.socket.makefile("rb")
        assert b" 101 " in self.file.readline()
        while self.file.readline().strip():
            pass

    def say(self, message):
        data = message.encode()
        head = bytes([0x81])
        if len(data) < 126:
            head += bytes([0x80 | len(data)])
        else:
            head += bytes([0x80 | 126]) + struct.pack(">H", len(data))
        self.socket.sendall(head + bytes(4) + data)

    def hear(self):
        while True:
            kind, length = self.file.read(2)
            if length == 126:
                (length,) = struct.unpack(">H", self.file.read(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", self.file.read(8))
            data = self.file.read(length)
            if kind & 15 == 1:
                return json.loads(data)


def request(way, number, method, params):
    way.say(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))


def answer(way, number):
    """The answer, and when the first message before it came."""
    first = None
    while True:
        message = way.hear()
        first = first or time.perf_counter()
        if message.get("id") == number and "method" not in message:
            return message, first


def hello(way, cwd):
    request(way, 0, "initialize", {"protocolVersion": 1})
    answer(way, 0)
    request(way, 1, "session/new", {"cwd": cwd, "mcpServers": []})
    return answer(way, 1)[0]["result"]["sessionId"]


def main():
    home = tempfile.mkdtemp(prefix="adjutant-bench-")
    cwd = os.path.join(home, "project")
    os.makedirs(cwd)
    settings = os.path.join(home, ".config", "adjutant")
    os.makedirs(settings)
    with open(os.path.join(settings, "adjutant.json"), "w") as file:
        many = {"connections": 5000, "user_connections": 5000, "user_sessions": 5000}
        json.dump({"model": "offline/offline", "snapshot": False, "serve": {"grace": 0, "limits": many}}, file)
    env = {"HOME": home, "PATH": os.environ["PATH"], "TMPDIR": home, "ADJUTANT_DISABLE_TITLES": "1"}
    server = subprocess.Popen([BINARY, "serve", "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, env=env, cwd="/")
    address = server.stderr.readline().decode().split("://")[1].split("/")[0]
    ways = {"pipe": Pipe(env, cwd), "socket": Socket(address)}
    sessions = {name: hello(way, cwd) for name, way in ways.items()}
    firsts, wholes = {name: [] for name in ways}, {name: [] for name in ways}
    for round_number in range(ROUNDS):
        for name, way in ways.items():
            number = 10 + round_number
            begin = time.perf_counter()
            prompt = [{"type": "text", "text": "hello"}]
            request(way, number, "session/prompt", {"sessionId": sessions[name], "prompt": prompt})
            _, first = answer(way, number)
            firsts[name].append((first - begin) * 1000)
            wholes[name].append((time.perf_counter() - begin) * 1000)
    for what, times in (("first update", firsts), ("answer", wholes)):
        pipe, over = (statistics.median(times[name]) for name in ("pipe", "socket"))
        print(f"{what}: {pipe:.2f} ms over the pipe, {over:.2f} ms over the socket, {over - pipe:+.2f} ms")
    open_sockets = []
    for size in SIZES:
        while len(open_sockets) < size:
            way = Socket(address)
            hello(way, cwd)
            request(way, 2, "session/new", {"cwd": cwd, "mcpServers": []})
            answer(way, 2)
            open_sockets.append(way)
        time.sleep(3)
        _, before = usage(server.pid)
        time.sleep(5)
        memory, after = usage(server.pid)
        print(f"{size} connections, {2 * size} sessions: {memory / 1024:.0f} MiB, {(after - before) / 5:.1%} of a processor")
    server.kill()
    ways["pipe"].process.kill()


main()

"""The delay with many turns at once in `adjutant serve`: python3 editor-tests/bench/streams.py target/release/adjutant

Each of 1, 10, 100 and more connections prompts in a session of its own, and the model answers all of them at once with
RATE pieces per second. A piece contains the time at which it was sent, so the results are the delays of pieces from the
model to the editor: the first piece of each turn, which waits for all the turns that begin with it, and all others. The
model and the editors are this one program; a run without adjutant, in which the editors send their requests to the
model directly, measures their own share.
"""

import asyncio
import base64
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time

from acp import settings_of, usage

BINARY = os.path.abspath(sys.argv[1])
SIZES = [int(n) for n in os.environ.get("SIZES", "1,10,100,200,400").split(",")]
RATE = float(os.environ.get("RATE", "20"))
PIECES = int(os.environ.get("PIECES", "100"))


async def model(reader, writer):
    """Answers one request after the other on one connection."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
            await reader.readexactly(length)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            began = time.perf_counter()
            for piece in range(PIECES + 1):
                delta, reason = {"content": f"{time.perf_counter():.6f} "}, None
                if piece == PIECES:
                    delta, reason = {}, "stop"
                data = "data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}) + "\n\n"
                if reason:
                    data += "data: [DONE]\n\n"
                writer.write(f"{len(data):x}\r\n{data}\r\n".encode())
                await writer.drain()
                await asyncio.sleep(max(0, began + (piece + 1) / RATE - time.perf_counter()))
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
        pass
    finally:
        writer.close()


class Editor:
    """A WebSocket with one session, as far as this needs one."""

    async def open(self, address, cwd):
        host, port = address.rsplit(":", 1)
        self.reader, self.writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
        key = base64.b64encode(os.urandom(16)).decode()
        self.writer.write(
            f"GET /acp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        assert b" 101 " in await self.reader.readuntil(b"\r\n\r\n")
        await self.ask("initialize", {"protocolVersion": 1})
        self.session = (await self.ask("session/new", {"cwd": cwd, "mcpServers": []}))["sessionId"]
        return self

    def say(self, message):
        data = json.dumps(message).encode()
        short = len(data) < 126
        head = bytes([0x81, 0x80 | (len(data) if short else 126)]) + (b"" if short else struct.pack(">H", len(data)))
        self.writer.write(head + bytes(4) + data)

    async def hear(self):
        while True:
            kind, length = await self.reader.readexactly(2)
            if length == 126:
                (length,) = struct.unpack(">H", await self.reader.readexactly(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", await self.reader.readexactly(8))
            data = await self.reader.readexactly(length)
            if kind & 15 == 1:
                return json.loads(data)

    async def ask(self, method, params, update=lambda _: None):
        self.say({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        while True:
            heard = await self.hear()
            if "method" not in heard:
                return heard["result"]
            update(heard["params"].get("update", {}))

    async def prompt(self, late):
        """Prompts; adds the delays of the pieces of this turn to `late`."""
        mine = []

        def piece(update):
            if update.get("sessionUpdate") == "agent_message_chunk":
                now = time.perf_counter()
                mine.extend(now - float(sent) for sent in update["content"]["text"].split())

        prompt = [{"type": "text", "text": "Go."}]
        await self.ask("session/prompt", {"sessionId": self.session, "prompt": prompt}, piece)
        assert len(mine) == PIECES, len(mine)
        late.append(mine)


async def alone(port, late):
    """An editor that sends its requests to the model directly."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    mine = []
    while (length := int(await reader.readline(), 16)) > 0:
        data = (await reader.readexactly(length + 2)).decode().split("\n\n")[0]
        text = json.loads(data.removeprefix("data: "))["choices"][0]["delta"].get("content")
        if text:
            mine.append(time.perf_counter() - float(text))
    writer.close()
    late.append(mine)


def figures(late):
    """Of the first pieces of some turns the worst, and of all others the middle, the hundredth and the worst, in ms."""
    first = max(turn[0] for turn in late) * 1000
    others = sorted(piece * 1000 for turn in late for piece in turn[1:])
    p50, p99 = (others[int(len(others) * part)] for part in (0.5, 0.99))
    return f"p50 {p50:.2f}, p99 {p99:.2f}, worst {others[-1]:.1f} ms (of the first pieces {first:.1f})"


async def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    served = await asyncio.start_server(model, "127.0.0.1", 0, backlog=1024)
    port = served.sockets[0].getsockname()[1]
    home = tempfile.mkdtemp(prefix="adjutant-bench-")
    cwd = os.path.join(home, "project")
    os.makedirs(cwd)
    limits = {"connections": 5000, "user_connections": 5000, "user_sessions": 5000, "turns": 5000, "user_turns": 5000}
    settings_of(home, port, {"serve": {"grace": 0, "limits": limits}})
    env = {"HOME": home, "PATH": os.environ["PATH"], "TMPDIR": home, "ADJUTANT_DISABLE_TITLES": "1"}
    server = subprocess.Popen([BINARY, "serve", "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, env=env, cwd="/")
    address = server.stderr.readline().decode().split("://")[1].split("/")[0]
    editors = []
    for size in SIZES:
        bare, late = [], []
        await asyncio.gather(*(alone(port, bare) for _ in range(size)))
        while len(editors) < size:
            editors.append(await Editor().open(address, cwd))
        await asyncio.gather(*(editor.prompt([]) for editor in editors[:size]))  # everything is there
        _, before = usage(server.pid)
        began = time.perf_counter()
        await asyncio.gather(*(editor.prompt(late) for editor in editors[:size]))
        took = time.perf_counter() - began
        memory, after = usage(server.pid)
        share, each = (after - before) / took, (after - before) / size / PIECES * 1e6
        print(f"{size} turns at once, {size * RATE:.0f} pieces a second: {figures(late)}; without adjutant {figures(bare)}; "
              f"{share:.0%} of a processor, {each:.0f} µs a piece, {memory / 1024:.0f} MiB", flush=True)
    server.kill()
    served.close()


asyncio.run(main())

"""The cost of a piece of an answer with many conversations in one process:
python3 editor-tests/bench/pieces.py target/release/adjutant

SIZES sessions of one process prompt, and the model answers all of them at once with RATE pieces per second, PIECES
each. The results are the CPU time of a piece, from the first one of all answers to the last, the delay of pieces (from
the model to the editor), the number of open files and the memory of a session. The model and the editor are this one
program: the delay of pieces without adjutant, in as many connections to the model, shows its own share.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time

from acp import settings_of, usage

BINARY = os.path.abspath(sys.argv[1])
SIZES = [int(n) for n in os.environ.get("SIZES", "1,60,100,500,1000").split(",")]
RATE = float(os.environ.get("RATE", "5"))
PIECES = int(os.environ.get("PIECES", "50"))
# The seconds after the first request in which a new process still tests the sandbox.
WARM_UP = 6


class Model:
    """Answers when all requests have arrived, and ends its answers when the piece has been measured."""

    def __init__(self, sessions):
        self.sessions, self.asked, self.sent = sessions, 0, 0
        self.all_asked, self.begin = asyncio.Event(), asyncio.Event()
        self.all_sent, self.measured = asyncio.Event(), asyncio.Event()

    async def answer(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(length)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        self.asked += 1
        # Spread over the time between two pieces, as users are.
        phase = self.asked / self.sessions / RATE
        if self.asked == self.sessions:
            self.all_asked.set()
        await self.begin.wait()
        began = time.perf_counter() + phase
        for piece in range(PIECES):
            await asyncio.sleep(max(0, began + piece / RATE - time.perf_counter()))
            self.write(writer, {"content": f"<{time.perf_counter():.6f}> some words of it "}, None)
        self.sent += 1
        if self.sent == self.sessions:
            self.all_sent.set()
        await self.measured.wait()
        self.write(writer, {}, "stop")
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()
        writer.close()

    def write(self, writer, delta, reason):
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        writer.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


class Editor:
    """The other end of standard input and output."""

    def __init__(self, process):
        self.process, self.number, self.waiting, self.late = process, 0, {}, []

    def ask(self, method, params):
        self.number += 1
        answer = self.waiting[self.number] = asyncio.get_running_loop().create_future()
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        return answer

    async def hear(self):
        while line := await self.process.stdout.readline():
            if b"agent_message_chunk" in line:
                self.late += [time.perf_counter() - float(at.split(b">")[0]) for at in line.split(b"<")[1:]]
                continue
            message = json.loads(line)
            if "method" not in message:
                self.waiting.pop(message["id"]).set_result(message["result"])


async def alone(sessions):
    """The delay of pieces in an editor that sends its requests to the model directly."""
    model, late = Model(sessions), []
    server = await asyncio.start_server(model.answer, "127.0.0.1", 0, backlog=4096)
    port = server.sockets[0].getsockname()[1]

    async def one():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        while line := await reader.readline():
            late.extend(time.perf_counter() - float(at.split(b">")[0]) for at in line.split(b"<")[1:])
        writer.close()

    asking = [asyncio.create_task(one()) for _ in range(sessions)]
    await model.all_asked.wait()
    model.begin.set()
    await model.all_sent.wait()
    model.measured.set()
    await asyncio.gather(*asking)
    server.close()
    return ranked(late, 0.99)


def ranked(late, share):
    """The milliseconds that this share of the pieces is late at most."""
    late = sorted(late)
    return 1000 * late[min(int(len(late) * share), len(late) - 1)]


async def measure(sessions):
    """The CPU time of a piece in milliseconds, the delay of pieces (with adjutant and without), open files, and the
    memory of the sessions in KiB."""
    bare = await alone(sessions)
    model = Model(sessions)
    server = await asyncio.start_server(model.answer, "127.0.0.1", 0, backlog=4096)
    with tempfile.TemporaryDirectory() as home:
        settings_of(home, server.sockets[0].getsockname()[1], {})
        root = os.path.join(home, "project")
        os.mkdir(root)
        env = {"HOME": home, "PATH": os.environ["PATH"], "TMPDIR": home, "ADJUTANT_DISABLE_TITLES": "1", "ADJUTANT_TRUST": "all"}
        # The URL of a database, if one is measured.
        env |= {name: value for name, value in os.environ.items() if name == "ADJUTANT_STORE"}
        process = await asyncio.create_subprocess_exec(
            BINARY, "acp", stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=root, limit=1 << 24)
        editor = Editor(process)
        hearing = asyncio.create_task(editor.hear())
        await editor.ask("initialize", {"protocolVersion": 1})
        first = await editor.ask("session/new", {"cwd": root, "mcpServers": []})
        before, _ = usage(process.pid)
        made = [first] + [await editor.ask("session/new", {"cwd": root, "mcpServers": []}) for _ in range(1, sessions)]
        text = [{"type": "text", "text": "Say something."}]
        ends = [editor.ask("session/prompt", {"sessionId": one["sessionId"], "prompt": text}) for one in made]
        await model.all_asked.wait()
        await asyncio.sleep(WARM_UP)
        _, started = usage(process.pid)
        model.begin.set()
        await model.all_sent.wait()
        while len(editor.late) < sessions * PIECES:
            await asyncio.sleep(0.05)
        memory, ended = usage(process.pid)
        files = len(os.listdir(f"/proc/{process.pid}/fd"))
        model.measured.set()
        await asyncio.gather(*ends)
        process.stdin.close()
        await process.wait()
        await hearing
    server.close()
    each = 1000 * (ended - started) / (sessions * PIECES)
    return {"each": each, "late": editor.late, "bare": bare, "files": files, "room": memory - before}


def main():
    print("conversations ms a piece  late: half   99 of 100   all, ms    alone  files  KiB a session")
    for sessions in SIZES:
        found = asyncio.run(measure(sessions))
        half, most, worst = (ranked(found["late"], share) for share in (0.5, 0.99, 1))
        room = f"{found['room'] / (sessions - 1):.0f}" if sessions > 1 else "-"
        print(f"{sessions:>13} {found['each']:>10.3f} {half:>8.1f} {most:>8.1f} {worst:>8.1f} {found['bare']:>8.1f} "
              f"{found['files']:>6} {room:>12}", flush=True)


if __name__ == "__main__":
    main()

"""conduit-agent-sdk, a client in Rust with a Python interface: python run.py path/to/adjutant

Left out are faults of its version 0.1.0: it names members of the requests to fork, to resume and to
set an option in another way than the protocol (`session_id`), it allows each call that it asks its
user about, whatever the answer, and it does not await an asynchronous answer.
"""

import asyncio
import json
import os
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from conduit_sdk import AgentOptions, Client, PermissionResultAllow, UpdateKind

BINARY = os.path.abspath(sys.argv[1])
# The maximum time of a check, in seconds.
LIMIT = 60


class Lab:
    """An empty home and project, and clients of adjutant there."""

    def __init__(self, root):
        self.home, self.project = Path(root, "home"), Path(root, "project")
        settings = self.home / ".config" / "adjutant"
        for folder in (settings, self.project):
            folder.mkdir(parents=True)
        (settings / "adjutant.json").write_text(json.dumps({"permission": {"edit": "ask"}}))
        self.questions = []

    def client(self, **variables):
        def ask(name, *details):
            self.questions.append(name)
            return PermissionResultAllow()

        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"], "ADJUTANT_DISABLE_TITLES": "1"}
        environment.update(variables)
        options = AgentOptions(cwd=str(self.project), env=environment, can_use_tool=ask)
        return Client([BINARY, "acp"], timeout=30, options=options)

    async def prompt(self, client, session, text):
        """All updates of a prompt, in order. The client's own iterator does not end with the prompt."""
        updates = []
        async for update in client.prompt_stream(text, session_id=session.session_id):
            updates.append(update)
            if update.kind in (UpdateKind.Done, UpdateKind.Error):
                return updates
        raise AssertionError("the prompt did not end")


class CountingProvider(BaseHTTPRequestHandler):
    """Returns settings with a provider that counts tokens, because the offline model does not."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        usage = {"prompt_tokens": 120, "completion_tokens": 3, "total_tokens": 123}
        choice = {"index": 0, "delta": {"content": "Counted."}, "finish_reason": "stop"}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        chunk = json.dumps({"choices": [choice], "usage": usage})
        self.wfile.write(f"data: {chunk}\n\ndata: [DONE]\n\n".encode())

    def log_message(self, *_):
        pass


def said(updates):
    return "".join(update.text or "" for update in updates if update.kind == UpdateKind.TextDelta)


async def writes(lab):
    async with lab.client() as client:
        session = await client.new_session(str(lab.project))
        updates = await lab.prompt(client, session, "create `greeting.txt` with `hello`")
        assert lab.questions, "there was no question"
        assert (lab.project / "greeting.txt").read_text().strip() == "hello"
        kinds = [update.kind for update in updates]
        assert UpdateKind.ToolUseStart in kinds and UpdateKind.ToolUseEnd in kinds, kinds


async def streams(lab):
    async with lab.client() as client:
        session = await client.new_session(str(lab.project))
        updates = await lab.prompt(client, session, "run `echo streamed`")
        assert "streamed" in said(updates), updates


async def lists_and_loads(lab):
    async with lab.client() as client:
        session = await client.new_session(str(lab.project))
        await lab.prompt(client, session, "run `echo once`")
    async with lab.client() as client:
        listed = await client.list_sessions(str(lab.project))
        assert session.session_id in [one["sessionId"] for one in listed["sessions"]], listed
        loaded = await client.new_session(str(lab.project))
        await loaded.load(session.session_id, str(lab.project))
        assert loaded.session_id == session.session_id
        assert "twice" in said(await lab.prompt(client, loaded, "run `echo twice`"))


async def chooses_a_mode(lab):
    async with lab.client() as client:
        session = await client.new_session(str(lab.project))
        await session.set_mode("plan")
        # The denies of the plan mode show that it was chosen.
        await lab.prompt(client, session, "create `planned.txt` with `hello`")
        assert not (lab.project / "planned.txt").exists()
        assert not lab.questions
        assert (await client.agent_info)["name"] == "adjutant"


async def counts_tokens(lab):
    server = ThreadingHTTPServer(("127.0.0.1", 0), CountingProvider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}/v1"
    models = {"m": {"limit": {"context": 100_000, "output": 1_000}}}
    options = {"baseURL": base, "apiKey": "none"}
    counting = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": models}
    settings = {"model": "counting/m", "provider": {"counting": counting}}
    async with lab.client(ADJUTANT_CONFIG_CONTENT=json.dumps(settings)) as client:
        session = await client.new_session(str(lab.project))
        updates = await lab.prompt(client, session, "Hello")
    server.shutdown()
    usages = [json.loads(update.usage_json) for update in updates if update.kind == UpdateKind.Usage]
    assert usages and usages[-1]["used"] == 123, usages


checks = [
    ("conduit asks before a file is written, and shows the call", writes),
    ("conduit streams the output of a command", streams),
    ("conduit lists and loads sessions", lists_and_loads),
    ("conduit chooses a mode", chooses_a_mode),
    ("conduit is told how many tokens are used", counts_tokens),
]


async def main():
    failed = 0
    for name, check in checks:
        with tempfile.TemporaryDirectory(prefix="adjutant-client-") as root:
            try:
                await asyncio.wait_for(check(Lab(os.path.realpath(root))), LIMIT)
                print(f"ok    {name}")
            except Exception as error:
                failed += 1
                print(f"FAIL  {name}\n      {error!r}")
    print(f"{len(checks) - failed} passed, {failed} failed")
    return failed


sys.exit(asyncio.run(main()) > 0)

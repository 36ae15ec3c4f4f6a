"""The Python SDK as a client: python run.py path/to/adjutant

An editor that offers its files, and is started by a plug-in that passes on almost no environment. Every line is decoded
by the SDK's own models. The offline model follows simple instructions, so everything here happens without a provider.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import acp
from acp import schema

BINARY = sys.argv[1]


class Editor(acp.Client):
    """Answers questions with `answer`, serves files from `buffers`, and records the updates."""

    def __init__(self):
        self.updates, self.questions, self.buffers, self.written = [], [], {}, {}
        self.answer = "allow_once"
        self.news = asyncio.Event()

    async def request_permission(self, options, session_id, tool_call, **_):
        self.questions.append(tool_call)
        chosen = next(option for option in options if option.kind == self.answer)
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        )

    async def session_update(self, session_id, update, **_):
        self.updates.append(update)
        self.news.set()

    async def read_text_file(self, path, session_id, line=None, limit=None, **_):
        if path in self.buffers:
            return schema.ReadTextFileResponse(content=self.buffers[path])
        if not os.path.exists(path):
            raise acp.RequestError.resource_not_found(path)
        return schema.ReadTextFileResponse(content=Path(path).read_text())

    async def write_text_file(self, content, path, session_id, **_):
        self.written[path] = content
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(content)
        return schema.WriteTextFileResponse()

    def said(self):
        chunks = (u for u in self.updates if u.session_update == "agent_message_chunk")
        return "".join(chunk.content.text for chunk in chunks)

    def calls(self, status):
        return [u for u in self.updates if u.session_update == "tool_call_update" and u.status == status]

    async def update(self, fits):
        while not any(fits(update) for update in self.updates):
            self.news.clear()
            await self.news.wait()


class Conversation:
    """One process, one connection, one session."""

    def __init__(self, project, env):
        self.project, self.env = str(project), env

    async def start(self):
        self.editor = Editor()
        # The SDK adds its own defaults to the environment, HOME among them, so the process is ours.
        self.process = await asyncio.create_subprocess_exec(
            BINARY, "acp", cwd=self.project, env=self.env,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )
        self.agent = acp.connect_to_agent(self.editor, self.process.stdin, self.process.stdout)
        files = schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)
        return await self.agent.initialize(
            protocol_version=acp.PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities(fs=files, terminal=False),
            client_info=schema.Implementation(name="python-sdk", version="1"),
        )

    async def say(self, words, answer="allow_once"):
        editor = self.editor
        editor.updates, editor.questions, editor.answer = [], [], answer
        return await self.agent.prompt(session_id=self.session, prompt=[schema.TextContentBlock(type="text", text=words)])

    async def leave(self):
        self.process.stdin.close()
        assert await asyncio.wait_for(self.process.wait(), 5) == 0, "the exit code"
        assert await self.process.stderr.read() == b"", "stderr"
        await self.agent.close()


async def shakes_hands(it):
    hello = await it.start()
    assert hello.protocol_version == 1
    assert hello.agent_info.name == "adjutant"


async def opens_a_session(it):
    opened = await it.agent.new_session(cwd=it.project, mcp_servers=[])
    it.session = opened.session_id
    assert [mode.id for mode in opened.modes.available_modes] == ["build", "plan"], opened.modes
    assert {"mode", "model"} <= {option.category for option in opened.config_options}, opened.config_options
    await it.editor.update(lambda u: u.session_update == "available_commands_update")


async def reads_what_is_not_saved(it):
    path = os.path.join(it.project, "notes.txt")
    Path(path).write_text("on the disk\n")
    it.editor.buffers[path] = "in the buffer\n"
    await it.say("read notes.txt")
    assert "in the buffer" in repr(it.editor.updates)


async def edits_through_the_editor_once(it):
    path = os.path.join(it.project, "notes.txt")
    answer = await it.say("replace `buffer` with `editor` in `notes.txt`")
    assert answer.stop_reason == "end_turn"
    assert it.editor.written == {path: "in the editor\n"}, it.editor.written
    (diff,) = [c for c in it.editor.questions[0].content if c.type == "diff"]
    assert (diff.path, diff.old_text, diff.new_text) == (path, "in the buffer\n", "in the editor\n")
    del it.editor.buffers[path]


async def makes_a_folder_for_a_new_file(it):
    await it.say("create `deep/er/new.txt` with `hello`")
    assert Path(it.project, "deep/er/new.txt").read_text().strip() == "hello"


async def takes_no_for_an_answer(it):
    await it.say("create `no.txt` with `hello`", answer="reject_once")
    assert not Path(it.project, "no.txt").exists()
    assert len(it.editor.calls("failed")) == 1


async def remembers_always(it):
    await it.say("run `wc -l notes.txt`", answer="allow_always")
    await it.say("run `wc -l notes.txt`")
    assert it.editor.questions == [], it.editor.questions


async def changes_the_mode_by_option(it):
    changed = await it.agent.set_config_option(session_id=it.session, config_id="mode", value="plan")
    (mode,) = [option for option in changed.config_options if option.category == "mode"]
    assert mode.current_value == "plan"
    await it.say("create `plan.txt` with `hello`")
    assert not Path(it.project, "plan.txt").exists()
    await it.agent.set_session_mode(session_id=it.session, mode_id="build")


async def cancels(it):
    turn = asyncio.ensure_future(it.say("run `sleep 66`"))
    await it.editor.update(lambda u: u.session_update == "tool_call_update" and u.status == "in_progress")
    await it.agent.cancel(session_id=it.session)
    answer = await asyncio.wait_for(turn, 5)
    assert answer.stop_reason == "cancelled"


async def goes_on_after_a_crash(it):
    it.process.kill()
    await it.process.wait()
    await it.agent.close()
    await it.start()
    listed = await it.agent.list_sessions(cwd=it.project)
    assert [session.session_id for session in listed.sessions] == [it.session]
    await it.agent.load_session(cwd=it.project, session_id=it.session, mcp_servers=[])
    kinds = {update.session_update for update in it.editor.updates}
    assert {"user_message_chunk", "agent_message_chunk", "tool_call"} <= kinds, kinds
    await it.say("read notes.txt")
    assert "in the editor" in repr(it.editor.updates)


async def says_what_is_unknown(it):
    try:
        await it.agent.load_session(cwd=it.project, session_id="ses_unknown", mcp_servers=[])
    except acp.RequestError as error:
        assert error.code == -32002, error.code
        assert "ses_unknown" in str(error), error
    else:
        raise AssertionError("an unknown session was loaded")


async def leaves_when_the_editor_does(it):
    await it.leave()


CHECKS = [
    shakes_hands, opens_a_session, reads_what_is_not_saved, edits_through_the_editor_once,
    makes_a_folder_for_a_new_file, takes_no_for_an_answer, remembers_always, changes_the_mode_by_option,
    cancels, goes_on_after_a_crash, says_what_is_unknown, leaves_when_the_editor_does,
]


async def main(root):
    project, data = root / "project", root / "data"
    project.mkdir()
    data.mkdir()
    settings = {"model": "offline/offline", "permission": {"edit": "ask", "bash": "ask"}}
    (project / "adjutant.json").write_text(json.dumps(settings))
    # No HOME, as some plug-ins start their agents.
    env = {"PATH": os.environ["PATH"], "XDG_DATA_HOME": str(data), "TMPDIR": str(root)}
    it, failed = Conversation(project, env), 0
    for check in CHECKS:
        name = check.__name__.replace("_", " ")
        try:
            await asyncio.wait_for(check(it), 60)
            print("ok   ", name)
        except Exception as error:  # every failure is reported, whatever its type
            failed += 1
            print(f"FAIL  {name}\n      {error!r}")
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


with tempfile.TemporaryDirectory() as folder:
    code = asyncio.run(main(Path(folder).resolve()))
sys.exit(code)

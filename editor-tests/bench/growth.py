"""The growth of costs: each row is measured at several sizes, with the exponent (1 is linear, 2 quadratic):
python3 editor-tests/bench/growth.py target/release/adjutant [ROW …]

A row is run if one of the arguments is the beginning of its name; without arguments, all are. SIZES is the number of
sizes that are measured, from the smallest on: SIZES=2 takes a few minutes, all of them an hour. A size that takes more
than LIMIT seconds (300) is the last of its row. The exponent is that of the two largest sizes. Values below FLOOR
(10 ms, 20 MB) are no evidence of growth, and have none. Memory is the maximum of the process, in MB.

OPENCODE and GOOSE are paths of these programs, which are measured for comparison if they have the feature: OpenCode
reads the same settings, agents, commands and instructions, both read the skills of `.agents`, take long prompts, change
files, run commands, list the stored sessions, and load them.
"""

import glob
import json
import math
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

from acp import Agent, Model, serve, settings_of, usage

BINARY = os.path.abspath(sys.argv[1])
WANTED = sys.argv[2:]
SIZES = int(os.environ.get("SIZES", "9"))
LIMIT = int(os.environ.get("LIMIT", "300"))
FLOOR = {"ms": 10, "ms a line": 0.05, "ms a piece": 0.01, "MB": 20, "kB each": 1}
PORT = serve()

# The processes of the size that is being measured.
PROCESSES = []

# The folder of the user's settings, as OpenCode has it.
USER = ".config/opencode"


def environment(home):
    return {"HOME": home, "PATH": os.environ["PATH"], "TMPDIR": home, "ADJUTANT_DISABLE_TITLES": "1", "ADJUTANT_TRUST": "all"}


def end_processes():
    """Ends the processes of a size that has taken too long."""
    for process in PROCESSES:
        if process.poll() is None:
            process.kill()
            process.wait()
    PROCESSES.clear()


class AllowingAgent(Agent):
    """An agent whose questions are all approved: their number differs with the sandbox of a machine."""

    def ask(self, method, params):
        self.number += 1
        self.say({"id": self.number, "method": method, "params": params})
        while True:
            heard = json.loads(self.process.stdout.readline())
            if heard.get("method") == "session/request_permission":
                option = next(one for one in heard["params"]["options"] if one["kind"] == "allow_once")
                self.say({"id": heard["id"], "result": {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}})
            elif heard.get("id") == self.number and "method" not in heard:
                return heard["result"]

    def say(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()


class Place:
    """A home with settings, and a project in it."""

    def __init__(self, settings=None):
        self.folder = tempfile.TemporaryDirectory()
        self.home = os.path.realpath(self.folder.name)
        self.root = os.path.join(self.home, "project")
        os.makedirs(os.path.join(self.root, ".git"))
        self.settings = settings or {}
        settings_of(self.home, PORT, self.settings)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end_processes()
        self.folder.cleanup()

    def write(self, path, text):
        path = os.path.join(self.home, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def agent(self, opens=False):
        agent = AllowingAgent(BINARY, self.home, self.root, PORT, self.settings, opens)
        PROCESSES.append(agent.process)
        return agent

    def run(self, *arguments, given=None, output=subprocess.DEVNULL):
        """Milliseconds and the maximum memory of a command, in MB. Sets `processor` to its milliseconds of CPU time."""
        began = time.perf_counter()
        stdin = open(given) if given else subprocess.DEVNULL
        process = subprocess.Popen([BINARY, *arguments], stdin=stdin, stdout=output, cwd=self.root, env=environment(self.home))
        PROCESSES.append(process)
        _, status, used = os.wait4(process.pid, 0)
        took = 1000 * (time.perf_counter() - began)
        # A search that finds nothing ends with 1.
        wanted = [0, 1] if "search" in arguments else [0]
        assert os.waitstatus_to_exitcode(status) in wanted, (arguments, status)
        self.processor = 1000 * (used.ru_utime + used.ru_stime)
        return took, used.ru_maxrss / 1024

    def judge(self, given):
        """The milliseconds of CPU time for judging these lines: the minimum of three runs, as the machine may be busy."""
        took = []
        for _ in range(3):
            self.run("permissions", "check", given=given)
            took.append(self.processor)
        return min(took)


def most(process):
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def timed(work):
    began = time.perf_counter()
    done = work()
    return 1000 * (time.perf_counter() - began), done


class Peer(AllowingAgent):
    """A process of another agent. The number of its requests is not checked."""

    # Its names of tools and of their arguments, if they differ. A call of a tool that it does not have is left out.
    tools = None

    def begin(self, place, program, env):
        env = {"HOME": place.home, "PATH": os.environ["PATH"], "TMPDIR": place.home, **env}
        self.process = subprocess.Popen([program, "acp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, env=env, cwd=place.root)
        PROCESSES.append(self.process)
        self.number = 0
        self.ask("initialize", {"protocolVersion": 1})

    def prompt(self, text, calls=()):
        Model.calls, Model.asked, Model.answered = self.translated(calls), [], []
        began = time.perf_counter()
        end = self.ask("session/prompt", {"sessionId": self.session, "prompt": [{"type": "text", "text": text}]})
        assert end["stopReason"] == "end_turn", end
        return began, Model.asked, Model.answered

    def translated(self, calls):
        if self.tools is None:
            return list(calls)
        own = [(self.tools[name], call) for name, call in calls if name in self.tools]
        return [(name, {arguments[one]: value for one, value in call.items() if one in arguments}) for (name, arguments), call in own]


class OpenCode(Peer):
    def __init__(self, place):
        options = {"baseURL": f"http://127.0.0.1:{PORT}/v1", "apiKey": "x"}
        model = {"name": "m", "limit": {"context": 100_000_000, "output": 8_000}}
        provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": model}}
        settings = {"model": "local/m", "small_model": "local/m", "provider": {"local": provider}, "autoupdate": False, "share": "disabled"}
        own = {name: value for name, value in place.settings.items() if name in ["permission", "instructions", "mcp"]}
        place.write(f"{USER}/opencode.json", json.dumps({**settings, **own}))
        off = ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS"]
        self.begin(place, os.environ["OPENCODE"], {f"OPENCODE_DISABLE_{one}": "1" for one in off})


class Goose(Peer):
    tools = {"bash": ("shell", {"command": "command"}),
             "edit": ("edit", {"filePath": "path", "oldString": "before", "newString": "after"})}

    def __init__(self, place):
        env = {"GOOSE_PROVIDER": "openai", "GOOSE_MODEL": "gpt-4.1", "OPENAI_API_KEY": "x", "OPENAI_HOST": f"http://127.0.0.1:{PORT}",
               "OPENAI_BASE_URL": f"http://127.0.0.1:{PORT}/v1", "GOOSE_MODE": "auto", "GOOSE_DISABLE_KEYRING": "1",
               "GOOSE_TELEMETRY_ENABLED": "false", "GOOSE_CONTEXT_LIMIT": "100000000"}
        self.begin(place, os.environ["GOOSE"], env)


def compared(measure, *peers):
    """The results of `measure` for this agent, and for those of the peers whose programs are given."""
    found = measure(Place.agent)
    for peer in peers:
        if os.environ.get(peer.__name__.upper()):
            found |= {f"{peer.__name__}: {figure}": value for figure, value in measure(peer).items()}
    return found


def opens(agent, place):
    """Opens a session; the milliseconds."""
    new, made = timed(lambda: agent.ask("session/new", {"cwd": place.root, "mcpServers": []}))
    agent.session = made["sessionId"]
    return new


def opening(settings=None, files=(), peers=(OpenCode,)):
    """The times of `session/new` and of the first prompt with these settings and files."""
    return compared(lambda start: opened(settings, files, start), *peers)


def opened(settings, files, start):
    with Place(settings) as place:
        for path, text in files:
            place.write(path, text)
        agent = start(place)
        new = opens(agent, place)
        prompt, _ = timed(lambda: agent.prompt("Say something."))
        memory = most(agent.process)
        agent.end()
    return {"session/new": (new, "ms"), "first prompt": (prompt, "ms"), "memory": (memory, "MB")}


def skills(n):
    text = "---\nname: skill-{0}\ndescription: The skill with number {0}.\n---\nDo it.\n"
    return opening(files=[(f".agents/skills/skill-{at}/SKILL.md", text.format(at)) for at in range(n)], peers=(OpenCode, Goose))


def rules(n):
    actions = ["allow", "ask", "deny"]
    return opening({"permission": {"bash": {f"tool{at} *": actions[at % 3] for at in range(n)}}})


def agents(n):
    text = "---\ndescription: Agent {0}.\nmode: subagent\npermission:\n  edit: deny\n---\nIt reviews.\n"
    return opening(files=[(f"{USER}/agent/agent-{at}.md", text.format(at)) for at in range(n)])


def commands(n):
    text = "---\ndescription: Command {0}.\n---\nDo the thing with number {0}: $ARGUMENTS\n"
    return opening(files=[(f"{USER}/command/command-{at}.md", text.format(at)) for at in range(n)])


def instructions(n):
    files = [(f"project/docs/rule-{at}.md", f"Rule {at}: do not.\n") for at in range(n)]
    return opening({"instructions": [f"docs/rule-{at}.md" for at in range(n)]}, files)


def formatters(n):
    one = lambda at: {"command": ["true", "$FILE"], "extensions": [f".kind{at}"]}
    return opening({"formatter": {f"own-{at}": one(at) for at in range(n)}})


def servers(n):
    one = lambda at: {"command": ["true", "--stdio"], "extensions": [f".kind{at}"]}
    return opening({"lsp": {f"own-{at}": one(at) for at in range(n)}})


def grants(n):
    with Place({"permission": {"bash": {"*": "ask"}}}) as place:
        agent = place.agent(opens=True)
        agent.prompt("Say something.")
        agent.end()
        granted(place, n)
        agent = place.agent()
        new = opens(agent, place)
        prompt, _ = timed(lambda: agent.prompt("Run it.", [("bash", {"command": "true 7", "description": "x"})]))
        agent.end()
    return {"session/new": (new, "ms"), "prompt with a call": (prompt, "ms")}


def granted(place, n):
    """Writes grants into the index, as an adjutant without checksums did."""
    import sqlite3

    for folder, _, names in os.walk(place.home):
        for name in names:
            if not name.startswith("index") or not name.endswith(".db"):
                continue
            with sqlite3.connect(os.path.join(folder, name)) as db:
                row = lambda at: (place.root, "build", "bash", f"true {at} *", 1)
                insert = "INSERT INTO grant_ (project, agent, permission, pattern, given) VALUES (?, ?, ?, ?, ?)"
                db.executemany(insert, map(row, range(n)))


def line(n):
    return judged(n, "bash", "tool{} *", {"id": 1, "bash": "git log -1 | wc -l && cargo test --lib"})


def open_line(n):
    return judged(n, "bash", "*word{}x*", {"id": 1, "bash": "git log -1 | wc -l && cargo test --lib"})


def address(n):
    return judged(n, "webfetch", "https://site{}.example/*", {"id": 1, "permission": "webfetch", "url": "https://docs.rs/tokio"})


def judged(n, permission, pattern, asked):
    """Access requests, judged by this many rules, one after the other in one process."""
    actions = ["allow", "ask", "deny"]
    lines = 2000
    with Place({"permission": {permission: {pattern.format(at): actions[at % 3] for at in range(n)}}}) as place:
        text = json.dumps(asked) + "\n"
        few, many = place.write("few", text * 10), place.write("many", text * lines)
        took = place.judge(many) - place.judge(few)
    return {"verdict, processor": (took / (lines - 10), "ms a line")}


def command_line(n):
    """A command line of so many kB, parsed and judged."""
    return judged_line("; ".join(f"echo 'word {at}' | wc -c" for at in range(n * 1_000 // 24)))


def nesting(n):
    """A command line with so many parentheses in each other, and one with as many substitutions."""
    lines = {"parentheses": "(" * n + "true" + ")" * n, "substitutions": "echo $(" * n + "true" + ")" * n}
    return {name: judged_line(line)["verdict, processor"] for name, line in lines.items()}


def stars(n):
    """A pattern with so many stars, which nearly matches a line of 10 kB."""
    return judged_line("echo " + "a" * 10_000, {"*a" * n + "b": "deny"})


def judged_line(line, rules=None):
    with Place({"permission": {"bash": rules or {"git *": "allow"}}}) as place:
        few = place.write("few", json.dumps({"id": 1, "bash": "true"}) + "\n")
        one = place.write("one", json.dumps({"id": 1, "bash": line}) + "\n")
        took = place.judge(one) - place.judge(few)
    return {"verdict, processor": (took, "ms")}


# An MCP server with as many tools as its argument.
SERVER = """import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    method, result = asked.get("method"), {}
    if "id" not in asked:
        continue
    if method == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "s", "version": "1"}}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string", "description": "Some text."}}}
        tool = lambda at: {"name": f"tool_{at}", "description": f"Does thing {at}.", "inputSchema": schema}
        result = {"tools": [tool(at) for at in range(int(sys.argv[1]))]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def tools_of_server(n):
    return served(1, n)


def many_servers(n):
    return served(n, 5)


def served(servers, tools):
    """The times of `session/new` and of prompts with so many servers of so many tools."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "server.py")
        with open(program, "w") as file:
            file.write(SERVER)
        one = {"type": "local", "command": [sys.executable, program, str(tools)]}
        settings = {"mcp": {f"s{at}": one for at in range(servers)}}
        return compared(lambda start: prompted_with_servers(settings, start), OpenCode)


def prompted_with_servers(settings, start):
    with Place(settings) as place:
        agent = start(place)
        new = opens(agent, place)
        first, _ = timed(lambda: agent.prompt("Say something."))
        second, _ = timed(lambda: agent.prompt("Say something."))
        memory = most(agent.process)
        _, processor = usage(agent.process.pid)
        agent.end()
    return {"session/new": (new, "ms"), "first prompt": (first, "ms"), "second prompt": (second, "ms"),
            "processor": (1000 * processor, "ms"), "memory": (memory, "MB")}


def project_files(n):
    """The times of `session/new` and of prompts in a repository of so many files."""
    return compared(lambda start: opened_among_files(n, start), OpenCode, Goose)


def opened_among_files(n, start):
    with Place({"permission": "allow", "snapshot": True}) as place:
        subprocess.run(["git", "init", "--quiet"], cwd=place.root, check=True)
        for at in range(n):
            if at % 1_000 == 0:
                os.mkdir(os.path.join(place.root, f"d{at // 1_000}"))
            with open(os.path.join(place.root, f"d{at // 1_000}", f"f{at}"), "w") as file:
                file.write(f"{at}\n")
        agent = start(place)
        new = opens(agent, place)
        first, _ = timed(lambda: agent.prompt("Say something."))
        call = {"command": "echo 1 > new", "description": "x"}
        changing, _ = timed(lambda: agent.prompt("Run it.", [("bash", call)]))
        memory = most(agent.process)
        agent.end()
    return {"session/new": (new, "ms"), "first prompt": (first, "ms"), "prompt with a command": (changing, "ms"),
            "memory": (memory, "MB")}


def stored(place, n):
    """Stores so many sessions: copies of one that the program has made, with ids and times of their own. Returns the
    id of the oldest one."""
    import sqlite3

    agent = place.agent(opens=True)
    agent.prompt("Say something about the parser.")
    agent.end()
    (first,) = glob.glob(os.path.join(place.home, ".local/share/adjutant/sessions/ses_*.db"))
    with sqlite3.connect(first) as db:
        (record,) = db.execute("SELECT data FROM session").fetchone()
        # As an adjutant without checksums wrote them.
        for table in ["session", "message", "part"]:
            db.execute(f"UPDATE {table} SET crc = -1")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    with open(first, "rb") as file:
        text = file.read()
    session, updated = json.loads(record)["id"], re.search(r'"updated":(\d+)', record)[1]
    for at in range(1, n):
        copy = session[:-6] + f"{at:06}"
        earlier = str(int(updated) - 1_000 * at)
        copied = text.replace(session.encode(), copy.encode()).replace(updated.encode(), earlier.encode())
        with open(first.replace(session, copy), "wb") as file:
            file.write(copied)
    for index in glob.glob(os.path.join(place.home, ".local/share/adjutant/*.db*")):
        os.remove(index)
    return copy if n > 1 else session


def index_all(place, n):
    """Waits until the index of the search has so many sessions: each search fills it while it reads."""
    import sqlite3

    index = os.path.join(place.home, ".local/share/adjutant/search.db")
    while True:
        with sqlite3.connect(index) as db:
            (current,) = db.execute("SELECT count(*) FROM session WHERE is_current = 1").fetchone()
        db.close()
        if current >= n:
            return
        place.run("sessions", "search", "nothing-of-this-kind")


def stored_sessions(n):
    """The start over so many stored sessions, without their index and with it, lists and searches."""
    with Place() as place:
        oldest = stored(place, n)
        agent = place.agent()
        lost = opens(agent, place)
        lost_prompt, _ = timed(lambda: agent.prompt("Say something."))
        agent.end()
        # Waits until the list has all of them.
        filled, _ = place.run("sessions", "search", "parser")
        indexed, _ = timed(lambda: index_all(place, n))
        found, _ = place.run("sessions", "search", "parser")
        none, _ = place.run("sessions", "search", "lexer")
        listed, _ = place.run("sessions", "list", "--limit", "50")
        shown, _ = place.run("sessions", "show", oldest)
        agent = place.agent()
        new = opens(agent, place)
        prompt, _ = timed(lambda: agent.prompt("Say something."))
        first, page = timed(lambda: agent.ask("session/list", {"cwd": place.root}))
        after = {"cwd": place.root, "cursor": page["nextCursor"]} if page.get("nextCursor") else {"cwd": place.root}
        further, _ = timed(lambda: agent.ask("session/list", after))
        memory = most(agent.process)
        agent.end()
    return {"session/new, index lost": (lost, "ms"), "first prompt, index lost": (lost_prompt, "ms"),
            "search, indexes lost": (filled, "ms"), "indexing": (indexed, "ms"), "search": (found, "ms"), "search for what is not there": (none, "ms"),
            "list": (listed, "ms"), "show": (shown, "ms"), "session/new": (new, "ms"), "first prompt": (prompt, "ms"),
            "first session/list": (first, "ms"), "next page": (further, "ms"), "memory": (memory, "MB")}


def made_sessions(n):
    """So many sessions of one prompt, made by each program itself: the list, and another session, in a new process."""
    return compared(lambda start: listed_after(n, start), OpenCode, Goose)


def listed_after(n, start):
    with Place() as place:
        agent = start(place)
        for at in range(n):
            opens(agent, place)
            agent.prompt(f"Say something about number {at}.")
        agent.end()
        agent = start(place)
        listed, page = timed(lambda: agent.ask("session/list", {"cwd": place.root}))
        new = opens(agent, place)
        memory = most(agent.process)
        agent.end()
    assert page["sessions"], page
    return {"first session/list": (listed, "ms"), "session/new": (new, "ms"), "memory": (memory, "MB")}


def made_turns(n):
    """A session of so many prompts, made by each program itself: its last prompt, and its load in a new process."""
    return compared(lambda start: loaded_after(n, start), OpenCode, Goose)


def loaded_after(n, start):
    with Place({"compaction": {"auto": False}}) as place:
        agent = start(place)
        opens(agent, place)
        session = agent.session
        for at in range(n):
            last, _ = timed(lambda: agent.prompt(f"Say something about number {at}."))
        agent.end()
        agent = start(place)
        _, load = loaded(agent, place.root, session)
        memory = most(agent.process)
        agent.end()
    return {"last prompt": (last, "ms"), "load": (load, "ms"), "memory": (memory, "MB")}


def streaming(n):
    """So many conversations that stream at once, five pieces a second each."""
    # Not earlier: the memory of this process would be added to that of the commands that it starts.
    import asyncio

    import pieces

    found = asyncio.run(pieces.measure(n))
    return {"processor": (found["each"], "ms a piece"), "late, 99 of 100": (pieces.ranked(found["late"], 0.99), "ms"),
            "late, 99 of 100, without an agent": (found["bare"], "ms")}


def history(place, n):
    """Writes an exported session of so many turns, each with an answer of 2 kB."""
    model = {"provider": "local", "model": "m"}
    session = {"id": "ses_growth", "cwd": "/nowhere", "title": "Long", "created": 1, "updated": 1}
    text = "It reads what changed, and says what is wrong with it. " * 36
    path = place.write("session.json", f'{{"adjutant": 1, "session": {json.dumps(session)}, "messages": [')
    # Not as one text: the memory of this process would be added to that of the commands that it starts.
    with open(path, "a") as file:
        for at in range(n):
            prompt = {"id": f"msg_{at:07}a", "created": at, "role": "user", "agent": "build", "model": model}
            answer = {"id": f"msg_{at:07}b", "created": at, "role": "assistant", "agent": "build", "model": model,
                      "parent": prompt["id"], "finish": "stop", "completed": at}
            prompt["parts"] = [{"id": f"prt_{at:07}a", "type": "text", "text": f"Look at number {at}."}]
            answer["parts"] = [{"id": f"prt_{at:07}b", "type": "text", "text": text}]
            file.write(("," if at else "") + json.dumps(prompt) + "," + json.dumps(answer))
        file.write("]}")
    return path


def turns(n):
    # A compaction is not part of the measurement.
    with Place({"compaction": {"auto": False}}) as place:
        file = history(place, n)
        imported, room = place.run("sessions", "import", file, "--cwd", place.root)
        out = os.path.join(place.home, "out.json")
        exported, needed = place.run("sessions", "export", "last", "--output", out)
        agent = place.agent()
        session = agent.ask("session/list", {"cwd": place.root})["sessions"][0]["sessionId"]
        agent.session = session
        first, whole = loaded(agent, place.root, session)
        load = most(agent.process)
        (prompt, late), (second, later) = ended(agent), ended(agent)
        agent.end()
        agent = place.agent()
        forked, _ = timed(lambda: agent.ask("session/fork", {"sessionId": session, "cwd": place.root, "mcpServers": []}))
        fork = most(agent.process)
        agent.end()
    return {"import": (imported, "ms"), "import, memory": (room, "MB"), "export": (exported, "ms"),
            "export, memory": (needed, "MB"), "load, first update": (first, "ms"), "load": (whole, "ms"),
            "load, memory": (load, "MB"), "first prompt": (prompt, "ms"), "first prompt, end after its answer": (late, "ms"),
            "second prompt": (second, "ms"), "second prompt, end after its answer": (later, "ms"),
            "fork": (forked, "ms"), "fork, memory": (fork, "MB")}


def ended(agent):
    """The time of a prompt, and the time from the model's answer to its end."""
    began, _, answered = agent.prompt("Say something.")
    end = time.perf_counter()
    return 1000 * (end - began), 1000 * (end - answered[-1])


def loaded(agent, root, session):
    """The times of the first update and of the end of a load."""
    agent.number += 1
    params = {"sessionId": session, "cwd": root, "mcpServers": []}
    message = {"jsonrpc": "2.0", "id": agent.number, "method": "session/load", "params": params}
    began, first = time.perf_counter(), None
    agent.process.stdin.write(json.dumps(message).encode() + b"\n")
    agent.process.stdin.flush()
    while True:
        heard = agent.process.stdout.readline()
        first = first or time.perf_counter()
        if b'"id":' in heard and json.loads(heard).get("id") == agent.number:
            return 1000 * (first - began), 1000 * (time.perf_counter() - began)


def prompt(n):
    """A prompt of so many MB: the time to the request to the model, and the memory."""
    return compared(lambda start: prompted(n, start), OpenCode, Goose)


def prompted(n, start):
    with Place() as place:
        agent = start(place)
        opens(agent, place)
        agent.prompt("Say something.")
        before = most(agent.process)
        began, asked, _ = agent.prompt("some words of a log\n" * (n * 50_000))
        memory = most(agent.process) - before
        agent.end()
    return {"until the model is asked": (1000 * (asked[0] - began), "ms"), "memory": (memory, "MB")}


def read(n):
    """Ten lines of a file of so many MB, from its middle and from its end."""
    with Place({"permission": "allow"}) as place:
        path = os.path.join(place.root, "log.txt")
        line = "some words of a log, which has lines of a hundred bytes or so, as logs have, and each is the same\n"
        with open(path, "w") as file:
            for _ in range(n):
                file.write(line * (1_000_000 // len(line)))
        agent = place.agent(opens=True)
        middle, _ = timed(lambda: agent.prompt("Read.", [("read", {"filePath": path, "offset": n * 5_000, "limit": 10})]))
        end, _ = timed(lambda: agent.prompt("Read.", [("read", {"filePath": path, "offset": -10})]))
        memory = most(agent.process)
        agent.end()
    return {"prompt, from the middle": (middle, "ms"), "prompt, from the end": (end, "ms"), "memory": (memory, "MB")}


def file_edit(n):
    """An edit of one line in a file of so many MB, after it was read."""
    return compared(lambda start: edited(n, start), OpenCode, Goose)


def edited(n, start):
    with Place({"permission": "allow", "snapshot": True}) as place:
        path = os.path.join(place.root, "large.txt")
        with open(path, "w") as file:
            for at in range(n * 10_000):
                file.write(f"line {at:9} of a file, and some words to make it as long as the lines of files are, or so it seems\n")
        agent = start(place)
        opens(agent, place)
        calls = [("read", {"filePath": path, "limit": 10}),
                 ("edit", {"filePath": path, "oldString": f"line {n * 5_000:9} of", "newString": "gone"})]
        took, _ = timed(lambda: agent.prompt("Do it.", calls))
        with open(path) as file:
            assert "gone" in file.read(), "the file was not changed"
        memory = most(agent.process)
        agent.end()
    return {"prompt": (took, "ms"), "memory": (memory, "MB")}


def output(n):
    """A command that prints so many MB."""
    return compared(lambda start: printed(n, start), OpenCode, Goose)


def printed(n, start):
    with Place({"sandbox": "off", "permission": "allow"}) as place:
        agent = start(place)
        opens(agent, place)
        call = {"command": f"yes 'some words of a log' | head -c {n}000000", "description": "x"}
        took, _ = timed(lambda: agent.prompt("Run it.", [("bash", call)]))
        memory = most(agent.process)
        agent.end()
    return {"prompt": (took, "ms"), "memory": (memory, "MB")}


def edit(n):
    """An edit of a text that fits in so many places when blanks are folded."""
    with Place({"permission": "allow"}) as place:
        path = place.write("project/a.txt", "  x  = 1\n" * n)
        agent = place.agent(opens=True)
        calls = [("read", {"filePath": path}), ("edit", {"filePath": path, "oldString": "x = 1\nx = 1", "newString": "y"})]
        agent.prompt("Say something.")
        took, _ = timed(lambda: agent.prompt("Do it.", calls))
        agent.end()
    return {"prompt": (took, "ms")}


def files(n):
    """A turn that wrote so many files, the prompt after it, its diff and its undo."""
    with Place({"permission": "allow", "snapshot": True}) as place:
        subprocess.run(["git", "init", "--quiet"], cwd=place.root, check=True)
        agent = place.agent(opens=True)
        call = {"command": f"for i in $(seq {n}); do echo $i > f$i; done", "description": "x", "timeout": 600_000}
        took, _ = timed(lambda: agent.prompt("Run it.", [("bash", call)]))
        later, late = ended(agent)
        order = lambda text: {"sessionId": agent.session, "prompt": [{"type": "text", "text": text}]}
        diff, _ = timed(lambda: agent.ask("session/prompt", order("/diff")))
        agent.ask("session/prompt", order("/undo force"))
        undo, _ = timed(lambda: agent.ask("session/prompt", order("/undo force")))
        left = len(glob.glob(os.path.join(place.root, "f*")))
        assert left == 0, f"{left} files are left after an undo"
        agent.end()
    return {"turn": (took, "ms"), "later prompt": (later, "ms"), "its end after its answer": (late, "ms"),
            "diff": (diff, "ms"), "undo": (undo, "ms")}


def closed(n):
    """So many sessions that are opened and closed, and as many again: the memory that remains of each of these."""
    with Place() as place:
        agent = place.agent()
        resident = []
        for _ in range(2):
            for _ in range(n):
                session = agent.ask("session/new", {"cwd": place.root, "mcpServers": []})["sessionId"]
                agent.ask("session/close", {"sessionId": session})
            with open(f"/proc/{agent.process.pid}/status") as status:
                resident.append(next(int(line.split()[1]) for line in status if line.startswith("VmRSS")))
        agent.end()
    return {"memory": ((resident[1] - resident[0]) / n, "kB each")}


# A row and its sizes.
KINDS = [10, 100, 1_000, 5_000]
ROWS = {
    "skills": (skills, KINDS),
    "rules": (rules, KINDS),
    "agents": (agents, KINDS),
    "commands": (commands, KINDS),
    "instructions": (instructions, KINDS),
    "formatters": (formatters, KINDS),
    "language servers": (servers, KINDS),
    "grants": (grants, KINDS),
    "line": (line, [100, 1_000, 10_000]),
    "open line": (open_line, [100, 1_000, 10_000]),
    "address": (address, [100, 1_000, 10_000]),
    "command line, kB": (command_line, [10, 100, 1_000]),
    "nesting": (nesting, [100, 1_000, 10_000]),
    "stars": (stars, [10, 100, 1_000]),
    "tools of a server": (tools_of_server, [16, 128, 1_024]),
    "servers": (many_servers, [1, 10, 60]),
    "project files": (project_files, [1_000, 20_000, 200_000]),
    "edit, places": (edit, [1_000, 10_000, 100_000]),
    "edit of MB": (file_edit, [1, 10, 50]),
    "read of MB": (read, [10, 100, 1_000]),
    "prompt, MB": (prompt, [1, 3, 10, 30]),
    "output, MB": (output, [10, 100, 1_000]),
    "turns": (turns, [500, 2_000, 10_000, 20_000]),
    "files": (files, [100, 1_000, 10_000, 30_000]),
    "stored sessions": (stored_sessions, [1_000, 10_000, 50_000]),
    "made sessions": (made_sessions, [10, 100, 1_000]),
    "made turns": (made_turns, [10, 100, 400]),
    "closed sessions": (closed, [250, 1_000]),
    "streaming": (streaming, [1, 60, 100, 500, 1_000]),
}


def exponent(sizes, values, unit):
    (before, after), (low, high) = sizes[-2:], values[-2:]
    if low < FLOOR[unit] or high <= 0 or after == before:
        return "-"
    return f"{math.log(high / low) / math.log(after / before):.2f}"


class TooLong(Exception):
    pass


def give_up(*_):
    raise TooLong


def limited(row, size):
    """The result of a row at a size; nothing if it takes too long."""
    signal.alarm(LIMIT)
    try:
        return row(size)
    except TooLong:
        return None
    finally:
        signal.alarm(0)
        end_processes()


def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    signal.signal(signal.SIGALRM, give_up)
    for name, (row, all_sizes) in ROWS.items():
        if WANTED and not any(name.startswith(wanted) for wanted in WANTED):
            continue
        sizes, found = [], []
        for size in all_sizes[:SIZES]:
            measured = limited(row, size)
            if measured is None:
                print(f"\n{name}: {size} take more than {LIMIT} s")
                break
            sizes.append(size)
            found.append(measured)
        if not found:
            continue
        print(f"\n{name + ':':<40}" + "".join(f"{size:>10}" for size in sizes) + f"{'exponent':>10}")
        for figure in found[0]:
            values, unit = [one[figure][0] for one in found], found[0][figure][1]
            cells = "".join(f"{value:>10.{3 if unit.startswith('ms a') else 1}f}" for value in values)
            power = exponent(sizes, values, unit) if len(sizes) > 1 else "-"
            print(f"  {figure + ', ' + unit:<38}{cells}{power:>10}", flush=True)


if __name__ == "__main__":
    main()

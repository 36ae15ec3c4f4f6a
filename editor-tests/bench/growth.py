"""How costs grow: each row is measured at several sizes, with the exponent beside it (1 is linear, 2 quadratic):
python3 editor-tests/bench/growth.py target/release/adjutant [ROW …]

A row is run where one of the arguments is the beginning of its name; without one, all of them. SIZES is the number of
sizes that are measured, from the smallest on: SIZES=2 takes a minute or two, all of them half an hour. The exponent
is that of the two largest sizes. What is below FLOOR (10 ms, 20 MB) says nothing about growth, and has none. Memory is
the most that the process had, in MB.

OPENCODE and GOOSE are paths of these programs, which are measured beside it where they can do the same: OpenCode reads
the same settings, skills, agents, commands and instructions, and both take long prompts and run commands.
"""

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time

from acp import Agent, Model, serve, settings_of

BINARY = os.path.abspath(sys.argv[1])
WANTED = sys.argv[2:]
SIZES = int(os.environ.get("SIZES", "9"))
FLOOR = {"ms": 10, "ms a line": 0.05, "MB": 20, "kB each": 1}
PORT = serve()

# The folder of the user's settings, as OpenCode has it.
USER = ".config/opencode"


def environment(home):
    return {"HOME": home, "PATH": os.environ["PATH"], "TMPDIR": home, "ADJUTANT_DISABLE_TITLES": "1", "ADJUTANT_TRUST": "all"}


class AllowingAgent(Agent):
    """One whose questions are answered with yes: what is asked differs with the sandbox of a machine."""

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
        self.folder.cleanup()

    def write(self, path, text):
        path = os.path.join(self.home, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def agent(self, opens=False):
        return AllowingAgent(BINARY, self.home, self.root, PORT, self.settings, opens)

    def run(self, *arguments, given=None, output=subprocess.DEVNULL):
        """Milliseconds and the most memory of a command, in MB."""
        began = time.perf_counter()
        stdin = open(given) if given else subprocess.DEVNULL
        process = subprocess.Popen([BINARY, *arguments], stdin=stdin, stdout=output, cwd=self.root, env=environment(self.home))
        _, status, used = os.wait4(process.pid, 0)
        took = 1000 * (time.perf_counter() - began)
        assert os.waitstatus_to_exitcode(status) == 0, (arguments, status)
        return took, used.ru_maxrss / 1024


def most(process):
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def timed(work):
    began = time.perf_counter()
    done = work()
    return 1000 * (time.perf_counter() - began), done


class Peer(AllowingAgent):
    """A process of another agent. It may also ask for a title, so requests are not counted."""

    # Its names of tools.
    tools = {}

    def begin(self, place, program, env):
        env = {"HOME": place.home, "PATH": os.environ["PATH"], "TMPDIR": place.home, **env}
        self.process = subprocess.Popen([program, "acp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, env=env, cwd=place.root)
        self.number = 0
        self.ask("initialize", {"protocolVersion": 1})

    def prompt(self, text, calls=()):
        Model.calls, Model.asked, Model.answered = [(self.tools.get(name, name), call) for name, call in calls], [], []
        began = time.perf_counter()
        end = self.ask("session/prompt", {"sessionId": self.session, "prompt": [{"type": "text", "text": text}]})
        assert end["stopReason"] == "end_turn", end
        return began, Model.asked, Model.answered


class OpenCode(Peer):
    def __init__(self, place):
        options = {"baseURL": f"http://127.0.0.1:{PORT}/v1", "apiKey": "x"}
        model = {"name": "m", "limit": {"context": 100_000_000, "output": 8_000}}
        provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": model}}
        settings = {"model": "local/m", "small_model": "local/m", "provider": {"local": provider}, "autoupdate": False, "share": "disabled"}
        own = {name: value for name, value in place.settings.items() if name in ["permission", "instructions"]}
        place.write(f"{USER}/opencode.json", json.dumps({**settings, **own}))
        off = ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS"]
        self.begin(place, os.environ["OPENCODE"], {f"OPENCODE_DISABLE_{one}": "1" for one in off})


class Goose(Peer):
    tools = {"bash": "shell"}

    def __init__(self, place):
        env = {"GOOSE_PROVIDER": "openai", "GOOSE_MODEL": "gpt-4.1", "OPENAI_API_KEY": "x", "OPENAI_HOST": f"http://127.0.0.1:{PORT}",
               "OPENAI_BASE_URL": f"http://127.0.0.1:{PORT}/v1", "GOOSE_MODE": "auto", "GOOSE_DISABLE_KEYRING": "1",
               "GOOSE_TELEMETRY_ENABLED": "false", "GOOSE_CONTEXT_LIMIT": "100000000"}
        self.begin(place, os.environ["GOOSE"], env)


def compared(measure, *peers):
    """What `measure` finds of this agent, and of those of the peers whose programs are given."""
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


def opening(settings=None, files=()):
    """What `session/new` and the first prompt take with these settings and files."""
    return compared(lambda start: opened(settings, files, start), OpenCode)


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
    return opening(files=[(f"{USER}/skill/skill-{at}/SKILL.md", text.format(at)) for at in range(n)])


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
    """What is asked for, judged by this many rules, one after the other in one process."""
    actions = ["allow", "ask", "deny"]
    lines = 2000
    with Place({"permission": {permission: {pattern.format(at): actions[at % 3] for at in range(n)}}}) as place:
        text = json.dumps(asked) + "\n"
        few, many = place.write("few", text * 10), place.write("many", text * lines)
        base = min(place.run("permissions", "check", given=few)[0] for _ in range(2))
        took, _ = place.run("permissions", "check", given=many)
    return {"verdict": ((took - base) / (lines - 10), "ms a line")}


def history(place, n):
    """Writes an exported session of so many turns, each with an answer of 2 kB."""
    model = {"provider": "local", "model": "m"}
    session = {"id": "ses_growth", "cwd": "/nowhere", "title": "Long", "created": 1, "updated": 1}
    text = "It reads what changed, and says what is wrong with it. " * 36
    path = place.write("session.json", f'{{"adjutant": 1, "session": {json.dumps(session)}, "messages": [')
    # Not as one text: the memory of this process would count as that of the commands it starts.
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
    # Summarising it is not what is measured.
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
    """What a prompt takes, and how long after the model's answer it ends."""
    began, _, answered = agent.prompt("Say something.")
    end = time.perf_counter()
    return 1000 * (end - began), 1000 * (end - answered[-1])


def loaded(agent, root, session):
    """When a load shows the first thing, and when it has ended."""
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
    """A prompt of so many MB: until the model is asked, and what memory it takes."""
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
    with Place({"permission": "allow", "snapshot": True}) as place:
        path = os.path.join(place.root, "large.txt")
        with open(path, "w") as file:
            for at in range(n * 10_000):
                file.write(f"line {at:9} of a file, and some words to make it as long as the lines of files are, or so it seems\n")
        agent = place.agent(opens=True)
        calls = [("read", {"filePath": path, "limit": 10}),
                 ("edit", {"filePath": path, "oldString": f"line {n * 5_000:9} of", "newString": "gone"})]
        took, _ = timed(lambda: agent.prompt("Do it.", calls))
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
    """A turn that wrote so many files, the prompt after it, and its undo."""
    with Place({"sandbox": "off", "permission": "allow", "snapshot": True}) as place:
        subprocess.run(["git", "init", "--quiet"], cwd=place.root, check=True)
        agent = place.agent(opens=True)
        call = {"command": f"for i in $(seq {n}); do echo $i > f$i; done", "description": "x"}
        took, _ = timed(lambda: agent.prompt("Run it.", [("bash", call)]))
        later, _ = timed(lambda: agent.prompt("Say something."))
        order = {"sessionId": agent.session, "prompt": [{"type": "text", "text": "/undo force"}]}
        agent.ask("session/prompt", order)
        undo, _ = timed(lambda: agent.ask("session/prompt", order))
        assert not os.path.exists(os.path.join(place.root, "f1"))
        agent.end()
    return {"turn": (took, "ms"), "later prompt": (later, "ms"), "undo": (undo, "ms")}


def sessions(n):
    """So many sessions: the first list of a process, a search, and a new session."""
    with Place() as place:
        agent = place.agent()
        for _ in range(n):
            agent.session = agent.ask("session/new", {"cwd": place.root, "mcpServers": []})["sessionId"]
            agent.prompt("Say something about the parser.")
        memory = most(agent.process)
        agent.end()
        listed, _ = place.run("sessions", "list", "--limit", "50")
        found, _ = place.run("sessions", "search", "parser")
        agent = place.agent()
        new, _ = timed(lambda: agent.ask("session/new", {"cwd": place.root, "mcpServers": []}))
        agent.end()
    return {"list": (listed, "ms"), "search": (found, "ms"), "session/new": (new, "ms"), "memory": (memory, "MB")}


def closed(n):
    """So many sessions that are opened and closed, and as many again: what stays of each of these in memory."""
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
    "edit, places": (edit, [1_000, 10_000, 100_000]),
    "edit of MB": (file_edit, [1, 10, 50]),
    "read of MB": (read, [10, 100, 1_000]),
    "prompt, MB": (prompt, [1, 3, 10, 30]),
    "output, MB": (output, [10, 100, 1_000]),
    "turns": (turns, [500, 2_000, 10_000, 20_000]),
    "files": (files, [100, 1_000, 10_000, 30_000]),
    "sessions": (sessions, [100, 1_000, 3_000]),
    "closed sessions": (closed, [250, 1_000]),
}


def exponent(sizes, values, unit):
    (before, after), (low, high) = sizes[-2:], values[-2:]
    if low < FLOOR[unit] or high <= 0 or after == before:
        return "-"
    return f"{math.log(high / low) / math.log(after / before):.2f}"


def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for name, (row, all_sizes) in ROWS.items():
        if WANTED and not any(name.startswith(wanted) for wanted in WANTED):
            continue
        sizes = all_sizes[:SIZES]
        found = [row(size) for size in sizes]
        print(f"\n{name + ':':<40}" + "".join(f"{size:>10}" for size in sizes) + f"{'exponent':>10}")
        for figure in found[0]:
            values, unit = [one[figure][0] for one in found], found[0][figure][1]
            cells = "".join(f"{value:>10.{3 if unit == 'ms a line' else 1}f}" for value in values)
            power = exponent(sizes, values, unit) if len(sizes) > 1 else "-"
            print(f"  {figure + ', ' + unit:<38}{cells}{power:>10}", flush=True)


if __name__ == "__main__":
    main()

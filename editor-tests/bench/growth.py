"""How costs grow: each row is measured at several sizes, with the exponent beside it (1 is linear, 2 quadratic):
python3 editor-tests/bench/growth.py target/release/adjutant [ROW …]

A row is run where one of the arguments is the beginning of its name; without one, all of them. SIZES is a list of
factors by which the smallest size of each row is multiplied, 1,2,4 unless it is set: SIZES=1,4,16,64 takes minutes.
The exponent is that of the two largest sizes. What is below FLOOR (10 ms, 20 MB) says nothing about growth, and has
none. Memory is the most that the process had, in MB.
"""

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time

from acp import Agent, serve, settings_of

BINARY = os.path.abspath(sys.argv[1])
WANTED = sys.argv[2:]
SIZES = [int(n) for n in os.environ.get("SIZES", "1,2,4").split(",")]
FLOOR = {"ms": 10, "ms a line": 0.05, "MB": 20, "kB each": 1}
PORT = serve()


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


def opening(settings=None, files=()):
    """What `session/new` and the first prompt take with these settings and files."""
    with Place(settings) as place:
        for path, text in files:
            place.write(path, text)
        agent = place.agent()
        new, made = timed(lambda: agent.ask("session/new", {"cwd": place.root, "mcpServers": []}))
        agent.session = made["sessionId"]
        prompt, _ = timed(lambda: agent.prompt("Say something."))
        memory = most(agent.process)
        agent.end()
    return {"session/new": (new, "ms"), "first prompt": (prompt, "ms"), "memory": (memory, "MB")}


def skills(n):
    text = "---\nname: skill-{0}\ndescription: The skill with number {0}.\n---\nDo it.\n"
    return opening(files=[(f".config/adjutant/skill/skill-{at}/SKILL.md", text.format(at)) for at in range(n)])


def rules(n):
    actions = ["allow", "ask", "deny"]
    return opening({"permission": {"bash": {f"tool{at} *": actions[at % 3] for at in range(n)}}})


def agents(n):
    text = "---\ndescription: Agent {0}.\nmode: subagent\npermission:\n  edit: deny\n---\nIt reviews.\n"
    return opening(files=[(f".config/adjutant/agent/agent-{at}.md", text.format(at)) for at in range(n)])


def commands(n):
    text = "---\ndescription: Command {0}.\n---\nDo the thing with number {0}: $ARGUMENTS\n"
    return opening(files=[(f".config/adjutant/command/command-{at}.md", text.format(at)) for at in range(n)])


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
        new, made = timed(lambda: agent.ask("session/new", {"cwd": place.root, "mcpServers": []}))
        agent.session = made["sessionId"]
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
    """A command line judged by this many rules, one after the other in one process."""
    actions = ["allow", "ask", "deny"]
    lines = 2000
    with Place({"permission": {"bash": {f"tool{at} *": actions[at % 3] for at in range(n)}}}) as place:
        text = json.dumps({"id": 1, "bash": "git log -1 | wc -l && cargo test --lib"}) + "\n"
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
    with Place() as place:
        agent = place.agent(opens=True)
        agent.prompt("Say something.")
        before = most(agent.process)
        began, asked, _ = agent.prompt("some words of a log\n" * (n * 50_000))
        memory = most(agent.process) - before
        agent.end()
    return {"until the model is asked": (1000 * (asked[0] - began), "ms"), "memory": (memory, "MB")}


def output(n):
    """A command that prints so many MB."""
    with Place({"sandbox": "off", "permission": "allow"}) as place:
        agent = place.agent(opens=True)
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


# A row and its smallest size.
ROWS = {
    "skills": (skills, 50),
    "rules": (rules, 250),
    "line": (line, 250),
    "agents": (agents, 50),
    "commands": (commands, 50),
    "instructions": (instructions, 50),
    "formatters": (formatters, 50),
    "language servers": (servers, 50),
    "grants": (grants, 250),
    "turns": (turns, 250),
    "prompt, MB": (prompt, 1),
    "output, MB": (output, 10),
    "edit, places": (edit, 250),
    "files": (files, 100),
    "sessions": (sessions, 25),
    "closed sessions": (closed, 250),
}


def exponent(sizes, values, unit):
    (before, after), (low, high) = sizes[-2:], values[-2:]
    if low < FLOOR[unit] or high <= 0 or after == before:
        return "-"
    return f"{math.log(high / low) / math.log(after / before):.2f}"


def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for name, (row, smallest) in ROWS.items():
        if WANTED and not any(name.startswith(wanted) for wanted in WANTED):
            continue
        sizes = [smallest * factor for factor in SIZES]
        found = [row(size) for size in sizes]
        print(f"\n{name + ':':<40}" + "".join(f"{size:>10}" for size in sizes) + f"{'exponent':>10}")
        for figure in found[0]:
            values, unit = [one[figure][0] for one in found], found[0][figure][1]
            cells = "".join(f"{value:>10.{3 if unit == 'ms a line' else 1}f}" for value in values)
            power = exponent(sizes, values, unit) if len(sizes) > 1 else "-"
            print(f"  {figure + ', ' + unit:<38}{cells}{power:>10}", flush=True)


if __name__ == "__main__":
    main()

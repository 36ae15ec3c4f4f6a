"""The cost of language servers and mentions:

    npm install --prefix DIR typescript-language-server typescript@5
    python3 editor-tests/bench/language.py target/release/adjutant DIR/node_modules/.bin/typescript-language-server

One file of 200 is edited again and again, now with an error and now without. First a bare client notifies the server of
the edits and waits for its diagnostics: the server's own time. Then a mock model makes the edits through adjutant, from
the model's answer to the next request. A relay in front of the server records every message: the time outside the first
and the last of a step is adjutant's. The same edits without a server show the cost of a step by itself. Then prompts
with ten mentioned files, and with none.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from acp import Agent, serve

BINARY = os.path.abspath(sys.argv[1])
ROUNDS = int(os.environ.get("ROUNDS", "30"))
FILES = 200
# The relay: `language.py --relay LOG PROGRAM` runs between adjutant and the server.
RELAY = sys.argv[1] == "--relay"


def pump(source, sink, note):
    """Forwards messages, and records the relevant ones."""
    while True:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = source.read(1)
            if not byte:
                return
            head += byte
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
        body = source.read(length)
        sink.write(head + body)
        sink.flush()
        note(body)


def relay(log, program):
    server = subprocess.Popen([program, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out = open(log, "a", buffering=1)

    def noted(body):
        out.write(f"{time.perf_counter()} {json.loads(body).get('method', 'answer')}\n")

    threading.Thread(target=pump, args=(sys.stdin.buffer, server.stdin, noted), daemon=True).start()
    pump(server.stdout, sys.stdout.buffer, noted)


def project(home):
    root = os.path.join(home, "project")
    os.makedirs(os.path.join(root, "src"))
    options = {"strict": True, "module": "commonjs", "noEmit": True}
    with open(os.path.join(root, "tsconfig.json"), "w") as file:
        json.dump({"compilerOptions": options, "include": ["src"]}, file)
    for n in range(FILES):
        before = f'import {{ f{n - 1} }} from "./m{n - 1}"\n' if n else ""
        value = f"f{n - 1}(x) + 1" if n else "x"
        with open(os.path.join(root, "src", f"m{n}.ts"), "w") as file:
            file.write(f"{before}export function f{n}(x: number): number {{\n  return {value}\n}}\nexport const marker = 0\n")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


def published(program, root):
    """The time that the server itself takes from an edit to its diagnostics, in ms."""
    server = subprocess.Popen([program, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root)
    uri, text = f"file://{root}/src/m{FILES - 1}.ts", open(os.path.join(root, "src", f"m{FILES - 1}.ts")).read()

    def say(**message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        server.stdin.flush()

    def hear():
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += server.stdout.read(1)
        heard = json.loads(server.stdout.read(int(head.split(b":")[1].split(b"\r")[0])))
        if "method" in heard and "id" in heard:
            say(id=heard["id"], result=None)
        return heard

    def wait(wrong):
        """Until it has published errors, or the absence of errors."""
        while True:
            heard = hear()
            if heard.get("method") == "textDocument/publishDiagnostics" and heard["params"]["uri"] == uri:
                if bool(heard["params"]["diagnostics"]) == wrong:
                    return

    capabilities = {"textDocument": {"publishDiagnostics": {}, "synchronization": {"didSave": True}}}
    say(id=1, method="initialize", params={"processId": None, "rootUri": f"file://{root}", "capabilities": capabilities})
    while hear().get("id") != 1:
        pass
    say(method="initialized", params={})
    say(method="textDocument/didOpen", params={"textDocument": {"uri": uri, "languageId": "typescript", "version": 1, "text": text}})
    wait(False)
    # The remaining diagnostics of the opened file.
    time.sleep(3)
    times = []
    for n in range(ROUNDS):
        fresh = text.replace("export const marker = 0", f'export const marker: number = "{n}"' if n % 2 == 0 else f"export const marker = {n}")
        begin = time.perf_counter()
        say(method="textDocument/didChange", params={"textDocument": {"uri": uri, "version": n + 2}, "contentChanges": [{"text": fresh}]})
        wait(n % 2 == 0)
        times.append((time.perf_counter() - begin) * 1000)
    server.kill()
    return statistics.median(times[5:])


def edits(agent, root):
    """The times of the model's answer and of the next request: one edit each."""
    path, marker = os.path.join(root, "src", f"m{FILES - 1}.ts"), "export const marker = 0"
    times = []
    for n in range(ROUNDS):
        fresh = f'export const marker: number = "{n}"' if n % 2 == 0 else f"export const marker = {n}"
        edit = {"filePath": path, "oldString": marker, "newString": fresh}
        _, asked, answered = agent.prompt("Go on.", [("edit", edit)])
        times.append((answered[0], asked[1]))
        marker = fresh
    return times


def main():
    port = serve()
    settings = lambda lsp: {"sandbox": {"mode": "off"}, "lsp": lsp}
    home = tempfile.mkdtemp(prefix="adjutant-bench-")
    root = project(home)
    publish = published(sys.argv[2], root)
    plain = Agent(BINARY, home, root, port, settings(False))
    bare = statistics.median((end - begin) * 1000 for begin, end in edits(plain, root)[5:])
    plain.end()
    subprocess.run(["sed", "-i", "s/^export const marker.*/export const marker = 0/", os.path.join(root, "src", f"m{FILES - 1}.ts")], check=True)

    log = os.path.join(home, "relay.log")
    command = [sys.executable, os.path.abspath(__file__), "--relay", log, os.path.abspath(sys.argv[2])]
    agent = Agent(BINARY, home, root, port, settings({"relay": {"command": command, "extensions": [".ts"]}}))
    calls = edits(agent, root)
    agent.end()
    noted = [(float(at), what) for at, what in (line.split() for line in open(log))]
    whole, theirs = [], []
    for begin, end in calls[5:]:
        within = [at for at, _ in noted if begin <= at <= end]
        whole.append((end - begin) * 1000)
        theirs.append((within[-1] - within[0]) * 1000 if within else 0)
    mid = statistics.median
    own = mid(one - other for one, other in zip(whole, theirs))
    print(f"an edit among {FILES} files: the server publishes after {publish:.1f} ms; a step with diagnostics takes {mid(whole):.1f} ms ({mid(whole) / publish:.2f} times that)")
    print(f"of a step {own:.1f} ms are adjutant's; without a server {bare:.1f} ms ({own - bare:+.1f} ms)")

    plain = Agent(BINARY, home, root, port, settings(False))
    spent = {0: [], 10: []}
    for n in range(ROUNDS):
        for size in spent:
            names = " ".join(f"@src/m{(n * 10 + k) % FILES}.ts" for k in range(size))
            began, asked, _ = plain.prompt(f"Look at {names}." if size else "Look at nothing at all, please.")
            spent[size].append((asked[0] - began) * 1000)
    plain.end()
    none, ten = (statistics.median(spent[size]) for size in (0, 10))
    print(f"from the prompt to the request: {none:.1f} ms, with ten files mentioned {ten:.1f} ms ({ten - none:+.1f} ms)")


if RELAY:
    relay(sys.argv[2], sys.argv[3])
else:
    main()

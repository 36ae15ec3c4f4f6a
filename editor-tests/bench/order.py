"""Lists the functions of a program in the order of their first use, for the linker (the release workflow):

    cargo rustc --release --bin adjutant -- -C strip=none
    python3 editor-tests/bench/order.py target/release/adjutant order.txt

A start, a session and a prompt run through a fifth of the code. The system reads a program in blocks of 64 kB around
each used address, so the used functions cost less memory next to each other, in the order of their first use, than in
the compiler's order: 16 MB after ten turns instead of 23. callgrind, of valgrind, records the used functions in three
runs of the process, each of which does more than the one before.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

from acp import Agent, serve

# The actions of a prompt in the longest run.
CALLS = [
    ("read", {"filePath": "a.txt"}),
    ("edit", {"filePath": "a.txt", "oldString": "one", "newString": "three"}),
    ("write", {"filePath": "b.txt", "content": "four\n"}),
    ("bash", {"command": "ls"}),
    ("bash", {"command": "echo five > c.txt"}),
    ("grep", {"pattern": "th.*e"}),
    ("glob", {"pattern": "*.txt"}),
]


def lives(binary, home):
    """Runs three times, each time longer."""
    root = os.path.join(home, "project")
    os.makedirs(os.path.join(root, ".git"))
    with open(os.path.join(root, "a.txt"), "w") as file:
        file.write("one\ntwo\n")
    port = serve()
    for name in ["starts", "opens", "works"]:
        watched = os.path.join(home, name)
        # The program that starts a command in its sandbox is this one as well; the others are not looked at.
        skipped = "*/bwrap,*/bash,*/sh,*/git,*/ls"
        with open(watched, "w") as file:
            file.write(
                "#!/bin/sh\nexec valgrind --quiet --tool=callgrind --demangle=no --compress-strings=no --trace-children=yes "
                f"--trace-children-skip='{skipped}' --callgrind-out-file='{home}/{name}.%p.out' '{binary}' \"$@\" 2>/dev/null\n"
            )
        os.chmod(watched, 0o755)
        agent = Agent(watched, home, root, port, {"permission": "allow"}, opens=name != "starts")
        if name == "works":
            agent.prompt("Go.", CALLS)
            agent.ask("session/list", {})
            agent.ask("session/load", {"sessionId": agent.session, "cwd": root, "mcpServers": []})
        agent.end()
        yield sorted(glob.glob(os.path.join(home, f"{name}.*.out")))


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: python3 editor-tests/bench/order.py BINARY_WITH_SYMBOLS ORDER_FILE")
    binary, order = map(os.path.abspath, sys.argv[1:])
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed: `apt-get install valgrind`")
    listed = subprocess.run(["nm", "--defined-only", binary], capture_output=True, text=True).stdout.splitlines()
    known = {line.split()[-1] for line in listed if line.split()[-2] in "tTwW"}
    if not known:
        sys.exit(f"{binary} has no symbols: link it with `-C strip=none`")
    home = tempfile.mkdtemp(prefix="adjutant-bench-")
    used = {}
    try:
        for outputs in lives(binary, home):
            for output in outputs:
                with open(output, errors="replace") as lines:
                    for line in lines:
                        # A name that is there a second time, in a recursion, ends in ' and a number.
                        function = re.match(r"c?fn=(.+?)(?:'\d+)?$", line)
                        if function and function[1] in known:
                            used.setdefault(function[1])
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if not used:
        sys.exit("no function of the program was seen in use")
    with open(order, "w") as file:
        file.writelines(name + "\n" for name in used)
    print(f"{len(used)} of {len(known)} functions are used")


main()

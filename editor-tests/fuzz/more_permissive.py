#!/usr/bin/env python3
"""Compares the verdicts of two builds, and prints the command lines that the newer one treats more permissively.

    python3 editor-tests/fuzz/more_permissive.py OLD NEW [--lines FILE] [--pairs N] [--seed N]

OLD and NEW are two builds of adjutant. Both judge every line of the tables in `crates/{permission,project}/data`, and N random
combinations of them, through `adjutant permissions check`: under several sets of rules and as several agents, in a
project like that of the tables. Prints each line whose verdict is more permissive in NEW; the exit code is 1 if
there is one. No judged line is run. `--lines` takes the lines from a file instead, one JSON string or plain text
per line.
"""

import argparse
import csv
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

CRATES = pathlib.Path(__file__).resolve().parent.parent.parent / "crates"
WORTH = {"deny": 2, "ask": 1, "allow": 0}

# The rules of a user, and the agent.
RULES = [
    ({}, "build"),
    ({}, "plan"),
    ({"*": "ask", "git diff*": "allow", "git log*": "allow", "ls*": "allow", "npm test": "allow"}, "build"),
    ({"*": "allow", "rm *": "deny", "git push*": "deny", "curl *": "ask"}, "build"),
    ({"*": "allow", "*PWN*": "deny", "* --force*": "ask"}, "build"),
    ({"*": "ask", "cat *": "allow", "find *": "allow", "sed *": "allow", "make *": "allow", "env *": "allow"}, "build"),
    ({"git *": "allow", "git push*": "deny"}, "explore"),
]

# Prefixes and suffixes of a line, and separators of two.
AROUND = [
    "{}", "( {} )", "{{ {}; }}", "if true; then {}; fi", "for i in 1 2; do {}; done", "f() {{ {}; }}; f", "! {}",
    "time {}", "env X=1 {}", "nohup {}", "xargs {} < list", "echo \"$({})\"", "cat <({})", "coproc {{ {}; }}",
    "while read l; do {}; done < list", "case x in x) {};; esac", "cd src && {}", "timeout 5 {}", "command {}",
    "find . -name a.txt -exec {} \\;", "{} > /dev/null 2>&1", "{} &", "bash -c \"{}\"", "git -c x.y=z log; {}",
]
BETWEEN = ["; ", " && ", " || ", " | ", "\n", " & "]

PROJECT = r"""
git init -q -b main . && git init -q --bare .r.git && git remote add origin .r.git
mkdir -p src/deep tests docs .github/workflows .claude .vscode
for f in a.txt a1.txt b.txt victim.txt list x src/f.c src/deep/f README.md AGENTS.md docs/x.md; do echo alpha > $f; done
printf '[package]\nname = "x"\n' > Cargo.toml; echo '{}' > package.json; echo K=1 > .env; echo k > server.pem
printf '#!/bin/sh\ntouch PWN\n' > evil.sh; chmod +x evil.sh; ln -s .git/hooks hk; ln -s .. up; ln -s .env plain.txt
git add a.txt src README.md evil.sh && git commit -qm one
"""


def table_lines():
    lines = []
    for path in sorted(CRATES.glob("*/data/permission_cases*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            column = next(i for i, name in enumerate(next(rows)) if name.startswith("input"))
            for row in rows:
                line = json.loads(row[column])
                if isinstance(line, str):
                    lines.append(line)
    return lines


def own_lines(path):
    lines = []
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        lines.append(json.loads(line) if line.startswith('"') else line)
    return lines


def combined(lines, count, seed):
    chance = random.Random(seed)
    short = [line for line in lines if len(line) < 200]
    found = []
    for _ in range(count):
        parts = [chance.choice(AROUND).format(chance.choice(short)) for _ in range(chance.randint(1, 3))]
        text = parts[0]
        for part in parts[1:]:
            text += chance.choice(BETWEEN) + part
        found.append(text)
    return found


def judged(binary, home, project, agent, lines):
    """The verdict on each line; a line that the checker refuses to read is treated as asked about."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "TMPDIR": str(home), "LC_ALL": "C.UTF-8"}
    questions = "".join(json.dumps({"id": n, "bash": line}) + "\n" for n, line in enumerate(lines))
    command = [binary, "permissions", "check", "--sandbox", "none", "--agent", agent]
    run = subprocess.run(command, input=questions, capture_output=True, text=True, cwd=project, env=environment)
    answers = {}
    for answer in map(json.loads, run.stdout.splitlines()):
        answers[answer["id"]] = (answer.get("verdict", "ask"), answer.get("reason"))
    if len(answers) != len(lines):
        sys.exit(f"{binary}: {len(answers)} answers to {len(lines)} questions: {run.stderr[-500:]}")
    return [answers[n] for n in range(len(lines))]


def main():
    parser = argparse.ArgumentParser(description="Print the command lines that a newer build judges more permissively than an older one.")
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--lines", help="take the lines from this file")
    parser.add_argument("--pairs", type=int, default=5000, help="the number of combined lines [5000]")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    old, new = os.path.abspath(args.old), os.path.abspath(args.new)
    lines = own_lines(args.lines) if args.lines else table_lines()
    lines += combined(lines, args.pairs, args.seed)
    more_permissive = stricter = 0
    with tempfile.TemporaryDirectory() as directory:
        home, project = pathlib.Path(directory, "home"), pathlib.Path(directory, "project")
        settings = home / ".config" / "adjutant"
        settings.mkdir(parents=True)
        project.mkdir()
        identity = {f"GIT_{who}_{what}": "x@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", **identity}
        subprocess.run(["bash", "-c", PROJECT], cwd=project, env=environment, check=True, stderr=subprocess.DEVNULL)
        for bash, agent in RULES:
            rules = {"permission": {"bash": bash}} if bash else {}
            (settings / "adjutant.json").write_text(json.dumps(rules), encoding="utf-8")
            verdicts = [judged(binary, home, project, agent, lines) for binary in (old, new)]
            for line, (was, _), (now, why) in zip(lines, *verdicts):
                if WORTH[now] < WORTH[was]:
                    more_permissive += 1
                    print(f"{was} -> {now}: {json.dumps(line)}\n    {agent} {json.dumps(bash)}: {why or 'no reason'}")
                stricter += WORTH[now] > WORTH[was]
    print(f"{len(lines)} lines, {len(RULES)} sets of rules: {more_permissive} more permissive, {stricter} stricter")
    return 1 if more_permissive else 0


if __name__ == "__main__":
    sys.exit(main())

"""Asks the offline model the questions of `editor-tests/data/questions.csv`, each in the sources of a crate
at a fixed version, and counts how often the right place is the first and is among the first ones cited:

    python3 editor-tests/bench/questions.py target/debug/adjutant [--held-back] [--show]

The half that is held back is for the end of a change to the ranking, once; `--show` prints what was cited
instead of a right answer. Cargo fetches the crates into its own cache. An answer is right where the lines it
shows hold the line that defines the symbol: `file#text`, alternatives between ` | `.
"""

import argparse
import collections
import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

VERSIONS = {"tokio": "1.54.1", "clap_builder": "4.6.7", "reqwest": "0.13.5", "serde_json": "1.0.154"}
QUESTIONS = pathlib.Path(__file__).parent.parent / "data" / "questions.csv"


def fetch(folder):
    """The sources of the crates, copied below `folder`."""
    manifest = '[package]\nname = "questions"\nversion = "0.0.0"\nedition = "2021"\n[lib]\npath = "lib.rs"\n[dependencies]\n'
    for name, version in VERSIONS.items():
        manifest += f'{name} = {{ version = "={version}", default-features = false }}\n'
    project = folder / "project"
    project.mkdir()
    (project / "Cargo.toml").write_text(manifest)
    (project / "lib.rs").write_text("")
    command = ["cargo", "metadata", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"]
    found = json.loads(subprocess.run(command, cwd=project, check=True, stdout=subprocess.PIPE).stdout)
    for package in found["packages"]:
        if VERSIONS.get(package["name"]) == package["version"]:
            shutil.copytree(pathlib.Path(package["manifest_path"]).parent, folder / package["name"])


def ask(program, home, tree, question):
    """What the offline model answers, without what it says on the way."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "ADJUTANT_DISABLE_MODELS_FETCH": "1"}
    command = [program, "run", "--deny", "--model", "offline/offline", "--format", "json", question]
    ran = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    texts = []
    for line in ran.stdout.decode().splitlines():
        update = json.loads(line).get("params", {}).get("update", {})
        if update.get("sessionUpdate") == "agent_message_chunk":
            texts.append(update["content"]["text"])
        elif update.get("sessionUpdate") == "tool_call":
            texts.clear()
    return "".join(texts)


def places(answer):
    """The items of the answer's list: path, first line shown, and the lines shown."""
    found, fence = [], False
    for line in answer.splitlines():
        item = re.match(r"(?:\d+\.|-) `([^`]+):(\d+)`(?:: (.*))?", line)
        if line.startswith("```"):
            fence = not fence
        elif fence and found:
            found[-1][2].append(line)
        elif item and not fence:
            found.append((item[1], int(item[2]), [item[3]] if item[3] else []))
    return found


def is_right(place, answers):
    path, _, shown = place
    for answer in answers.split(" | "):
        file, _, text = answer.partition("#")
        end = r"(?!\w)" if re.search(r"\w$", text) else ""
        if path == file and any(re.search(re.escape(text) + end, line) for line in shown):
            return True
    return False


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program")
    options.add_argument("--held-back", action="store_true")
    options.add_argument("--show", action="store_true")
    options = options.parse_args()
    half = "held back" if options.held_back else "seen"
    ranks, slowest = collections.defaultdict(list), 0.0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        fetch(folder)
        (folder / "home").mkdir()
        for row in csv.DictReader(QUESTIONS.open()):
            if row["half"] != half:
                continue
            start = time.monotonic()
            answer = ask(os.path.abspath(options.program), folder / "home", folder / row["crate"], row["question"])
            slowest = max(slowest, time.monotonic() - start)
            cited = places(answer)
            rank = next((rank for rank, place in enumerate(cited, 1) if is_right(place, row["answers"])), None)
            ranks[row["kind"]].append(rank)
            if options.show and rank != 1:
                print(f"{row['crate']}: {row['question']} (right: {rank})")
                for path, line, shown in cited[:5]:
                    print(f"    {path}:{line} {shown[0].strip() if shown else ''}")
    for kind, found in ranks.items():
        among = [sum(rank is not None and rank <= most for rank in found) for most in (1, 3, 5)]
        shares = ", ".join(f"top {most} {count} ({count / len(found):.0%})" for most, count in zip((1, 3, 5), among))
        print(f"{half}, {kind}: of {len(found)} questions {shares}")
    print(f"the slowest took {slowest:.2f} s")


main()

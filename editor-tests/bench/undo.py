"""The cost of saving files for an undo:
python3 editor-tests/bench/undo.py target/release/adjutant

In projects of SIZES files, a command changes one file, ten times, and the last change is undone. In one of 10,000
files, commands write 10,000 files and check out a branch that differs in all of them. The results are milliseconds per
turn, the median of the runs for those that are repeated, for each sandbox of MECHANISMS, with undo and without it.

In a project of EACH files, two agents, one with undo and one without, make the same PAIRS changes of a file each,
alternately. The results are the medians of a turn, of a turn whose command changes nothing, and of the difference of
each pair.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

import acp

BINARY = os.path.abspath(sys.argv[1])
SIZES = [int(n) for n in os.environ.get("SIZES", "1000,20000,100000,400000").split(",")]
MECHANISMS = os.environ.get("MECHANISMS", "bwrap,landlock").split(",")
RUNS = int(os.environ.get("RUNS", "5"))
EACH = int(os.environ.get("EACH", "100000"))
PAIRS = int(os.environ.get("PAIRS", "50"))
OTHERS = {"bwrap": "seatbelt", "landlock": "bwrap", "none": "bwrap,landlock"}


def bash(command):
    return ("bash", {"command": command, "description": "Run", "timeout": 600_000})


def git(root, *args):
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "gc.auto=0"]
    subprocess.run(["git", *who, *args], cwd=root, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make(root, files):
    """A project of so many files, a hundred in each folder."""
    for n in range(files):
        folder = os.path.join(root, f"d{n // 10_000}", f"e{n // 100}")
        if n % 100 == 0:
            os.makedirs(folder)
        with open(os.path.join(folder, f"f{n}.txt"), "w") as file:
            file.write(f"line {n}\n" * 20)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")


def timed(agent, text, calls=()):
    began = time.perf_counter()
    agent.prompt(text, calls)
    return (time.perf_counter() - began) * 1000


def agent(home, root, port, mechanism, snapshot):
    settings = {"snapshot": snapshot, "sandbox": "auto", "permission": {"bash": "allow", "edit": "allow"}}
    return acp.Agent(BINARY, home, root, port, settings, env={"ADJUTANT_SANDBOX_DISABLE": OTHERS[mechanism]})


def changes(port, size, mechanism):
    """Ten changes of a file each, and an undo of the last one."""
    rows = {}
    for snapshot in (False, True):
        with tempfile.TemporaryDirectory() as home:
            root = os.path.join(home, "project")
            os.mkdir(root)
            make(root, size)
            one = agent(home, root, port, mechanism, snapshot)
            timed(one, "Warm up.", [bash("true > /dev/null; cd .")])
            times = [timed(one, "Go.", [bash(f"echo {n} >> d0/e{n}/f{n * 100}.txt")]) for n in range(min(10, size // 100))]
            began = time.perf_counter()
            one.ask("session/prompt", {"sessionId": one.session, "prompt": [{"type": "text", "text": "/undo"}]})
            undo = (time.perf_counter() - began) * 1000
            one.end()
            rows[snapshot] = (times[0], times[-1], undo)
    (first, last, _), (first_kept, last_kept, undo) = rows[False], rows[True]
    print(f"{mechanism:9} {size:7} files: first {first:6.1f} → {first_kept:6.1f}, tenth {last:6.1f} → {last_kept:6.1f}, undo {undo:6.1f}", flush=True)


def sweeps(port, mechanism):
    """Ten thousand files written, and another branch checked out."""
    # Into a new directory each time: ext4 searches long for an inode after many were freed.
    write = "mkdir out{run} && cd out{run} && for d in $(seq 100); do mkdir $d; for f in $(seq 100); do echo $d $f > $d/$f; done; done"
    checkout = "git checkout -q other && git checkout -q main && git checkout -q other"
    rows = {}
    for snapshot in (False, True):
        writes, checkouts = [], []
        with tempfile.TemporaryDirectory() as home:
            root = os.path.join(home, "project")
            os.mkdir(root)
            make(root, 10_000)
            git(root, "checkout", "-qb", "other")
            for folder, _, names in os.walk(root):
                if "/.git" not in folder:
                    for name in names:
                        with open(os.path.join(folder, name), "a") as file:
                            file.write("other\n")
            git(root, "commit", "-qam", "other")
            git(root, "checkout", "-q", "main")
            one = agent(home, root, port, mechanism, snapshot)
            timed(one, "Warm up.", [bash("true > /dev/null; cd .")])
            for run in range(RUNS):
                writes.append(timed(one, "Go.", [bash(write.replace("{run}", str(run)))]))
                checkouts.append(timed(one, "Go.", [bash(checkout)]))
                git(root, "checkout", "-q", "main")
            one.end()
        rows[snapshot] = (statistics.median(writes), statistics.median(checkouts))
    for what, without, kept in zip(("10,000 files written", "three checkouts of 10,000 files"), rows[False], rows[True]):
        print(f"{mechanism:9} {what}: {without:7.0f} → {kept:7.0f} ({(kept / without - 1) * 100:+.0f} %)", flush=True)


def pairs(port):
    """The same changes with undo and without it, in one tree, in turns."""
    with tempfile.TemporaryDirectory() as root:
        make(root, EACH)
        for mechanism in MECHANISMS:
            with tempfile.TemporaryDirectory() as plain, tempfile.TemporaryDirectory() as keeping:
                agents = [agent(plain, root, port, mechanism, False), agent(keeping, root, port, mechanism, True)]
                for one in agents:
                    timed(one, "Warm up.", [bash("true > /dev/null; cd .")])
                changed, idle = ([], []), ([], [])
                for run in range(PAIRS):
                    number = run * 100 % EACH
                    path = f"d{number // 10_000}/e{number // 100}/f{number}.txt"
                    # The first of the two finds the file uncached.
                    order = (0, 1) if run % 2 else (1, 0)
                    for which in order:
                        changed[which].append(timed(agents[which], "Go.", [bash(f"echo {run} >> {path}")]))
                    for which in order:
                        idle[which].append(timed(agents[which], "Go.", [bash("true > /dev/null; cd .")]))
                for one in agents:
                    one.end()
            for what, (without, kept) in (("change of a file", changed), ("no change", idle)):
                more = statistics.median(b - a for a, b in zip(without, kept))
                print(f"{mechanism:9} {EACH} files, {what}: {statistics.median(without):.1f} → {statistics.median(kept):.1f}, difference {more:+.1f}", flush=True)


def main():
    port = acp.serve()
    pairs(port)
    for mechanism in MECHANISMS:
        sweeps(port, mechanism)
        for size in SIZES:
            changes(port, size, mechanism)


if __name__ == "__main__":
    main()

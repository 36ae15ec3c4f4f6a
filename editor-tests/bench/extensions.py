"""The cost of plugins:

    python3 editor-tests/bench/extensions.py target/release/adjutant

The first use of the host is the delay of the first request of a session to the model with a plugin compared with none,
minus the time that the runtime takes to do nothing. Then a turn of many steps, each a call of `read`: the time from the
end of the model's answer to the next request, without plugins, with one that has no hook for steps, and with
`tool.execute.before` and `tool.execute.after`. Half of the difference between the last two is a hook's round trip. The
kinds alternate, so that other load of the machine affects all of them alike. With the user's own plugin and one of the
project there are two hosts.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from acp import Agent, serve

BINARY = os.path.abspath(sys.argv[1])
ROUNDS = int(os.environ.get("ROUNDS", "15"))
STEPS = int(os.environ.get("STEPS", "200"))

NOTHING = "export const P = async () => ({})"
HOOKS = """export const P = async () => ({
  "tool.execute.before": async (input, output) => { output.args = { ...output.args } },
  "tool.execute.after": async (input, output) => { output.output += "" },
})"""


class Session:
    """One session of one process, with these plugins of the user's and of the project."""

    def __init__(self, port, own=None, project=None):
        self.home = tempfile.mkdtemp(prefix="adjutant-bench-")
        root = os.path.join(self.home, "project")
        os.makedirs(os.path.join(root, ".git"))
        with open(os.path.join(root, "big.txt"), "w") as file:
            file.writelines(f"line {n}\n" for n in range(STEPS + 2))
        for folder, plugin in [(os.path.join(self.home, ".config", "opencode"), own), (os.path.join(root, ".opencode"), project)]:
            if plugin:
                os.makedirs(os.path.join(folder, "plugin"))
                with open(os.path.join(folder, "plugin", "p.js"), "w") as file:
                    file.write(plugin)
        self.agent = Agent(BINARY, self.home, root, port, {"budget": {"steps": STEPS + 10}})

    def prompt(self, steps):
        """The times of the prompt, of the request to the model, and of the response."""
        line = lambda n: ("read", {"filePath": "big.txt", "offset": n, "limit": 1})
        return self.agent.prompt("Read.", [line(n) for n in range(steps, 0, -1)])

    def end(self):
        self.agent.end()
        shutil.rmtree(self.home, ignore_errors=True)


def first(port, **plugins):
    """From the first prompt to the first request, in ms."""
    session = Session(port, **plugins)
    began, asked, _ = session.prompt(0)
    session.end()
    return (asked[0] - began) * 1000


def gaps(port, **plugins):
    """The median step of a turn, in ms."""
    session = Session(port, **plugins)
    session.prompt(0)
    _, asked, said = session.prompt(STEPS)
    session.end()
    return statistics.median((later - before) * 1000 for before, later in zip(said, asked[1:]))


def runtime():
    """The time that the runtime takes to do nothing, in ms."""
    program, options = (shutil.which("bun"), ["-e", "0"]) if shutil.which("bun") else (shutil.which("node"), ["-e", "0"])
    began = time.perf_counter()
    subprocess.run([program, *options], check=True)
    return os.path.basename(program), (time.perf_counter() - began) * 1000


def told(name, times):
    times = sorted(times)
    print(f"  {name}: {statistics.median(times):.2f} ms (from {times[0]:.2f} to {times[-1]:.2f})")
    return statistics.median(times)


def main():
    port = serve()
    kinds = [("without plugins", {}), ("with one", {"project": NOTHING}), ("with one of each origin", {"project": NOTHING, "own": NOTHING})]
    times, bare = {name: [] for name, _ in kinds}, []
    for _ in range(ROUNDS):
        for name, plugins in kinds:
            times[name].append(first(port, **plugins))
        program, took = runtime()
        bare.append(took)
    print(f"from the first prompt to the first request, {ROUNDS} times each:")
    told(f"{program} -e 0", bare)
    medians = [told(name, times[name]) for name, _ in kinds]
    print(f"  so the first use of a host takes {medians[1] - medians[0]:.0f} ms, of two {medians[2] - medians[0]:.0f} ms")
    kinds = [
        ("without plugins", {}),
        ("with one that hooks into no step", {"project": NOTHING}),
        ("with tool.execute.before and after", {"project": HOOKS}),
        ("with the same in both hosts", {"project": HOOKS, "own": HOOKS}),
    ]
    times = {name: [] for name, _ in kinds}
    for _ in range(max(3, ROUNDS // 3)):
        for name, plugins in kinds:
            times[name].append(gaps(port, **plugins))
    print(f"a step, medians of {STEPS} in {max(3, ROUNDS // 3)} sessions each:")
    medians = [told(name, times[name]) for name, _ in kinds]
    print(f"  so both hooks take {medians[2] - medians[1]:.2f} ms a step, one {(medians[2] - medians[1]) / 2:.2f} ms")


main()

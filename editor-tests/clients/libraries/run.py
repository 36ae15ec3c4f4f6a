"""acpbox, a gateway with the API of OpenAI: python run.py path/to/adjutant"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

binary = sys.argv[1]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Gateway:
    """The gateway with adjutant behind it, in an empty home and project."""

    def __init__(self, root):
        home, self.project = os.path.join(root, "home"), os.path.join(root, "project")
        settings = os.path.join(home, ".config", "adjutant")
        for folder in (settings, self.project):
            os.makedirs(folder)
        with open(os.path.join(settings, "adjutant.json"), "w") as file:
            json.dump({"model": "offline/offline", "permission": {"*": "allow"}}, file)
        port = free_port()
        self.base = f"http://127.0.0.1:{port}/v1"
        env = {
            "HOME": home, "PATH": os.environ["PATH"], "TMPDIR": root, "ADJUTANT_DISABLE_TITLES": "1",
            "ACPBOX_ACP_COMMAND": json.dumps([binary, "acp"]), "ACPBOX_ACP_WORKSPACE": self.project,
            "ACPBOX_GATEWAY_HOST": "127.0.0.1", "ACPBOX_GATEWAY_PORT": str(port),
        }
        program = os.path.join(os.path.dirname(sys.executable), "acpbox")
        self.process = subprocess.Popen([program], env=env, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def wait(self):
        for _ in range(300):
            try:
                return self.ask("/models")
            except OSError:
                assert self.process.poll() is None, "the gateway has ended"
                time.sleep(0.1)
        raise AssertionError("the gateway does not answer")

    def chat(self, text, **more):
        return self.ask("/chat/completions", {"model": "build", "messages": [{"role": "user", "content": text}], **more})

    def command(self, text):
        """The only command of a response, as the gateway sums it up."""
        steps = json.loads(self.ask("/responses", {"model": "build", "input": text}))["acp"]["steps"]
        (command,) = [step for step in steps if step["type"] == "command"]
        return command


def models(gateway):
    listed = [model["id"] for model in json.loads(gateway.wait())["data"]]
    assert {"build", "plan"} <= set(listed), listed


def printed_once(gateway):
    command = gateway.command("run `printf '%s\\n' on ce | paste -sd -`")
    assert command["output"].count("on-ce") == 1, command


def exit_code(gateway):
    command = gateway.command("run `exit 3`")
    assert command["exit_code"] == 3, command


def streamed(gateway):
    lines = gateway.chat("run `echo streamed`", stream=True).splitlines()
    assert "data: [DONE]" in lines, lines[-3:]
    assert any("streamed" in line for line in lines)


checks = [
    ("acpbox lists the modes as models", models),
    ("acpbox shows the output of a command once", printed_once),
    ("acpbox shows the exit code", exit_code),
    ("acpbox streams", streamed),
]
failed = 0
with tempfile.TemporaryDirectory(prefix="adjutant-client-") as root:
    gateway = Gateway(os.path.realpath(root))
    try:
        for name, check in checks:
            try:
                check(gateway)
                print(f"ok    {name}")
            except Exception as error:
                failed += 1
                print(f"FAIL  {name}\n      {error!r}")
    finally:
        gateway.process.terminate()
        gateway.process.wait()
print(f"{len(checks) - failed} passed, {failed} failed")
sys.exit(failed > 0)

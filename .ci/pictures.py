"""Draws the pictures of the manual: pictures.py ADJUTANT FOLDER [--check]

Runs the program on a pseudo-terminal of 80 columns, with the offline model and an empty home, and writes the screen of
each scene as FOLDER/NAME.svg. With --check, only compares. Needs the packages pyte (the screen) and rich (the SVG):

    python3 -m venv target/pictures && target/pictures/bin/pip install pyte==0.8.2 rich==15.0.0
    target/pictures/bin/python .ci/pictures.py target/debug/adjutant docs/pictures
"""

import fcntl
import itertools
import json
import os
import pathlib
import pty
import re
import signal
import struct
import sys
import tempfile
import termios

import pyte
import rich.console
import rich.style
import rich.terminal_theme
import rich.text

COLUMNS = 80
# More than any scene has, so that nothing scrolls away.
ROWS = 100
# The id of a session is another one in each run.
SESSION = "ses_01a226f387110000LbvFvcoCGm"
# Seconds after which a scene has failed.
LIMIT = 60

BILL = '''\
def total(items, refunds):
    """Returns the amount to pay, in cents."""
    total = sum(item.price for item in items)
    for refund in refunds:
        total += refund
    return total
'''

# The name, the settings of the user, and the commands: each as it is typed, with the answers to its questions.
SCENES = [
    (
        "run",
        {"permission": {"edit": "ask"}},
        [("adjutant run 'replace `total += refund` with `total -= refund` in bill.py'", ["y"])],
    ),
    (
        "explain",
        {"permission": {"bash": {"git push*": "ask", "git push --force*": "deny"}}},
        [
            ("adjutant permissions explain --sandbox workspace 'git add -A && git push'", []),
        ],
    ),
]

THEME = rich.terminal_theme.TerminalTheme(
    (24, 26, 31),
    (214, 217, 224),
    [(24, 26, 31), (239, 110, 110), (126, 199, 129), (226, 185, 108), (106, 163, 242), (198, 139, 231), (86, 194, 208), (214, 217, 224)],
    [(125, 131, 145), (239, 110, 110), (126, 199, 129), (226, 185, 108), (106, 163, 242), (198, 139, 231), (86, 194, 208), (255, 255, 255)],
)

# As rich's own frame, but without fonts from the network.
FRAME = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def run(program, typed, answers, project, home, screen):
    """Runs a command line in a shell, feeds the screen with its output, and types an answer at each question."""
    stream = pyte.ByteStream(screen)
    stream.feed(b"\x1b[1m$\x1b[0m " + typed.encode() + b"\r\n")
    environment = {
        "HOME": str(home),
        "PATH": f"{program.parent}:/usr/local/bin:/usr/bin:/bin",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "ADJUTANT_DISABLE_MODELS_FETCH": "1",
        "ADJUTANT_LOCAL_SERVERS": "none",
    }
    child, ours = pty.fork()
    if child == 0:
        os.chdir(project)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.execve("/bin/sh", ["sh", "-c", typed], environment)
    answers = list(answers)
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the end of a terminal
            break
        if not piece:
            break
        # The screen knows no faint text; grey is how terminals show it.
        stream.feed(piece.replace(b"\x1b[2m", b"\x1b[90m"))
        line = screen.display[screen.cursor.y].rstrip()
        if answers and re.search(r"(>|\[[a-z?/]+\])$", line):
            os.write(ours, answers.pop(0).encode() + b"\n")
    os.close(ours)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if answers or code != 0:
        sys.exit(f"{typed}: code {code}, not asked: {answers}\n" + "\n".join(screen.display).rstrip())


def style(cell):
    colours = {"default": None, "brown": "yellow", "brightblack": "bright_black", "brightbrown": "bright_yellow"}

    def colour(name):
        name = colours.get(name, name)
        return f"#{name}" if name and re.fullmatch("[0-9a-f]{6}", name) else name

    return rich.style.Style(
        color=colour(cell.fg),
        bgcolor=colour(cell.bg),
        bold=cell.bold,
        italic=cell.italics,
        underline=cell.underscore,
        strike=cell.strikethrough,
        reverse=cell.reverse,
    )


def drawn(name, screen):
    """Returns the screen as an SVG."""
    last = max(y for y, line in enumerate(screen.display) if line.strip())
    with open(os.devnull, "w") as nowhere:
        console = rich.console.Console(
            record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor"
        )
        # One more, for a margin at the bottom.
        for y in range(last + 2):
            line = rich.text.Text(no_wrap=True)
            cells = [screen.buffer[y][x] for x in range(COLUMNS)]
            for look, group in itertools.groupby(cells, style):
                line.append("".join(cell.data for cell in group), look)
            line.rstrip()
            if line.plain.startswith("session ses_"):
                line = rich.text.Text(f"session {SESSION}")
            console.print(line, soft_wrap=True)
        svg = console.export_svg(title="shop", theme=THEME, code_format=FRAME, unique_id=name)
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


def scene(program, settings, commands):
    """Returns the screen after the commands of a scene."""
    with tempfile.TemporaryDirectory() as directory:
        home = pathlib.Path(directory, "home")
        project = home / "shop"
        project.mkdir(parents=True)
        (project / "bill.py").write_text(BILL)
        own = home / ".config/adjutant/adjutant.json"
        own.parent.mkdir(parents=True)
        own.write_text(json.dumps({"model": "offline/offline", **settings}))
        screen = pyte.Screen(COLUMNS, ROWS)
        for typed, answers in commands:
            run(program, typed, answers, project, home, screen)
        return screen


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    folder = pathlib.Path(sys.argv[2])
    is_check = "--check" in sys.argv[3:]
    signal.alarm(LIMIT)
    different = []
    for name, settings, commands in SCENES:
        screen = scene(program, settings, commands)
        svg = drawn(name, screen)
        file = folder / f"{name}.svg"
        if not is_check:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text(svg)
        elif not file.exists() or file.read_text() != svg:
            shown = "\n".join(line.rstrip() for line in screen.display).rstrip()
            different.append(f"{file} is not what the program shows now:\n{shown}")
    if different:
        sys.exit("\n".join(different) + f"\nTo draw them again: see {sys.argv[0]}")


if __name__ == "__main__":
    main()

"""Writes the data of `data.mjs` as the fixture of the tests that run without OpenCode: the tables of its database that
hold sessions, as SQL, and the exports, with the directory of the project replaced by one that does not exist, and dates
three years earlier, so that no test depends on the date.

python3 dump.py DIRECTORY ../../fixtures/opencode
"""
import pathlib
import re
import sqlite3
import sys

made, target = map(pathlib.Path, sys.argv[1:])
project = str((made / "project").resolve())


def neutral(text):
    return re.sub(r"\b17(\d{11})\b", r"16\1", text.replace(project, "/harbour/project"))


tables = ["project", "session", "message", "part", "todo", "session_message"]
connection = sqlite3.connect(made / "home/.local/share/opencode/opencode.db")
# The rows come in the order of the tables' names.
lines = ["PRAGMA foreign_keys = OFF;"]
for table in tables:
    (schema,) = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", [table]).fetchone()
    lines.append(schema + ";")
for line in connection.iterdump():
    if any(line.startswith(f'INSERT INTO "{table}"') for table in tables):
        lines.append(line)
target.mkdir(parents=True, exist_ok=True)
(target / "opencode.sql").write_text(neutral("\n".join(lines)) + "\n")
for export in (made / "exports").glob("*.json"):
    (target / export.name).write_text(neutral(export.read_text()))

// OpenCode's own data: node run.mjs path/to/adjutant
//
// OpenCode holds two conversations with a mock provider; adjutant imports its database while it may still be open, and
// the output of `opencode export`, and reads both back.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { place, run } from "../check.mjs";
import { make } from "./data.mjs";

const [binary] = process.argv.slice(2);
const { home, project, env } = place();
const made = await make(join(home, "made"), import.meta.dirname);
const { first, second } = made.sessions;
const adjutant = (...words) => execFileSync(binary, words, { cwd: project, env, encoding: "utf8" });
const data = join(made.home, ".local/share/opencode");

const passed = await run([
  ["the data directory is imported", async () => {
    const printed = adjutant("sessions", "import", data);
    assert.match(printed, /imported 2 sessions and 1 of subagents/);
    assert.match(adjutant("sessions", "import", data), /3 sessions had been imported before/);
  }],
  ["the conversations are read back", async () => {
    const shown = adjutant("sessions", "show", first);
    for (const text of ["lantern file", "Edit lantern.txt", "The survey counted seven boats.", "(attached: dot.png)", "Delegated: "]) {
      assert.ok(shown.includes(text), `${text}: ${shown}`);
    }
    assert.ok(!adjutant("sessions", "show", second).includes("taken back"));
  }],
  ["nothing but states for undo is left out", async () => {
    adjutant("sessions", "delete", first, second);
    const printed = adjutant("sessions", "import", join(data, "opencode.db"));
    assert.match(printed, /not imported: states of files for OpenCode's undo \(\d+\)\n$/);
  }],
  ["an export has the same messages", async () => {
    mkdirSync(join(home, "out"));
    const own = (id, name) => {
      const file = join(home, "out", name);
      adjutant("sessions", "export", id, "-o", file);
      return JSON.parse(readFileSync(file, "utf8"));
    };
    const stored = own(first, "stored.json");
    adjutant("sessions", "delete", first);
    adjutant("sessions", "import", join(made.exports, "first.json"));
    const exported = own(first, "exported.json");
    assert.deepEqual(exported.messages.map((message) => message.parts), stored.messages.map((message) => message.parts));
  }],
]);
process.exit(passed ? 0 : 1);

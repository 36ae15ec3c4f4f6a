// acpx, a command-line client: node run.mjs path/to/adjutant
//
// The offline model understands plain orders, so everything here happens without a provider.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { place, run, within } from "../check.mjs";

const [binary] = process.argv.slice(2);
const { project, env } = place();
const program = join(dirname(fileURLToPath(import.meta.url)), "node_modules", ".bin", "acpx");
const file = (name) => join(project, name);

/** Starts acpx with adjutant as its agent. */
function acpx(...words) {
  // acpx keeps the agent warm between commands; a second is enough here.
  const common = ["--agent", `${binary} acp`, "--cwd", project, "--ttl", "1"];
  const child = spawn(program, [...common, ...words], { env, stdio: ["ignore", "pipe", "pipe"] });
  const process = { child, out: "", err: "" };
  child.stdout.on("data", (data) => (process.out += data));
  child.stderr.on("data", (data) => (process.err += data));
  process.end = within(60_000, new Promise((resolve) => child.once("close", (code) => resolve(code))));
  return process;
}

/** Runs acpx to its end; gives back what it printed. */
async function done(...words) {
  const process = acpx(...words);
  const code = await process.end;
  return { code, out: process.out, all: `${process.out}\n${process.err}` };
}

async function well(...words) {
  const { code, out, all } = await done(...words);
  assert.equal(code, 0, all);
  return out;
}

/** Waits until something is so. */
async function until(so) {
  for (let tries = 0; tries < 200; tries += 1) {
    if (so()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("it never came to that");
}

const checks = [
  ["is 0.19 or newer", async () => {
    const [major, minor] = (await well("--version")).trim().split(".").map(Number);
    assert.ok(major > 0 || minor >= 19);
  }],
  ["writes a file with permission", async () => {
    const out = await well("--approve-all", "exec", "create `a.txt` with `hello`");
    assert.equal(readFileSync(file("a.txt"), "utf8").trim(), "hello", out);
  }],
  ["is denied", async () => {
    // Exit codes differ with the kind of refusal; what counts is that nothing was written.
    await done("--deny-all", "exec", "create `b.txt` with `hello`");
    assert.ok(!existsSync(file("b.txt")));
  }],
  ["edits", async () => {
    const out = await well("--approve-all", "exec", "replace `hello` with `bye` in `a.txt`");
    assert.equal(readFileSync(file("a.txt"), "utf8").trim(), "bye", out);
  }],
  ["runs a command", async () => {
    const out = await well("--approve-all", "--format", "json", "exec", "run `echo from the shell`");
    assert.ok(out.includes("from the shell"), out);
  }],
  ["opens a session that stays", async () => {
    await well("sessions", "new");
    const out = await well("--approve-all", "prompt", "read a.txt");
    assert.ok(out.includes("bye"), out);
  }],
  ["cancels a long command", async () => {
    const turn = acpx("--approve-all", "prompt", "run `sleep 67`");
    await until(() => turn.out.includes("sleep 67"));
    await well("cancel");
    await turn.end;
    assert.ok(/cancel/i.test(turn.out + turn.err), turn.out + turn.err);
  }],
  ["works on after the cancel", async () => {
    const out = await well("--approve-all", "prompt", "list .");
    assert.ok(out.includes("a.txt"), out);
  }],
  ["changes the mode", () => well("set-mode", "plan")],
  ["lists the session, and takes it up again in another process", async () => {
    const list = async () => JSON.parse(await well("--format", "json", "sessions", "list")).sessions;
    await well("sessions", "close");
    const [session] = (await list()).filter((session) => session.title?.startsWith("Read"));
    assert.ok(session, JSON.stringify(await list()));
    await well("sessions", "new", "--resume-session", session.sessionId);
    const out = await well("--approve-all", "prompt", "read a.txt");
    assert.ok(out.includes("bye"), out);
  }],
];

process.exit((await run(checks)) ? 0 : 1);

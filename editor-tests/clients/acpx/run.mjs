// acpx, a command-line client: node run.mjs path/to/adjutant
//
// The offline model follows simple instructions, so everything here happens without a provider.

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

/**
 * Runs acpx to its end, and returns its output. acpx refuses a command at the end of that second itself, without a
 * message to adjutant, and documents that it may be repeated.
 */
async function done(...words) {
  for (;;) {
    const process = acpx(...words);
    const code = await process.end;
    const all = `${process.out}\n${process.err}`;
    if (code === 0 || !all.includes("Queue owner is shutting down")) return { code, out: process.out, all };
  }
}

async function well(...words) {
  const { code, out, all } = await done(...words);
  assert.equal(code, 0, all);
  return out;
}

/** Forks a session through adjutant itself, because acpx has no command for it. */
async function forked(sessionId) {
  const agent = spawn(binary, ["acp"], { cwd: project, env, stdio: ["pipe", "pipe", "inherit"] });
  let out = "";
  agent.stdout.on("data", (data) => (out += data));
  const gone = new Promise((resolve) => agent.once("close", resolve));
  const ask = (id, method, params) => agent.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
  ask(1, "initialize", { protocolVersion: 1 });
  ask(2, "session/fork", { sessionId, cwd: project });
  const answer = () => out.split("\n").slice(0, -1).map((line) => JSON.parse(line)).find((m) => m.id === 2);
  await until(answer);
  agent.stdin.end();
  await within(10_000, gone);
  assert.ok(answer().result, JSON.stringify(answer()));
  return answer().result.sessionId;
}

/** Waits until a condition is true. */
async function until(so) {
  for (let tries = 0; tries < 600; tries += 1) {
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
    // Exit codes differ with the kind of refusal; the check is that nothing was written.
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
  ["prints the result of a command once", async () => {
    const out = await well("--approve-all", "exec", "run `printf '%s\\n' on ce | paste -sd -`");
    assert.equal(out.match(/^ {4}on-ce$/gm)?.length, 1, out);
  }],
  ["opens a session that stays", async () => {
    await well("sessions", "new");
    const out = await well("--approve-all", "prompt", "read a.txt");
    assert.ok(out.includes("bye"), out);
  }],
  ["undoes, redoes and goes on in a fork, files included", async () => {
    const content = () => readFileSync(file("way.txt"), "utf8").trim();
    const say = (words) => well("--approve-all", "prompt", words);
    await say("create `way.txt` with `north`");
    await say("replace `north` with `south` in `way.txt`");
    await say("run `echo more >> way.txt`");
    assert.equal(content(), "south\nmore");
    assert.ok((await say("/undo")).includes("way.txt"));
    await say("/undo");
    assert.equal(content(), "north");
    await say("/redo");
    assert.equal(content(), "south");
    const { sessions } = JSON.parse(await well("--format", "json", "sessions", "list"));
    const [current] = sessions;
    await well("sessions", "close");
    const fork = await forked(current.sessionId);
    await well("sessions", "new", "--resume-session", fork);
    await say("replace `south` with `west` in `way.txt`");
    assert.equal(content(), "west");
    await say("/undo");
    assert.equal(content(), "south");
    // Back to the first one, which can still redo.
    await well("sessions", "close");
    await well("sessions", "new", "--resume-session", current.sessionId);
    await say("/redo");
    assert.equal(content(), "south\nmore");
  }],
  ["cancels a long command", async () => {
    let turn;
    const isRefused = () => `${turn.out}\n${turn.err}`.includes("Queue owner is shutting down");
    do {
      turn = acpx("--approve-all", "prompt", "run `sleep 67`");
      await until(() => turn.out.includes("sleep 67") || isRefused());
    } while (isRefused());
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

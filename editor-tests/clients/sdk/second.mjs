// The TypeScript SDK as a client that speaks version 2, a draft: node second.mjs path/to/adjutant
//
// The SDK validates the messages that it receives. The offline model follows simple instructions, so everything here
// happens without a provider.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";

import * as acp from "@agentclientprotocol/sdk/experimental/v2/unstable";

import { place, run, within } from "../check.mjs";

const [binary] = process.argv.slice(2);
const { project, env } = place();
const file = (name) => join(project, name);
const { session, initialize, auth } = acp.methods.agent;

/** An editor that answers questions with the result of `answer`, and records the updates. */
function connect() {
  const agent = spawn(binary, ["acp", "--acp-v2"], { cwd: project, env, stdio: ["pipe", "pipe", "pipe"] });
  const editor = { agent, updates: [], questions: [], answer: "allow_once", stderr: "", wake: () => {} };
  agent.stderr.on("data", (data) => (editor.stderr += data));
  const connection = acp
    .client({ name: "sdk-client" })
    .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
      editor.questions.push(params);
      const option = params.options.find((option) => option.kind === editor.answer);
      return { outcome: { outcome: "selected", optionId: option.optionId } };
    })
    .onNotification(acp.methods.client.session.update, ({ params }) => {
      editor.updates.push(params.update);
      editor.wake();
    })
    .connect(acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)));
  editor.request = (method, params) => connection.agent.request(method, params);
  editor.notify = (method, params) => connection.agent.notify(method, params);
  /** Waits for an update that matches. */
  editor.update = (fits) =>
    within(
      20_000,
      new Promise((resolve) => {
        editor.wake = () => editor.updates.some(fits) && resolve(editor.updates.find(fits));
        editor.wake();
      }),
    );
  editor.hello = () =>
    editor.request(initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      info: { name: "sdk-client", version: "1" },
      capabilities: {},
    });
  editor.leave = async () => {
    const left = new Promise((resolve) => agent.once("exit", (code) => resolve(code)));
    agent.stdin.end();
    assert.equal(await within(5_000, left), 0, "the exit code");
    assert.equal(editor.stderr, "", "stderr");
  };
  return editor;
}

let editor;
let sessionId;

const idle = (u) => u.sessionUpdate === "state_update" && u.state === "idle" && u.stopReason;

/** Sends a prompt, and waits for the end of the turn. */
async function say(words, answer = "allow_once") {
  Object.assign(editor, { updates: [], questions: [], answer });
  const { messageId } = await editor.request(session.prompt, { sessionId, prompt: [{ type: "text", text: words }] });
  assert.ok(messageId, "the message has an id");
  const { stopReason } = await editor.update(idle);
  const { updates, questions } = editor;
  const said = updates.filter((u) => u.sessionUpdate === "agent_message_chunk").map((u) => u.content.text ?? "");
  const status = (status) => updates.filter((u) => u.sessionUpdate === "tool_call_update" && u.status === status);
  return { stopReason, said: said.join(""), updates, questions, status };
}

const checks = [
  ["shakes hands", async () => {
    editor = connect();
    const hello = await editor.hello();
    assert.equal(hello.protocolVersion, 2);
    assert.equal(hello.info.name, "adjutant");
    assert.ok(hello.capabilities.session.fork);
  }],
  ["opens a session", async () => {
    const opened = await editor.request(session.new, { cwd: project, mcpServers: [] });
    ({ sessionId } = opened);
    assert.ok(opened.configOptions.some((option) => option.configId === "approvals"));
    assert.ok(opened.availableCommands.some((command) => command.name === "undo"));
  }],
  ["writes a file with permission", async () => {
    const { stopReason, questions, updates } = await say("create `a.txt` with `hello`");
    assert.equal(stopReason, "end_turn");
    assert.equal(questions.length, 1);
    assert.ok(questions[0].title && questions[0].description);
    assert.ok(updates.some((u) => u.sessionUpdate === "state_update" && u.state === "requires_action"));
    const diffs = updates.flatMap((u) => u.content ?? []).filter((one) => one.type === "diff");
    assert.equal(diffs[0].changes[0].operation, "add", JSON.stringify(diffs));
    assert.equal(readFileSync(file("a.txt"), "utf8").trim(), "hello");
  }],
  ["is denied", async () => {
    const { questions, status } = await say("create `b.txt` with `hello`", "reject_once");
    assert.equal(questions.length, 1);
    assert.equal(status("failed").length, 1);
    assert.ok(!existsSync(file("b.txt")));
  }],
  ["runs a command in a terminal", async () => {
    const { updates } = await say("run `echo from the shell`");
    const chunks = updates.filter((u) => u.sessionUpdate === "terminal_output_chunk").map((u) => u.data);
    const whole = updates.filter((u) => u.sessionUpdate === "terminal_update" && u.output).map((u) => u.output.data);
    const printed = [...chunks, ...whole].map((data) => Buffer.from(data, "base64").toString()).join("");
    assert.ok(printed.includes("from the shell"), JSON.stringify(updates));
    const exit = updates.find((u) => u.sessionUpdate === "terminal_update" && u.exitStatus);
    assert.equal(exit.exitStatus.exitCode, 0);
  }],
  ["asks about everything, where that is chosen", async () => {
    const choose = (value) =>
      editor.request(session.setConfigOption, { sessionId, configId: "approvals", type: "id", value });
    const { configOptions } = await choose("ask");
    assert.equal(configOptions.find((option) => option.configId === "approvals").currentValue, "ask");
    const { questions } = await say("create `c.txt` with `hello`");
    assert.ok(questions[0].options.every((option) => option.kind !== "allow_always"));
    await choose("default");
    await assert.rejects(choose("sometimes"));
  }],
  ["is cancelled", async () => {
    Object.assign(editor, { updates: [], questions: [] });
    await editor.request(session.prompt, { sessionId, prompt: [{ type: "text", text: "run `sleep 60`" }] });
    await editor.update((u) => u.sessionUpdate === "tool_call_update" && u.status === "in_progress");
    await editor.notify(session.cancel, { sessionId });
    assert.equal((await editor.update(idle)).stopReason, "cancelled");
  }],
  ["is resumed, with what was said", async () => {
    await editor.leave();
    editor = connect();
    await editor.hello();
    await editor.request(session.resume, { sessionId, cwd: project, mcpServers: [], replayFrom: { type: "start" } });
    assert.ok(editor.updates.some((u) => u.sessionUpdate.startsWith("user_message")));
    assert.ok(editor.updates.some((u) => u.sessionUpdate === "tool_call_update"));
  }],
  ["is forked, renamed, put aside, listed and deleted", async () => {
    const fork = await editor.request(session.fork, { sessionId, cwd: project });
    await editor.request(session.setTitle, { sessionId: fork.sessionId, title: "Another way" });
    const list = async (params = {}) => (await editor.request(session.list, params)).sessions.map((one) => one.sessionId);
    assert.deepEqual((await list()).sort(), [sessionId, fork.sessionId].sort());
    await editor.request(session.archive, { sessionId: fork.sessionId });
    assert.deepEqual(await list(), [sessionId]);
    assert.deepEqual(await list({ archived: "only" }), [fork.sessionId]);
    await editor.request(session.unarchive, { sessionId: fork.sessionId });
    await editor.request(session.delete, { sessionId: fork.sessionId });
    assert.deepEqual(await list({ archived: "include" }), [sessionId]);
  }],
  ["says who is logged in", async () => {
    assert.equal((await editor.request(auth.status, {})).state, "not_required");
  }],
  ["refuses what it cannot do", async () => {
    await assert.rejects(editor.request(session.resume, { sessionId: "ses_nobody", cwd: project, mcpServers: [] }));
    await assert.rejects(editor.request(session.new, { cwd: "relative", mcpServers: [] }));
  }],
  ["leaves", async () => editor.leave()],
];

process.exit((await run(checks)) ? 0 : 1);

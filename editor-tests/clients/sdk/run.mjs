// The TypeScript SDK as a client: node run.mjs path/to/adjutant
//
// The offline model follows simple instructions, so everything here happens without a provider.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";

import * as acp from "@agentclientprotocol/sdk";

import { countingProvider, place, run, within } from "../check.mjs";

const [binary] = process.argv.slice(2);
const { project, env } = place();
const file = (name) => join(project, name);
const { session, initialize } = acp.methods.agent;

/** An editor that answers questions with the result of `answer`, and records the updates. */
function connect(variables = {}) {
  const options = { cwd: project, env: { ...env, ...variables }, stdio: ["pipe", "pipe", "pipe"] };
  const agent = spawn(binary, ["acp"], options);
  const editor = { agent, updates: [], questions: [], answer: "allow_once", stderr: "", wake: () => {} };
  agent.stderr.on("data", (data) => (editor.stderr += data));
  const app = acp
    .client({ name: "sdk-client" })
    .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
      editor.questions.push(params);
      const option = params.options.find((option) => option.kind === editor.answer);
      return { outcome: { outcome: "selected", optionId: option.optionId } };
    })
    .onNotification(acp.methods.client.session.update, ({ params }) => {
      editor.updates.push(params.update);
      editor.wake();
    });
  const connection = app.connect(acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)));
  editor.request = (method, params) => connection.agent.request(method, params);
  editor.notify = (method, params) => connection.agent.notify(method, params);
  /** Waits for an update that matches. */
  editor.update = (fits) =>
    within(
      20_000,
      new Promise((resolve) => {
        editor.wake = () => editor.updates.some(fits) && resolve();
        editor.wake();
      }),
    );
  editor.hello = () =>
    editor.request(initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
  editor.leave = async () => {
    const left = new Promise((resolve) => agent.once("exit", (code) => resolve(code)));
    agent.stdin.end();
    assert.equal(await within(5_000, left), 0, "the exit code");
    assert.equal(editor.stderr, "", "stderr");
  };
  return editor;
}

const text = (updates, kind = "agent_message_chunk") =>
  updates.filter((u) => u.sessionUpdate === kind).map((u) => u.content.text ?? "").join("");

let editor;
let sessionId;

/** Sends a prompt, and returns the stop reason, the text, the other updates and the questions. */
async function say(words, answer = "allow_once") {
  Object.assign(editor, { updates: [], questions: [], answer });
  const { stopReason } = await editor.request(session.prompt, { sessionId, prompt: [{ type: "text", text: words }] });
  const failed = editor.updates.filter((u) => u.sessionUpdate === "tool_call_update" && u.status === "failed");
  return { stopReason, said: text(editor.updates), updates: editor.updates, questions: editor.questions, failed };
}

const checks = [
  ["shakes hands", async () => {
    editor = connect();
    const hello = await editor.hello();
    assert.equal(hello.protocolVersion, 1);
    assert.equal(hello.agentInfo.name, "adjutant");
    assert.equal(hello.agentCapabilities.loadSession, true);
  }],
  ["opens a session", async () => {
    const opened = await editor.request(session.new, { cwd: project, mcpServers: [] });
    ({ sessionId } = opened);
    assert.ok(opened.modes.availableModes.some((mode) => mode.id === "plan"));
    await editor.update((u) => u.sessionUpdate === "available_commands_update");
  }],
  ["writes a file with permission", async () => {
    const { stopReason, questions } = await say("create `a.txt` with `hello`");
    assert.equal(stopReason, "end_turn");
    assert.equal(questions.length, 1);
    const [diff] = questions[0].toolCall.content;
    assert.deepEqual([diff.type, diff.path, diff.oldText], ["diff", file("a.txt"), null]);
    assert.equal(readFileSync(file("a.txt"), "utf8").trim(), "hello");
  }],
  ["is denied", async () => {
    const { questions, failed } = await say("create `b.txt` with `hello`", "reject_once");
    assert.equal(questions.length, 1);
    assert.equal(failed.length, 1);
    assert.ok(!existsSync(file("b.txt")));
  }],
  ["edits", async () => {
    const { stopReason } = await say("replace `hello` with `bye` in `a.txt`");
    assert.equal(stopReason, "end_turn");
    assert.equal(readFileSync(file("a.txt"), "utf8").trim(), "bye");
  }],
  ["runs a command", async () => {
    const { stopReason, updates, questions } = await say("run `echo from the shell`");
    assert.equal(stopReason, "end_turn");
    assert.equal(questions[0].toolCall.kind, "execute");
    assert.ok(JSON.stringify(updates).includes("from the shell"));
  }],
  ["undoes and redoes, files included", async () => {
    const content = () => readFileSync(file("a.txt"), "utf8").trim();
    await say("run `echo more >> a.txt`");
    await say("replace `bye` with `so long` in `a.txt`");
    assert.equal(content(), "so long\nmore");
    const { said } = await say("/undo");
    assert.ok(said.includes("`a.txt`"), said);
    assert.equal(content(), "bye\nmore");
    await say("/undo");
    assert.equal(content(), "bye");
    await say("/redo");
    await say("/redo");
    assert.equal(content(), "so long\nmore");
    assert.ok((await say("/diff")).said.includes("+so long"));
    await say("/undo");
    await say("/undo");
    assert.equal(content(), "bye");
  }],
  ["goes two ways with a fork, each to its own end", async () => {
    // The original undoes its last edit; the fork, made before, continues with it.
    const content = () => readFileSync(file("way.txt"), "utf8").trim();
    await say("create `way.txt` with `north`");
    await say("replace `north` with `south` in `way.txt`");
    assert.equal(content(), "south");
    const original = sessionId;
    const fork = await editor.request("session/fork", { sessionId, cwd: project });
    assert.notEqual(fork.sessionId, original);
    assert.ok((await say("/undo")).said.includes("`way.txt`"));
    assert.equal(content(), "north");
    sessionId = fork.sessionId;
    // The content that the original restored is not that of the fork: the file is named, and not touched.
    const { said } = await say("/undo");
    assert.ok(said.includes("changed since") || said.includes("No files were changed"), said);
    assert.equal(content(), "north");
    await say("/redo");
    await say("read way.txt");
    await say("replace `north` with `east` in `way.txt`");
    assert.equal(content(), "east");
    await say("/undo");
    assert.equal(content(), "north");
    await say("/redo");
    assert.equal(content(), "east");
    await editor.request(session.delete, { sessionId });
    sessionId = original;
    await say("/redo");
    // The fork has changed the file: the redo does not touch it.
    assert.equal(content(), "east");
  }],
  ["cancels a long command", async () => {
    const turn = say("run `sleep 66`");
    await editor.update((u) => u.sessionUpdate === "tool_call_update" && u.status === "in_progress");
    const start = performance.now();
    await editor.notify(session.cancel, { sessionId });
    const { stopReason, failed } = await turn;
    assert.equal(stopReason, "cancelled");
    assert.equal(failed.length, 1);
    assert.ok(performance.now() - start < 1_000, "it took too long");
  }],
  ["works on after the cancel", async () => {
    const { stopReason, updates } = await say("read a.txt");
    assert.equal(stopReason, "end_turn");
    assert.ok(JSON.stringify(updates).includes("bye"));
  }],
  ["plans without touching anything", async () => {
    await editor.request(session.setMode, { sessionId, modeId: "plan" });
    await say("create `c.txt` with `hello`");
    assert.ok(!existsSync(file("c.txt")));
    await editor.request(session.setMode, { sessionId, modeId: "build" });
  }],
  ["lists the session and loads it in another process", async () => {
    await editor.leave();
    editor = connect();
    await editor.hello();
    const { sessions } = await editor.request(session.list, { cwd: project });
    assert.deepEqual(sessions.map((s) => s.sessionId), [sessionId]);
    assert.ok(sessions[0].updatedAt);
    editor.updates = [];
    await editor.request(session.load, { sessionId, cwd: project, mcpServers: [] });
    assert.ok(text(editor.updates, "user_message_chunk").includes("create `a.txt` with `hello`"));
    assert.ok(editor.updates.some((u) => u.sessionUpdate === "tool_call"));
  }],
  ["says that an unknown session is unknown", async () => {
    const load = editor.request(session.load, { sessionId: "ses_unknown", cwd: project, mcpServers: [] });
    await assert.rejects(load, (error) => error.code === -32002);
  }],
  ["counts the tokens of a turn", async () => {
    const counted = connect({ ADJUTANT_CONFIG_CONTENT: await countingProvider() });
    await counted.hello();
    const { sessionId } = await counted.request(session.new, { cwd: project, mcpServers: [] });
    const prompt = [{ type: "text", text: "Hello" }];
    const { stopReason, usage } = await counted.request(session.prompt, { sessionId, prompt });
    assert.equal(stopReason, "end_turn");
    assert.equal(text(counted.updates), "Counted.");
    assert.equal(usage?.totalTokens, 123, JSON.stringify(usage));
    await counted.leave();
  }],
  ["leaves when the editor does", () => editor.leave()],
];

process.exit((await run(checks)) ? 0 : 1);

// Libraries that start or reach an agent on behalf of another program: node run.mjs path/to/adjutant
//
// acp-factory and acp-ai-provider start it themselves; use-acp, for React, reaches it through `adjutant serve`. The
// tokens of a turn are checked with acp-factory: acp-ai-provider 0.2.9 reports none, whatever it receives.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { ClientSideConnection, ndJsonStream } from "@agentclientprotocol/sdk";
import { createACPProvider } from "@mcpc-tech/acp-ai-provider";
import { AgentFactory } from "acp-factory";
import { generateText, streamText } from "ai";
import { WebSocket } from "ws";

import { countingProvider, place, run, within } from "../check.mjs";
// Without its hooks, which only React can call.
import { AcpClient } from "./node_modules/use-acp/dist/client/acp-client.js";
import { WebSocketManager } from "./node_modules/use-acp/dist/connection/websocket-manager.js";

const [binary] = process.argv.slice(2);
const { project, env } = place();
// These libraries start the agent with their own environment.
Object.assign(process.env, env);
globalThis.WebSocket ??= WebSocket;

const text = (updates) =>
  updates.filter((u) => u.sessionUpdate === "agent_message_chunk").map((u) => u.content.text ?? "").join("");

/** The updates of a prompt of acp-factory's. */
async function all(prompt) {
  const updates = [];
  for await (const update of prompt) updates.push(update);
  return updates;
}

AgentFactory.register("adjutant", { command: binary, args: ["acp"] });
let agent;
let session;

const provider = () =>
  createACPProvider({ command: binary, args: ["acp"], session: { cwd: project, mcpServers: [] } });

/** Starts a server, and returns its address. */
async function serve() {
  const server = spawn(binary, ["serve", "--listen", "127.0.0.1:0"], { env, stdio: ["ignore", "ignore", "pipe"] });
  process.on("exit", () => server.kill());
  for await (const line of createInterface({ input: server.stderr })) {
    const address = /(ws:\/\/[^/]+\/acp)/.exec(line)?.[1];
    if (address) return address;
  }
  throw new Error("the server does not say where it serves");
}

const checks = [
  ["acp-factory lists modes and models", async () => {
    agent = await AgentFactory.spawn("adjutant", { permissionMode: "auto-approve" });
    session = await agent.createSession(project);
    assert.ok(session.modes.includes("build") && session.modes.includes("plan"), String(session.modes));
    assert.ok(session.models.includes("offline/offline"), String(session.models));
  }],
  ["acp-factory writes a file", async () => {
    await all(session.prompt("create `factory.txt` with `made`"));
    assert.ok(existsSync(join(project, "factory.txt")));
  }],
  ["acp-factory loads a session and forks it", async () => {
    const { id } = session;
    // The library does not wait for the end of the process, which has the session open until then, and
    // passes over an error of a load.
    let loaded, answer = "";
    for (let attempt = 0; attempt < 20 && !answer.includes("offline"); attempt++) {
      await agent.close();
      agent = await AgentFactory.spawn("adjutant", { permissionMode: "auto-approve" });
      loaded = await agent.loadSession(id, project);
      assert.equal(loaded.id, id);
      answer = text(await all(loaded.prompt("/status")));
    }
    assert.ok(answer.includes("offline"), answer);
    assert.ok(loaded.models.includes("offline/offline"), String(loaded.models));
    await agent.close();
  }],
  ["acp-factory is told how many tokens are used", async () => {
    const env = { ADJUTANT_CONFIG_CONTENT: await countingProvider() };
    agent = await AgentFactory.spawn("adjutant", { permissionMode: "auto-approve", env });
    const updates = await all((await agent.createSession(project)).prompt("Hello"));
    await agent.close();
    assert.equal(text(updates), "Counted.");
    const usage = updates.filter((update) => update.sessionUpdate === "usage_update").at(-1);
    assert.equal(usage?.used, 123, JSON.stringify(updates));
    assert.equal(usage.size, 100_000);
  }],
  ["acp-ai-provider answers for the AI SDK", async () => {
    const acp = provider();
    const { text: answer, finishReason } = await generateText({
      model: acp.languageModel(), prompt: "/status", tools: acp.tools,
    });
    assert.ok(answer.includes("offline"), answer);
    assert.equal(finishReason, "stop");
    acp.cleanup?.();
  }],
  ["acp-ai-provider streams, with the calls", async () => {
    const acp = provider();
    const { fullStream } = streamText({
      model: acp.languageModel(), prompt: "run `echo streamed`", tools: acp.tools,
    });
    const kinds = new Set();
    for await (const part of fullStream) {
      assert.notEqual(part.type, "error", JSON.stringify(part));
      kinds.add(part.type);
    }
    assert.ok(kinds.has("text-delta") && kinds.has("finish"), [...kinds].join());
    acp.cleanup?.();
  }],
  ["use-acp connects, and asks for permission", async () => {
    const url = await within(20_000, serve());
    const manager = new WebSocketManager({
      url, onConnectionStateChange: () => {}, onError: (error) => assert.fail(error), reconnectAttempts: 0,
    });
    const { readable, writable } = await manager.connect();
    const updates = [];
    const questions = [];
    const connection = new ClientSideConnection(
      (reached) => {
        const client = new AcpClient(reached, {
          onSessionNotification: ({ update }) => updates.push(update),
          onRequestPermission: (question) => {
            questions.push(question);
            const { optionId } = question.options.find((option) => option.kind === "allow_once");
            const outcome = { outcome: "selected", optionId };
            client.resolvePermission(question.deferredId, { outcome });
          },
        });
        return client;
      },
      ndJsonStream(writable, readable),
    );
    await connection.initialize({ protocolVersion: 1, clientCapabilities: {} });
    const opened = await connection.newSession({ cwd: project, mcpServers: [] });
    assert.ok(opened.models.availableModels.some((model) => model.modelId === "offline/offline"));
    const prompt = [{ type: "text", text: "create `react.txt` with `made`" }];
    const { stopReason } = await connection.prompt({ sessionId: opened.sessionId, prompt });
    assert.equal(stopReason, "end_turn");
    assert.equal(questions.length, 1);
    assert.ok(existsSync(join(project, "react.txt")));
    assert.ok(updates.some((update) => update.sessionUpdate === "tool_call_update"));
    manager.disconnect();
  }],
];

process.exit((await run(checks)) ? 0 : 1);

// The TypeScript SDK's clients for WebSocket and Streamable HTTP, and a server: node remote.mjs path/to/adjutant

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

import * as acp from "@agentclientprotocol/sdk";
import { createHttpStream, MemoryAcpCookieStore } from "@agentclientprotocol/sdk/experimental/http-client";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { WebSocket } from "ws";

import { place, run, within } from "../check.mjs";

const [binary] = process.argv.slice(2);
const { project, env } = place();
const { session, initialize } = acp.methods.agent;

/** Starts a server, and returns its address. */
async function serve() {
  const server = spawn(binary, ["serve", "--listen", "127.0.0.1:0"], { env, stdio: ["ignore", "ignore", "pipe"] });
  process.on("exit", () => server.kill());
  for await (const line of createInterface({ input: server.stderr })) {
    const address = /ws:\/\/([^/]+)\/acp/.exec(line)?.[1];
    if (address) return address;
  }
  throw new Error("the server does not say where it serves");
}

/** An editor over a stream. */
function connect(stream) {
  const editor = { updates: [], questions: [], wake: () => {} };
  const app = acp
    .client({ name: "sdk-client" })
    .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
      editor.questions.push(params);
      const option = params.options.find((option) => option.kind === "allow_once");
      return { outcome: { outcome: "selected", optionId: option.optionId } };
    })
    .onNotification(acp.methods.client.session.update, ({ params }) => {
      editor.updates.push(params.update);
      editor.wake();
    });
  const connection = app.connect(stream);
  editor.request = (method, params) => connection.agent.request(method, params);
  editor.close = () => connection.close?.();
  editor.update = (fits) =>
    within(
      20_000,
      new Promise((resolve) => {
        editor.wake = () => editor.updates.some(fits) && resolve();
        editor.wake();
      }),
    );
  return editor;
}

const said = (updates) =>
  updates.filter((u) => u.sessionUpdate === "agent_message_chunk").map((u) => u.content.text ?? "").join("");

const address = await within(20_000, serve());
const cookieStore = new MemoryAcpCookieStore();
const ways = {
  WebSocket: () => createWebSocketStream(`ws://${address}/acp`, { WebSocket }),
  HTTP: () => createHttpStream(`http://${address}/acp`, { cookieStore }),
};

const checks = Object.entries(ways).flatMap(([way, open]) => {
  let editor;
  let sessionId;
  const file = `${way}.txt`;
  const prompt = (text) => editor.request(session.prompt, { sessionId, prompt: [{ type: "text", text }] });
  return [
    [`${way}: shakes hands`, async () => {
      editor = connect(open());
      const hello = await editor.request(initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
      assert.equal(hello.agentInfo.name, "adjutant");
    }],
    [`${way}: opens a session`, async () => {
      ({ sessionId } = await editor.request(session.new, { cwd: project, mcpServers: [] }));
      await editor.update((u) => u.sessionUpdate === "available_commands_update");
    }],
    [`${way}: asks, and is answered`, async () => {
      const { stopReason } = await prompt(`run \`touch ${file}\``);
      assert.equal(stopReason, "end_turn");
      assert.equal(editor.questions.length, 1);
      assert.ok(existsSync(join(project, file)));
    }],
    [`${way}: comes back to the session`, async () => {
      await editor.close();
      editor = connect(open());
      await editor.request(initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
      // If the server has not noticed that the old connection is gone, a second request takes the session over.
      const load = () => editor.request(session.load, { sessionId, cwd: project, mcpServers: [] });
      await load().catch(load);
      assert.ok(editor.updates.some((u) => u.sessionUpdate === "user_message_chunk"));
      assert.equal((await prompt("hello")).stopReason, "end_turn");
      assert.notEqual(said(editor.updates), "");
    }],
  ];
});

process.exit((await run(checks)) ? 0 : 1);

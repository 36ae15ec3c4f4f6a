// Sends one prompt to adjutant over ACP and prints the answer. Node 22.18 or newer runs it as it is:
//
//     npm install @agentclientprotocol/sdk
//     node client.ts "list src"
//
// Every question is rejected: a script that may change files answers "allow_once" instead.

import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";

import * as acp from "@agentclientprotocol/sdk";

const agent = spawn(process.env.ADJUTANT ?? "adjutant", ["acp"], { stdio: ["pipe", "pipe", "inherit"] });
const { initialize, session } = acp.methods.agent;
const titles = new Map<string, string>();
let gap = "";
let hasText = false;

const client = acp
  .client({ name: "example" })
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    console.error(`\nrejected: ${params.toolCall.title}`);
    const option = params.options.find((option) => option.kind === "reject_once")!;
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  })
  .onNotification(acp.methods.client.session.update, ({ params: { update } }) => {
    if (update.sessionUpdate === "agent_message_chunk" && update.content.type === "text") {
      process.stdout.write(gap + update.content.text);
      gap = "";
      hasText = true;
    }
    if (update.sessionUpdate === "tool_call" || update.sessionUpdate === "tool_call_update") {
      // The title becomes more precise while the call is prepared.
      if (update.title) titles.set(update.toolCallId, update.title);
      if (update.status === "completed" || update.status === "failed") {
        console.error(`[${titles.get(update.toolCallId)}: ${update.status}]`);
      }
      // Text after a call is another paragraph.
      gap = hasText ? "\n\n" : "";
    }
  });

const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout) as ReadableStream);
const connection = client.connect(stream);
await connection.agent.request(initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
const { sessionId } = await connection.agent.request(session.new, { cwd: process.cwd(), mcpServers: [] });
const prompt: acp.ContentBlock[] = [{ type: "text", text: process.argv[2] }];
const answer: acp.PromptResponse = await connection.agent.request(session.prompt, { sessionId, prompt });
console.log();
agent.stdin.end();
process.exitCode = answer.stopReason === "end_turn" ? 0 : 1;

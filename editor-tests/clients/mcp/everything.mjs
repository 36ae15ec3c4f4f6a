// Checks the reference server in a session with an editor: the features that need a turn. A mock model makes the given
// calls; the editor fills in forms and approves all questions.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { place, within } from "../check.mjs";

/** A model that follows a list of calls `{ call, input }` and texts. Records its requests. */
function model(steps) {
  const asked = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (data) => (body += data));
    request.on("end", () => {
      const question = JSON.parse(body);
      asked.push(question);
      // A request on behalf of a server has no tools.
      const step = question.tools?.length ? (steps.shift() ?? "Done.") : "Paris.";
      const called = typeof step !== "string" && {
        tool_calls: [{ index: 0, id: `c${asked.length}`, function: { name: step.call, arguments: JSON.stringify(step.input ?? {}) } }],
      };
      const delta = called || { content: step };
      const chunk = { choices: [{ index: 0, delta, finish_reason: called ? "tool_calls" : "stop" }] };
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(`data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`);
    });
  });
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => resolve({ asked, url: `http://127.0.0.1:${server.address().port}/v1`, server }));
  });
}

/** An editor: sends requests, and answers those of the agent with the results of `answer`. */
function editor(binary, { project, env }, answer) {
  const child = spawn(binary, ["acp"], { cwd: project, env, stdio: ["pipe", "pipe", "inherit"] });
  const [open, heard] = [new Map(), []];
  let [id, rest] = [0, ""];
  const say = (message) => child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  child.stdout.on("data", (data) => {
    const lines = (rest + data).split("\n");
    rest = lines.pop();
    for (const message of lines.filter(Boolean).map((line) => JSON.parse(line))) {
      heard.push(message);
      if (message.method && message.id !== undefined) say({ id: message.id, result: answer(message) });
      else if (open.has(message.id)) open.get(message.id)(message);
    }
  });
  const ask = (method, params) => {
    id += 1;
    const done = new Promise((resolve) => open.set(id, resolve));
    say({ id, method, params });
    return within(30_000, done).then(({ result, error }) => {
      assert.equal(error, undefined, JSON.stringify(error));
      return result;
    });
  };
  const end = () => new Promise((resolve) => {
    child.once("close", resolve);
    child.stdin.end();
  });
  return { ask, heard, end };
}

/** Waits until a condition is true. */
async function until(what, is) {
  for (let n = 0; n < 400; n += 1) {
    if (is()) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error(`waited in vain for ${what}`);
}

/** Checks prompts, resources, sampling, elicitation and the log of the reference server, over any transport. */
export async function session(binary, entry) {
  const here = place();
  here.env.ADJUTANT_LOG = "debug";
  const steps = [
    { call: "it_trigger-elicitation-request" },
    { call: "it_trigger-sampling-request", input: { prompt: "What is the capital of France?", maxTokens: 50 } },
    { call: "read_mcp_resource", input: { server: "it", uri: "demo://resource/dynamic/text/1" } },
    { call: "it_toggle-simulated-logging" },
    { call: "it_toggle-simulated-logging" },
    "Done.",
    "It is sunny.",
    "I have read it.",
  ];
  const { asked, url, server } = await model(steps);
  const provider = { own: { npm: "@ai-sdk/openai-compatible", options: { baseURL: url, apiKey: "k" }, models: { m: {} } } };
  const mcp = { it: { ...entry, sampling: true, log: "debug" } };
  const settings = { model: "own/m", provider, permission: { "*": "allow" }, mcp };
  mkdirSync(join(here.home, ".config", "adjutant"), { recursive: true });
  writeFileSync(join(here.home, ".config", "adjutant", "adjutant.json"), JSON.stringify(settings));
  const questions = [];
  const { ask, heard, end } = editor(binary, here, ({ method, params }) => {
    questions.push({ method, params });
    if (method === "session/request_permission") return { outcome: { outcome: "selected", optionId: "once" } };
    const fields = Object.entries(params.requestedSchema?.properties ?? {});
    const value = (field) => field.default ?? { string: field.oneOf?.[0].const ?? "x", boolean: true, array: [] }[field.type] ?? field.minimum ?? 1;
    const content = Object.fromEntries(fields.map(([key, field]) => [key, field.format ? undefined : value(field)]));
    return { action: "accept", content: JSON.parse(JSON.stringify(content)) };
  });
  try {
    const clientCapabilities = { elicitation: { form: {}, url: {} } };
    await ask("initialize", { protocolVersion: 1, clientCapabilities });
    const { sessionId } = await ask("session/new", { cwd: here.project, mcpServers: [] });
    const commands = () => heard.flatMap((message) => message.params?.update?.availableCommands ?? []).map(({ name }) => name);
    await until("the prompts", () => commands().includes("it:args-prompt"));
    const prompt = (text) => ask("session/prompt", { sessionId, prompt: [{ type: "text", text }] });
    const last = () => JSON.stringify(asked.filter((question) => question.tools?.length).at(-1).messages);

    await prompt("Try them.");
    const ways = questions.map(({ method, params }) => [method, params.message ?? params.toolCall.title].join(" "));
    assert.ok(ways.some((way) => /^elicitation\/create The MCP server it asks: /.test(way)), ways.join("\n"));
    assert.ok(ways.some((way) => way === "session/request_permission it: ask the model"), ways.join("\n"));
    assert.ok(asked.some(({ tools, messages }) => !tools?.length && /capital of France/.test(JSON.stringify(messages))));
    assert.match(last(), /Paris\./);
    assert.match(last(), /demo:\/\/resource\/dynamic\/text\/1/);

    await prompt("/it:args-prompt Paris Texas");
    assert.match(last(), /weather in Paris, Texas/i);

    await prompt("What is in demo://resource/static/document/features.md?");
    assert.match(last(), /Contents of demo:\/\/resource\/static\/document\/features\.md, of the MCP server it/);
  } finally {
    await end();
    server.close();
  }
  const logs = join(here.home, ".local", "state", "adjutant", "log");
  const log = readdirSync(logs).map((name) => readFileSync(join(logs, name), "utf8")).join("");
  assert.match(log, /MCP server it: /);
}

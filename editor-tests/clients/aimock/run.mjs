// aimock, a server that speaks the formats of many providers: node run.mjs path/to/adjutant
//
// A server, not a client: adjutant is driven from its command line and sends this server the requests of each provider.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { LLMock } from "@copilotkit/aimock";

import { place, run, within } from "../check.mjs";

const [binary] = process.argv.slice(2);
const { home, project, env } = place();
env.ADJUTANT_DISABLE_MODELS_FETCH = "1";
writeFileSync(join(project, "note.txt"), "The answer is forty-two.\n");

const mock = new LLMock({ port: 0, chunkSize: 3 });
await mock.start();
const at = mock.url;

// Each protocol, as a provider of the settings. The model's name determines the server's answer.
const protocols = {
  chat: { npm: "@ai-sdk/openai-compatible", base: `${at}/v1` },
  responses: { npm: "@ai-sdk/openai", base: `${at}/v1` },
  messages: { npm: "@ai-sdk/anthropic", base: `${at}/v1` },
  gemini: { npm: "@ai-sdk/google", base: `${at}/v1beta` },
  openrouter: { npm: "@openrouter/ai-sdk-provider", base: `${at}/api/v1` },
  azure: { npm: "@ai-sdk/azure", base: `${at}/openai`, options: { useCompletionUrls: true, useDeploymentBasedUrls: true } },
  vertex: { npm: "@ai-sdk/google-vertex", base: `${at}/v1/projects/p/locations/l/publishers/google` },
};
const models = { m: { reasoning: true, limit: { context: 100000, output: 8000 } } };
const provider = Object.fromEntries(Object.entries(protocols).map(([id, { npm, base, options }]) =>
  [`at-${id}`, { npm, name: id, options: { baseURL: base, apiKey: "mock-key", ...options }, models }]));
mkdirSync(join(home, ".config", "opencode"), { recursive: true });
writeFileSync(join(home, ".config", "opencode", "opencode.json"), JSON.stringify({ provider }));

mock.onMessage("Say hello", { content: "Hello — schön, dass du da bist 🦀.", reasoning: "They want a greeting." });
const read = (name) => ({ name: "read", arguments: JSON.stringify({ filePath: join(project, name) }) });
mock.addFixture({
  match: { userMessage: "Read the notes", hasToolResult: false },
  response: { content: "I shall look.", reasoning: "Two files at once.", toolCalls: [read("note.txt"), read("missing.txt")] },
});
mock.addFixture({
  match: { userMessage: "Read the notes", hasToolResult: true },
  response: { content: "It says forty-two." },
});
mock.addFixture({
  match: { userMessage: "Use the wrong key" },
  response: { error: { message: "Incorrect API key provided", type: "authentication_error", code: "invalid_api_key" }, status: 401 },
});
mock.addFixture({
  match: { userMessage: "Ask too often", sequenceIndex: 0 },
  response: { error: { message: "Slow down", type: "rate_limit_error" }, status: 429, retryAfter: 1 },
});
mock.addFixture({ match: { userMessage: "Ask too often" }, response: { content: "Now there is room." } });

/** Runs one prompt to its end. */
async function ask(id, prompt) {
  const child = spawn(binary, ["run", "--model", `at-${id}/m`, prompt], { cwd: project, env, stdio: ["ignore", "pipe", "pipe"] });
  const said = { out: "", err: "" };
  child.stdout.on("data", (data) => (said.out += data));
  child.stderr.on("data", (data) => (said.err += data));
  said.code = await within(60_000, new Promise((resolve) => child.once("close", resolve)));
  return said;
}

async function well(id, prompt) {
  const { code, out, err } = await ask(id, prompt);
  assert.equal(code, 0, `${out}\n${err}`);
  return out.trim();
}

/** Returns the bodies of the requests since the last call. */
function asked() {
  const bodies = mock.getRequests().map((entry) => JSON.stringify(entry.body));
  mock.clearRequests();
  return bodies;
}

const checks = [];
for (const id of Object.keys(protocols)) {
  checks.push([`${id}: words`, async () => {
    assert.equal(await well(id, "Say hello"), "Hello — schön, dass du da bist 🦀.");
  }]);
  checks.push([`${id}: two calls and their results`, async () => {
    asked();
    const out = await well(id, "Read the notes");
    assert.ok(out.endsWith("It says forty-two."), out);
    const bodies = asked();
    const last = bodies.at(-1);
    assert.ok(bodies.length >= 2 && last.includes("The answer is forty-two."), last);
    assert.ok(/missing\.txt/.test(last), "the failed call's result is there as well");
  }]);
  checks.push([`${id}: a wrong key`, async () => {
    const { code, err } = await ask(id, "Use the wrong key");
    assert.notEqual(code, 0);
    assert.ok(err.includes("401") && err.includes("Incorrect API key provided"), err);
    assert.ok(!err.includes("mock-key"), err);
  }]);
}
checks.push(["a limit is waited out", async () => {
  assert.ok((await well("chat", "Ask too often")).endsWith("Now there is room."));
}]);

const passed = await run(checks);
await mock.stop();
process.exit(passed ? 0 : 1);

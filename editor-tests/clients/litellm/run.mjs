// LiteLLM, a gateway in front of other providers: node run.mjs path/to/adjutant path/to/litellm
//
// adjutant sends requests to the gateway in each wire format, and the gateway to aimock as OpenAI and as Anthropic. It
// refuses parameters that the provider behind it does not have.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";

import { LLMock } from "@copilotkit/aimock";

import { place, run, within } from "../check.mjs";

const [binary, litellm] = process.argv.slice(2);
const { home, project, env } = place();
env.ADJUTANT_DISABLE_MODELS_FETCH = "1";
writeFileSync(join(project, "note.txt"), "The answer is forty-two.\n");

const mock = new LLMock({ port: 0, chunkSize: 3 });
await mock.start();
mock.onMessage("Say hello", { content: "Hello — schön, dass du da bist 🦀." });
mock.addFixture({
  match: { userMessage: "Read the note", hasToolResult: false },
  response: {
    toolCalls: [{ name: "read", arguments: JSON.stringify({ filePath: join(project, "note.txt") }) }],
  },
});
mock.addFixture({
  match: { userMessage: "Read the note", hasToolResult: true },
  response: { content: "It says forty-two." },
});

/** A port that is free now. */
const port = await new Promise((done) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => done(port));
  });
});

// JSON is also YAML.
const behind = (model, base) => ({
  model_name: model.split("/")[0],
  litellm_params: { model, api_base: base, api_key: "mock-key" },
});
const settings = {
  model_list: [behind("openai/gpt-4o", `${mock.url}/v1`), behind("anthropic/claude-sonnet-4-5", mock.url)],
  general_settings: { master_key: "sk-gateway" },
};
const config = join(home, "litellm.yaml");
writeFileSync(config, JSON.stringify(settings));
const log = { text: "" };
const gateway = spawn(litellm, ["--config", config, "--host", "127.0.0.1", "--port", String(port)], {
  cwd: home,
  env: { HOME: home, PATH: process.env.PATH, LITELLM_LOCAL_MODEL_COST_MAP: "True", NO_PROXY: "*" },
  stdio: ["ignore", "pipe", "pipe"],
});
for (const stream of [gateway.stdout, gateway.stderr]) stream.on("data", (data) => (log.text += data));
process.on("exit", () => gateway.kill("SIGKILL"));

/** Sends requests until the gateway answers. */
async function ready() {
  for (;;) {
    try {
      if ((await fetch(`http://127.0.0.1:${port}/health/liveliness`)).ok) return;
    } catch {}
    if (gateway.exitCode !== null) throw new Error(`the gateway has ended:\n${log.text}`);
    await new Promise((done) => setTimeout(done, 250));
  }
}
await within(180_000, ready());

const at = `http://127.0.0.1:${port}`;
const protocols = {
  chat: { npm: "@ai-sdk/openai-compatible", base: `${at}/v1` },
  responses: { npm: "@ai-sdk/openai", base: `${at}/v1` },
  messages: { npm: "@ai-sdk/anthropic", base: `${at}/v1` },
  gemini: { npm: "@ai-sdk/google", base: `${at}/v1beta` },
};
const model = { reasoning: false, limit: { context: 100000, output: 8000 } };
const provider = Object.fromEntries(
  Object.entries(protocols).map(([id, { npm, base }]) => [
    `by-${id}`,
    { npm, options: { baseURL: base, apiKey: "sk-gateway" }, models: { openai: model, anthropic: model } },
  ]),
);
mkdirSync(join(home, ".config", "opencode"), { recursive: true });
writeFileSync(join(home, ".config", "opencode", "opencode.json"), JSON.stringify({ provider }));

/** Runs one prompt to its end, and returns the result. */
async function ask(id, behind, prompt) {
  const args = ["run", "--format", "result", "--model", `by-${id}/${behind}`, prompt];
  const child = spawn(binary, args, { cwd: project, env, stdio: ["ignore", "pipe", "pipe"] });
  const said = { out: "", err: "" };
  child.stdout.on("data", (data) => (said.out += data));
  child.stderr.on("data", (data) => (said.err += data));
  await within(60_000, new Promise((done) => child.once("close", done)));
  assert.notEqual(said.out, "", said.err);
  const result = JSON.parse(said.out);
  assert.equal(result.exitCode, 0, `${said.out}\n${said.err}\n${log.text.slice(-2000)}`);
  return result;
}

const checks = [];
for (const id of Object.keys(protocols)) {
  for (const behind of ["openai", "anthropic"]) {
    checks.push([`${id}, ${behind} behind the gateway: words`, async () => {
      assert.equal((await ask(id, behind, "Say hello")).answer, "Hello — schön, dass du da bist 🦀.");
    }]);
    checks.push([`${id}, ${behind} behind the gateway: a call and its result`, async () => {
      const { answer, steps } = await ask(id, behind, "Read the note");
      assert.equal(answer, "It says forty-two.");
      assert.equal(steps, 2);
    }]);
  }
}

const passed = await run(checks);
await mock.stop();
process.exit(passed ? 0 : 1);

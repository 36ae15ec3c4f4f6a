// Checks request bodies against the types of the providers' SDKs: node run.mjs path/to/adjutant
//
// adjutant runs from its command line against a mock provider of each wire format. Every body is written to a
// TypeScript file as a value of the SDK's request type, and the compiler checks it.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { place, run, within } from "../check.mjs";
import { formats } from "../formats.mjs";

const [binary] = process.argv.slice(2);
const { home, project, env } = place();
const here = dirname(fileURLToPath(import.meta.url));
env.ADJUTANT_DISABLE_MODELS_FETCH = "1";

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const PDF = "%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\n"
  + "trailer<</Root 1 0 R>>\n%%EOF\n";
writeFileSync(join(project, "note.txt"), "The answer is forty-two.\n");
writeFileSync(join(project, "dot.png"), Buffer.from(PNG, "base64"));
writeFileSync(join(project, "page.pdf"), PDF);

/** Each wire format: a model, the member of a body that has the effort, and the usual effort and that for a title. */
const providers = {
  chat: {
    npm: "@ai-sdk/openai-compatible", path: "/v1", type: "Chat", id: "gpt-5.1",
    effort: (body) => body.reasoning_effort, usual: undefined, least: "low",
  },
  messages: {
    npm: "@ai-sdk/anthropic", path: "/v1", type: "Messages", id: "claude-sonnet-4-6",
    effort: (body) => [body.thinking?.type, body.output_config?.effort], usual: ["adaptive", undefined], least: [undefined, "low"],
  },
  responses: {
    npm: "@ai-sdk/openai", path: "/v1", type: "Responses", id: "gpt-5.1",
    effort: (body) => body.reasoning?.effort, usual: undefined, least: "none",
  },
  gemini: {
    npm: "@ai-sdk/google", path: "/v1beta", type: "Gemini", id: "gemini-3-pro",
    effort: (body) => body.generationConfig?.thinkingConfig?.thinkingLevel, usual: undefined, least: "low",
  },
};

const read = (name) => ["read", { filePath: join(project, name) }];
/** The scenarios: the answers to requests with tools in their order, and the prompts. */
const scenarios = {
  "a question": { answers: [{ text: "It is a boat." }], prompts: [["What is a ship?"]] },
  "two calls, of which one fails": {
    answers: [{ text: "I look.", calls: [read("note.txt"), read("missing.txt")] }, { text: "Forty-two." }],
    prompts: [["Read the notes."]],
  },
  "a thought before a call": {
    answers: [{ thought: "Let me see.", calls: [["glob", { pattern: "*.txt" }]] }, { thought: "Good.", text: "One file." }],
    prompts: [["Which files are there?"], ["--continue", "And now?"]],
  },
  "pictures and documents, attached and read": {
    answers: [{ calls: [read("dot.png"), read("page.pdf")] }, { text: "A dot." }],
    prompts: [["--file", "dot.png", "--file", "page.pdf", "What is this?"]],
  },
  "the lowest and the highest effort": {
    answers: [{ text: "Quick." }, { text: "Slow." }],
    prompts: [["--mode", "quick", "Hello?"], ["--mode", "slow", "Hello?"]],
  },
  "an answer that must fit a schema": {
    answers: [{ calls: [["structured_output", { ship: "yes" }]] }, { calls: [["structured_output", { ship: true }]] }],
    prompts: [["--schema", "ship.json", "Is it a ship?"]],
  },
  "a title, and a model that refuses a temperature": {
    titles: true,
    answers: [{ text: "It is a boat." }],
    prompts: [["What is a ship?"]],
  },
  "a summary, and what follows it": {
    answers: [{ text: "It is a boat." }, { text: "As I said." }],
    prompts: [["What is a ship?"], ["--continue", "/compact"], ["--continue", "And now?"]],
  },
};
writeFileSync(join(project, "ship.json"),
  JSON.stringify({ type: "object", properties: { ship: { type: "boolean" } }, required: ["ship"] }));

/** The received bodies, by the first directory of their URL's path. */
const received = new Map();
const waiting = new Map();
let number = 0;
const server = createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const [, folder] = request.url.split("/");
    if (request.method !== "POST" || !received.has(folder)) {
      response.writeHead(404).end();
      return;
    }
    const body = JSON.parse(Buffer.concat(chunks));
    received.get(folder).push(body);
    // A request without tools is one for a title or a summary.
    const isAside = !body.tools || body.tools.some((tool) => JSON.stringify(tool).includes("_noop"));
    const answer = (isAside ? null : waiting.get(folder).shift()) ?? { text: "Ships, and what they are." };
    number += 1;
    response.writeHead(200, { "content-type": "text/event-stream" }).end(formats[folder.split("-")[0]](answer, number));
  });
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const at = `http://127.0.0.1:${server.address().port}`;

async function adjutant(words, more) {
  const child = spawn(binary, ["run", "--allow", ...words], { cwd: project, env: { ...env, ...more }, stdio: ["ignore", "pipe", "pipe"] });
  const output = { out: "", err: "" };
  child.stdout.on("data", (data) => (output.out += data));
  child.stderr.on("data", (data) => (output.err += data));
  output.code = await within(60_000, new Promise((resolve) => child.once("close", resolve)));
  assert.equal(output.code, 0, `${words.join(" ")}: ${output.out}\n${output.err}`);
}

/** Runs a scenario and returns the bodies of its requests. */
async function bodies(format, index, { answers, prompts, titles }) {
  const folder = `${format}-${index}`;
  const { npm, path, id } = providers[format];
  received.set(folder, []);
  waiting.set(folder, [...answers]);
  const modalities = { input: ["text", "image", "pdf"], output: ["text"] };
  const model = { reasoning: true, attachment: true, tool_call: true, temperature: false, modalities, limit: { context: 200000, output: 64000 } };
  const variants = { messages: ["low", "max"], gemini: ["low", "high"] }[format] ?? ["low", "high"];
  const agent = Object.fromEntries(["quick", "slow"].map((name, at) =>
    [name, { mode: "primary", description: name, variant: variants[at], temperature: 0.5 }]));
  const settings = {
    model: `own/${id}`, agent,
    provider: { own: { npm, options: { baseURL: `${at}/${folder}${path}`, apiKey: "mock-key", setCacheKey: true }, models: { [id]: model } } },
  };
  mkdirSync(join(home, ".config", "adjutant"), { recursive: true });
  writeFileSync(join(home, ".config", "adjutant", "adjutant.json"), JSON.stringify(settings));
  for (const words of prompts) await adjutant(words, titles ? { ADJUTANT_DISABLE_TITLES: "0" } : {});
  assert.deepEqual(waiting.get(folder), [], "every answer is asked for");
  return received.get(folder);
}

/** Returns the compiler's errors for bodies: none if they are valid. */
function compilerErrors(name, type, all) {
  const folder = join(here, "bodies");
  mkdirSync(folder, { recursive: true });
  copyFileSync(join(here, "types.d.ts"), join(folder, "types.d.ts"));
  const values = all.map((body, n) => `export const body${n}: ${type} = ${JSON.stringify(body, null, 1)};\n`);
  const file = join(folder, `${name.replaceAll(/\W+/g, "-")}.ts`);
  writeFileSync(file, `import type { ${type} } from "./types";\n\n${values.join("\n")}`);
  const flags = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler", "--types", "node"];
  const { stdout, stderr } = spawnSync(join(here, "node_modules", ".bin", "tsc"), [...flags, file], { cwd: here, encoding: "utf8" });
  return stdout + stderr;
}

const text = (body) => JSON.stringify(body);
const checks = [];
for (const [format, { type, effort, usual, least }] of Object.entries(providers)) {
  Object.entries(scenarios).forEach(([name, scenario], index) => {
    checks.push([`${format}: ${name}`, async () => {
      const all = await bodies(format, index, scenario);
      assert.ok(all.length >= scenario.answers.length, `${all.length} requests`);
      assert.equal(compilerErrors(`${format} ${name}`, type, all), "");
      assert.ok(!all.some((body) => text(body).includes('"temperature"')), "no temperature");
      const [title] = all.filter((body) => !body.tools);
      if (scenario.titles) assert.deepEqual(effort(title), least, "a title needs no thought");
      if (index === 0) assert.deepEqual(effort(all[0]), usual, "the effort of the maker's own client");
    }]);
  });
  checks.push([`${format}: the compiler rejects a wrong body`, async () => {
    assert.match(compilerErrors(`${format} wrong`, type, [{ model: 5, contents: 5, stream: "yes" }]), /error TS/);
  }]);
}
const passed = await run(checks);
server.close();
process.exit(passed ? 0 : 1);

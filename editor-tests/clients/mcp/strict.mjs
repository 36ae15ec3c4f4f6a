// Popular MCP servers with strict providers: node strict.mjs path/to/adjutant [path/to/python/bin]
//
// The tools of six servers, of npm and of PyPI, are in one request to a mock provider of each wire format. It refuses
// the whole request if the documentation of the provider forbids a part of it, as the provider does.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import Ajv from "ajv/dist/2020.js";

import { place, run, within } from "../check.mjs";
import { formats } from "../formats.mjs";

const [binary, python] = process.argv.slice(2);
const { home, project, env } = place();
const here = dirname(fileURLToPath(import.meta.url));
const program = (name) => join(here, "node_modules", ".bin", name);
spawnSync("git", ["init", "--quiet", project]);

const local = (...command) => ({ type: "local", command });
const mcp = {
  files: local(program("mcp-server-filesystem"), project),
  memory: local(program("mcp-server-memory")),
  docs: local(program("context7-mcp")),
  browser: local(program("playwright-mcp")),
};
if (python && existsSync(join(python, "mcp-server-fetch"))) {
  mcp.fetch = local(join(python, "mcp-server-fetch"));
  mcp.git = local(join(python, "mcp-server-git"), "--repository", project);
} else {
  console.log("skip  the servers of PyPI: they are in no directory that was named");
}

const TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"];
const ajv = new Ajv({ strict: false, validateFormats: false });

/** Calls a function for a schema and each schema in it. */
function walk(schema, visit) {
  if (!schema || typeof schema !== "object" || Array.isArray(schema)) return;
  visit(schema);
  for (const [key, inner] of Object.entries(schema)) {
    if (["properties", "patternProperties", "$defs"].includes(key)) {
      Object.values(inner).forEach((one) => walk(one, visit));
    } else if (Array.isArray(inner) && ["anyOf", "oneOf", "allOf", "prefixItems"].includes(key)) {
      inner.forEach((one) => walk(one, visit));
    } else if (!["enum", "const", "default", "examples", "required"].includes(key)) walk(inner, visit);
  }
}

/** The properties that all providers forbid in the schema of a function. */
function common(schema) {
  if (schema?.type !== "object" || !schema.properties) return "it is not an object with properties";
  const top = ["anyOf", "oneOf", "allOf", "not", "enum"].find((key) => key in schema);
  if (top) return `${top} at the top`;
  let problem;
  walk(schema, (one) => {
    const types = [one.type ?? []].flat();
    if (types.some((type) => !TYPES.includes(type))) problem ??= `the type ${one.type}`;
    if (types.includes("array") && !("items" in one)) problem ??= "array schema missing items";
    if (one.enum && !one.enum.length) problem ??= "an empty enum";
    if (one.$ref?.startsWith("#") === false) problem ??= `the reference ${one.$ref}`;
    const unknown = (one.required ?? []).find((name) => one.properties && !(name in one.properties));
    if (unknown) problem ??= `${unknown} is required, and no property`;
  });
  return problem;
}

const KEYWORDS = ["type", "format", "title", "description", "nullable", "enum", "items", "minItems", "maxItems",
  "properties", "required", "minProperties", "maxProperties", "minimum", "maximum", "minLength", "maxLength", "pattern",
  "example", "anyOf", "propertyOrdering", "default"];

function gemini(schema) {
  if (schema === undefined) return undefined;
  let problem = common(schema);
  walk(schema, (one) => {
    const unknown = Object.keys(one).find((key) => !KEYWORDS.includes(key));
    if (unknown) problem ??= `Unknown name "${unknown}"`;
    if (!one.anyOf && typeof one.type !== "string") problem ??= "no single type";
    if (one.enum && (one.type !== "string" || one.enum.some((value) => typeof value !== "string" || !value))) {
      problem ??= "enum: only allowed for STRING type";
    }
  });
  return problem;
}

const draft = (schema) => common(schema) ?? (ajv.validateSchema(schema) ? undefined : ajv.errorsText());

/** Each provider: its package, the functions of a body as names and schemas, and the properties that it refuses. */
const providers = {
  chat: { npm: "@ai-sdk/openai-compatible", path: "/v1", refused: draft,
    functions: (body) => body.tools?.map(({ function: one }) => [one.name, one.parameters]) },
  responses: { npm: "@ai-sdk/openai", path: "/v1", refused: draft,
    functions: (body) => body.tools?.map((one) => [one.name, one.parameters]) },
  messages: { npm: "@ai-sdk/anthropic", path: "/v1", refused: draft,
    functions: (body) => body.tools?.map((one) => [one.name, one.input_schema]) },
  gemini: { npm: "@ai-sdk/google", path: "/v1beta", refused: gemini,
    functions: (body) => body.tools?.[0].functionDeclarations?.map((one) => [one.name, one.parameters]) },
};

const came = {};
const server = createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const format = request.url.split("/")[1];
    if (request.method !== "POST" || !providers[format]) {
      response.writeHead(404).end();
      return;
    }
    const { functions, refused } = providers[format];
    const all = functions(JSON.parse(Buffer.concat(chunks))) ?? [];
    for (const [name, schema] of all) {
      const problem = /^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/.test(name) ? refused(schema) : "its name";
      if (problem) {
        const message = `Invalid schema for function '${name}': ${problem}`;
        response.writeHead(400, { "content-type": "application/json" });
        response.end(JSON.stringify({ error: { message, type: "invalid_request_error" } }));
        return;
      }
    }
    came[format] = all.map(([name]) => name);
    response.writeHead(200, { "content-type": "text/event-stream" }).end(formats[format]({ text: "All taken." }, 1));
  });
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const at = `http://127.0.0.1:${server.address().port}`;
const provider = Object.fromEntries(Object.entries(providers).map(([format, { npm, path }]) =>
  [`at-${format}`, { npm, options: { baseURL: `${at}/${format}${path}`, apiKey: "k" }, models: { m: {} } }]));
mkdirSync(join(home, ".config", "adjutant"), { recursive: true });
writeFileSync(join(home, ".config", "adjutant", "adjutant.json"), JSON.stringify({ mcp, provider, experimental: { mcp_budget: 1000000 } }));

/** Runs adjutant in the project, and returns its output and its errors. */
async function adjutant(...words) {
  const child = spawn(binary, words, { cwd: project, env, stdio: ["ignore", "pipe", "pipe"] });
  let [out, err] = ["", ""];
  child.stdout.on("data", (data) => (out += data));
  child.stderr.on("data", (data) => (err += data));
  const code = await within(60_000, new Promise((resolve) => child.once("close", resolve)));
  assert.equal(code, 0, out + err);
  return { out, err };
}

const connect = async () => {
  for (const { name, state, tools, why } of JSON.parse((await adjutant("mcp", "--json")).out)) {
    assert.ok(state === "connected" && tools.length > 0, `${name}: ${why}`);
  }
};
const checks = Object.keys(providers).map((format) => [
  `${format}: the tools of ${Object.keys(mcp).length} servers are taken, each of them`,
  async () => {
    const { err } = await adjutant("run", "--model", `at-${format}/m`, "Hello.");
    assert.ok(!err.includes("is disabled in this session"), err);
    for (const name of Object.keys(mcp)) {
      assert.ok(came[format].some((tool) => tool.startsWith(`${name}_`)), `no tool of ${name}: ${err}`);
    }
  },
]);
// A session begins with the tools that a server had before, and does not wait for a slow one.
const passed = await run([["all of them connect", connect], ...checks]);
server.close();
process.exit(passed ? 0 : 1);

// MCP servers by others: node run.mjs path/to/adjutant [path/to/python]
//
// The reference server over each transport, the file server, and one of the Python SDK, as users configure them.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { place, run } from "../check.mjs";
import { session } from "./everything.mjs";

const [binary, python] = process.argv.slice(2);
const { home, project, env } = place();
const here = dirname(fileURLToPath(import.meta.url));
const program = (name) => join(here, "node_modules", ".bin", name);

/** Returns a free port. */
const free = () =>
  new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

/** Starts the reference server on a port, and returns the port once it listens. */
async function everything(transport) {
  const port = await free();
  const words = { env: { ...process.env, PORT: String(port) }, stdio: ["ignore", "pipe", "pipe"] };
  const child = spawn(program("mcp-server-everything"), [transport], words);
  process.on("exit", () => child.kill());
  await new Promise((resolve, reject) => {
    const said = (data) => String(data).includes(String(port)) && resolve();
    child.stdout.on("data", said);
    child.stderr.on("data", said);
    child.once("close", () => reject(new Error(`the ${transport} server has ended`)));
  });
  return port;
}

/** Runs adjutant in the project, and returns its exit code, output and errors. */
function adjutant(...words) {
  const child = spawn(binary, words, { cwd: project, env, stdio: ["ignore", "pipe", "pipe"] });
  let [out, err] = ["", ""];
  child.stdout.on("data", (data) => (out += data));
  child.stderr.on("data", (data) => (err += data));
  return new Promise((resolve) => child.once("close", (code) => resolve({ code, out, err })));
}

const call = async (server, tool, input = {}) => {
  const { code, out, err } = await adjutant("mcp", "call", server, tool, JSON.stringify(input), "--allow");
  assert.equal(code, 0, err);
  return out;
};

const [http, sse] = await Promise.all([everything("streamableHttp"), everything("sse")]);
const local = (...command) => ({ type: "local", command });
const mcp = {
  pipe: local(program("mcp-server-everything"), "stdio"),
  http: { type: "remote", url: `http://127.0.0.1:${http}/mcp` },
  sse: { type: "remote", url: `http://127.0.0.1:${sse}/sse` },
  files: local(program("mcp-server-filesystem"), project),
};
if (python) mcp.python = local(python, join(here, "server.py"));
mkdirSync(join(home, ".config", "adjutant"), { recursive: true });
writeFileSync(join(home, ".config", "adjutant", "adjutant.json"), JSON.stringify({ mcp }));
writeFileSync(join(project, "note.txt"), "Buy milk.\n");

const checks = [
  [
    "all of them connect",
    async () => {
      const { code, out, err } = await adjutant("mcp", "--json");
      assert.equal(code, 0, out + err);
      for (const server of JSON.parse(out)) {
        assert.equal(server.state, "connected", `${server.name}: ${server.why}`);
        assert.ok(server.tools.length > 1, server.name);
      }
    },
  ],
  [
    "the file server reads what lies in the project, and nothing else",
    async () => {
      assert.match(await call("files", "read_text_file", { path: join(project, "note.txt") }), /Buy milk\./);
      const { code, err } = await adjutant("mcp", "call", "files", "read_text_file", '{"path":"/etc/hostname"}', "--allow");
      assert.equal(code, 1);
      assert.match(err, /[Aa]ccess denied/);
    },
  ],
];
for (const server of ["pipe", "http", "sse"]) {
  checks.push([
    `the reference server over ${server}: text, structure, images, resources, links, a long call, directories`,
    async () => {
      assert.match(await call(server, "echo", { message: "grüße" }), /Echo: grüße/);
      assert.match(await call(server, "get-sum", { a: 1, b: 2 }), /is 3/);
      assert.match(await call(server, "get-structured-content", { location: "Chicago" }), /temperature/);
      assert.match(await call(server, "get-tiny-image"), /\[image\/png, \d+ bytes in base64\]/);
      assert.match(await call(server, "get-resource-reference", { resourceType: "Text", resourceId: 1 }), /demo:\/\//);
      assert.match(await call(server, "get-resource-links", { count: 2 }), /demo:\/\//);
      assert.match(await call(server, "trigger-long-running-operation", { duration: 1, steps: 4 }), /completed/);
      const { code, err } = await adjutant("mcp", "call", server, "get-sum", '{"a":"x"}', "--allow");
      assert.equal(code, 1);
      assert.match(err, /number/);
    },
  ]);
  checks.push([
    `the reference server over ${server}, in a session: prompts, resources, a form, a question for the model, the log`,
    () => session(binary, mcp[server]),
  ]);
}
if (python) {
  checks.push([
    "a server of the Python SDK: a result, and a failure",
    async () => {
      assert.match(await call("python", "add", { a: 20, b: 22 }), /42/);
      const { code, err } = await adjutant("mcp", "call", "python", "refuse", "{}", "--allow");
      assert.equal(code, 1);
      assert.match(err, /refuse/);
    },
  ]);
} else {
  console.log("skip  a server of the Python SDK: no Python with it was named");
}
process.exit((await run(checks)) ? 0 : 1);

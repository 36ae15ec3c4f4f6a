// The client of one conformance scenario, as a user would run it: node client.mjs path/to/adjutant ADDRESS
//
// The suite starts this once per scenario, with the address of its server at the end and the scenario's name in the
// environment. It lists the servers, logs in if one requires that (the part of the browser is done here), calls every
// tool that it finds, and logs in again if a call reports that the login lacks a required scope.

import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { place } from "../check.mjs";

const [binary, url] = process.argv.slice(2);
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");
const { home, project, env } = place();

const oauth = {};
if (context.client_id) oauth.clientId = context.client_id;
if (context.client_secret) oauth.clientSecret = context.client_secret;
// The client id for a server without registration: the URL of a document about the client.
if (process.env.MCP_CONFORMANCE_SCENARIO === "auth/basic-cimd") {
  oauth.clientId = "https://conformance-test.local/client-metadata.json";
}
const mcp = { it: { type: "remote", url, oauth } };
mkdirSync(join(home, ".config", "adjutant"), { recursive: true });
writeFileSync(join(home, ".config", "adjutant", "adjutant.json"), JSON.stringify({ mcp }));

/**
 * Runs adjutant, and returns its exit code and output. `heard` is called with each line of standard error as it
 * arrives: the steps of a login are shown there.
 */
function adjutant(words, heard = () => {}) {
  const child = spawn(binary, words, { cwd: project, env, stdio: ["ignore", "pipe", "pipe"] });
  let [out, err] = ["", ""];
  child.stdout.on("data", (data) => (out += data));
  child.stderr.on("data", (data) => (err += data));
  createInterface({ input: child.stderr }).on("line", heard);
  return new Promise((resolve) => child.once("close", (code) => resolve({ code, out, err })));
}

/** Logs in, with a browser that approves everything. */
async function login() {
  const done = await adjutant(["mcp", "login", "it"], async (line) => {
    const address = line.trim();
    if (!/^https?:/.test(address)) return;
    const answer = await fetch(address, { redirect: "manual" });
    const back = answer.headers.get("location");
    if (back) await fetch(back);
  });
  if (done.code !== 0) throw new Error(done.err);
}

const listed = async () => JSON.parse((await adjutant(["mcp", "--json"])).out)[0];
let server = await listed();
if (server.state === "needs-login") {
  await login();
  server = await listed();
}
if (server.state !== "connected") throw new Error(`${server.state}: ${server.why}`);
const tools = JSON.parse((await adjutant(["mcp", "tools", "it", "--json"])).out);
for (const { name, inputSchema } of tools) {
  const value = (schema) => ({ number: 2, integer: 2, boolean: true, array: [], object: {} })[schema.type] ?? "x";
  const fields = Object.entries(inputSchema.properties ?? {});
  const input = Object.fromEntries(fields.map(([key, schema]) => [key, value(schema)]));
  const call = () => adjutant(["mcp", "call", "it", name, JSON.stringify(input), "--allow"]);
  let done = await call();
  for (let again = 0; again < 2 && done.err.includes("adjutant mcp login"); again += 1) {
    await login();
    done = await call();
  }
  if (done.code !== 0) throw new Error(done.err);
  console.log(`${name}: ${done.out.trim()}`);
}

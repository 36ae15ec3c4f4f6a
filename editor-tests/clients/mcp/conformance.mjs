// The conformance suite of MCP's authors, with adjutant as the client: node conformance.mjs path/to/adjutant
//
// The suite wants Node 22, which comes with the packages. Scenarios that do not apply are listed with the reason.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { place } from "../check.mjs";

const [binary] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));
const node = join(here, "node_modules", ".bin", "node");
const suite = join(here, "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js");
const { project } = place();

/** The number of scenarios that run at once. */
const LANES = 5;

const skipped = {
  "auth/2025-03-26-oauth-metadata-backcompat":
    "its issuer is not where its metadata is, which is how a server looks that takes another's answers: refused",
  "auth/client-credentials-jwt": "an extension: machines that log in without a user",
  "auth/client-credentials-basic": "an extension: machines that log in without a user",
  "auth/cross-app-access-complete-flow": "an extension: an identity provider of a company's in between",
};

/** Runs the suite with these arguments, and returns its exit code and output. */
function conformance(...words) {
  const child = spawn(node, [suite, ...words], { cwd: project, stdio: ["ignore", "pipe", "pipe"] });
  let out = "";
  child.stdout.on("data", (data) => (out += data));
  child.stderr.on("data", (data) => (out += data));
  return new Promise((resolve) => child.once("close", (code) => resolve({ code, out })));
}

const listed = await conformance("list", "--client");
const scenarios = [...listed.out.matchAll(/^ {2}- (\S+)/gm)].map((match) => match[1]);
assert.ok(scenarios.length > 20, listed.out);
let [passed, failed] = [0, 0];
const left = scenarios.filter((name) => {
  if (name in skipped) console.log(`skip  ${name}: ${skipped[name]}`);
  return !(name in skipped);
});
const command = `${node} ${join(here, "client.mjs")} ${binary}`;
async function lane() {
  for (let name = left.shift(); name; name = left.shift()) {
    const { code, out } = await conformance("client", "--command", command, "--scenario", name, "--timeout", "50000");
    const well = code === 0 && /OVERALL: PASSED/.test(out);
    console.log(`${well ? "ok   " : "FAIL "} ${name}${well ? "" : `\n${out.slice(-3000)}`}`);
    if (well) passed += 1;
    else failed += 1;
  }
}
await Promise.all(Array.from({ length: LANES }, lane));
console.log(`${passed} passed, ${failed} failed, ${Object.keys(skipped).length} skipped`);
process.exit(failed === 0 ? 0 : 1);

// The npm package with this build in it: packed, installed and started as `npx adjutant-acp` does.
// node run.mjs ADJUTANT, from the top of the repository.

import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { place, run } from "../check.mjs";

const adjutant = process.argv[2];
const { env, project } = place();
const scratch = mkdtempSync(join(tmpdir(), "adjutant-npm-"));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));
const manifest = JSON.parse(readFileSync(".github/registry/agent.json", "utf8"));
const platform = `${process.platform}-${process.arch}`;
const installed = join(scratch, "node_modules", ".bin", "adjutant-acp");
const start = (args, more = {}) => spawnSync(installed, args, { env: { ...env, ...more }, cwd: project, encoding: "utf8" });

const passed = await run([
  ["the packages are built, packed and installed", async () => {
    const out = join(scratch, "packages");
    execFileSync("node", [".github/npm/build.mjs", manifest.version, out, `${platform}=${adjutant}`]);
    const [{ filename }] = JSON.parse(execFileSync("npm", ["pack", "--json", join(out, "adjutant-acp")], { cwd: scratch }));
    // The binary's package is linked: a debug build takes npm long to pack.
    const packages = [join(scratch, filename), join(out, `adjutant-acp-${platform}`)];
    execFileSync("npm", ["install", "--prefix", scratch, "--offline", "--no-audit", "--no-fund", ...packages]);
  }],
  ["it is the version that the registry's manifest names, and Cargo.toml", async () => {
    assert.equal(manifest.distribution.npx.package, `adjutant-acp@${manifest.version}`);
    // The requirements of the registry's schema, and of the icon.
    assert.match(manifest.id, /^[a-z][a-z0-9-]*$/);
    assert.match(manifest.version, /^\d+\.\d+\.\d+$/);
    for (const key of ["name", "description"]) assert.ok(manifest[key].length > 0, key);
    for (const key of ["repository", "license_url"]) assert.equal(new URL(manifest[key]).protocol, "https:");
    assert.deepEqual(Object.keys(manifest.distribution), ["npx"]);
    const icon = readFileSync(".github/registry/icon.svg", "utf8");
    assert.match(icon, /<svg width="16" height="16"/);
    for (const [, colour] of icon.matchAll(/(?:fill|stroke)="([^"]*)"/g)) assert.match(colour, /^(currentColor|none)$/);
    assert.match(start(["--version"]).stdout, new RegExp(`\\b${manifest.version.replaceAll(".", "\\.")}\\b`));
  }],
  ["without arguments it serves an editor, and ends with its input", async () => {
    const agent = spawn(installed, [], { env, cwd: project, stdio: ["pipe", "pipe", "inherit"] });
    const lines = createInterface({ input: agent.stdout });
    const first = once(lines, "line");
    // The messages of the registry's check of agents, in an empty home.
    const capabilities = { fs: { readTextFile: true, writeTextFile: true }, terminal: true, _meta: { "terminal-auth": true } };
    const params = { protocolVersion: 1, clientCapabilities: capabilities };
    agent.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id: 0, method: "initialize", params })}\n`);
    const answer = JSON.parse((await first)[0]);
    assert.equal(answer.id, 0);
    assert.equal(answer.result.protocolVersion, 1);
    // The registry accepts no agent without a login method.
    const kinds = answer.result.authMethods.map((method) => method.type ?? "agent");
    assert.ok(kinds.includes("agent") || kinds.includes("terminal"), `${kinds}`);
    agent.stdin.end();
    const [code] = await once(agent, "exit");
    assert.equal(code, 0);
  }],
  ["a command's exit code is passed on", async () => {
    assert.equal(start(["no-such-command"]).status, 2);
  }],
  ["without the platform's package it takes the one on PATH, else says what to do", async () => {
    rmSync(join(scratch, "node_modules", `adjutant-acp-${platform}`));
    const node = process.execPath.slice(0, process.execPath.lastIndexOf("/"));
    const without = start([], { PATH: node });
    assert.equal(without.status, 1);
    assert.match(without.stderr, new RegExp(`there is no adjutant for ${platform} here`));
    const found = start(["--version"], { PATH: `${node}:${adjutant.slice(0, adjutant.lastIndexOf("/"))}` });
    assert.equal(found.status, 0, found.stderr);
  }],
]);
process.exit(passed ? 0 : 1);

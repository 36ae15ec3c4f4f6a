// The examples of the manual, and its blocks of code: node run.mjs path/to/adjutant path/to/docs/examples [python with acp] [python with mcp]

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { delimiter, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { place, run } from "../check.mjs";
import { parseBlocks, rejectMistakes } from "./blocks.mjs";

const [binary, examples, python, mcpPython] = process.argv.slice(2);
const { home, project, env } = place();
const here = dirname(fileURLToPath(import.meta.url));

// The examples start `adjutant`, and the project's server `python3` with the SDK.
const programs = join(home, "bin");
mkdirSync(programs);
symlinkSync(resolve(binary), join(programs, "adjutant"));
if (mcpPython) {
  writeFileSync(join(programs, "python3"), `#!/bin/sh\nexec ${resolve(mcpPython)} "$@"\n`, { mode: 0o755 });
}
env.PATH = [programs, env.PATH].join(delimiter);

/** Runs a program in the project, and returns its exit code and its output. */
const start = (program, args, more = {}) =>
  new Promise((done) => {
    const child = execFile(program, args, { cwd: project, env: { ...env, ...more } }, (error, stdout, stderr) =>
      done({ code: error?.code ?? 0, stdout, stderr }),
    );
    child.stdin.end();
  });
const adjutant = (args, more) => start("adjutant", args, more);

cpSync(join(examples, "project"), project, { recursive: true });
writeFileSync(join(project, "a.py"), "print(1)   \n");
await start("git", ["init", "--quiet", "--initial-branch=main"]);
await start("git", ["add", "."]);
const author = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
await start("git", [...author, "commit", "--quiet", "--message", "Begin"]);

// Python's modules resolve from their installation; TypeScript's from the directory of the file.
const typescript = join(here, "client.ts");
cpSync(join(examples, "client.ts"), typescript);
const trusted = { ADJUTANT_TRUST: "all" };

const checks = [
  ["client.py prints the answer", async () => {
    const { code, stdout, stderr } = await start(python, [join(resolve(examples), "client.py"), "list ."]);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /\.\n\n.*a\.py/s);
    assert.match(stderr, /\[.*: completed\]/);
  }],
  ["client.py rejects a question", async () => {
    const { stderr } = await start(python, [join(resolve(examples), "client.py"), "run `touch b`"]);
    assert.match(stderr, /rejected: /);
  }],
  ["the script without an SDK prints the answer", async () => {
    const page = readFileSync(join(resolve(examples), "..", "editors", "scripts.md"), "utf8");
    const [, code] = /```python\n(.*?)```/s.exec(page);
    const script = join(home, "script.py");
    writeFileSync(script, code.replace("/path/to/project", project).replace("list src", "list ."));
    const ran = await start(python, [script]);
    assert.equal(ran.code, 0, ran.stderr);
    assert.match(ran.stdout, /a\.py/);
  }],
  ["every block of the manual can be parsed", async () => {
    rejectMistakes();
    const counts = parseBlocks(join(resolve(examples), ".."));
    for (const language of ["sh", "lua", "elisp", "js", "python"]) assert.ok(counts[language] > 0, language);
  }],
  ["client.ts has correct types", async () => {
    const options = ["--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck", "--types", "node"];
    options.push("--typeRoots", join(here, "node_modules", "@types"));
    const compiler = join(here, "node_modules", ".bin", "tsc");
    const { code, stdout } = await start(compiler, [...options, "--outDir", here, typescript]);
    assert.equal(code, 0, stdout);
  }],
  ["client.ts prints the answer", async () => {
    const { code, stdout, stderr } = await start(process.execPath, [join(here, "client.js"), "list ."]);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /a\.py/);
  }],
  ["review.sh passes on the change, with tools that only read", async () => {
    await start("git", ["checkout", "--quiet", "-b", "change"]);
    writeFileSync(join(project, "a.py"), "print(2)\n");
    await start("git", [...author, "commit", "--quiet", "--all", "--message", "Change"]);
    const { code, stderr } = await start(join(resolve(examples), "review.sh"), ["main"]);
    // The offline model cannot review: 3 is its exit code for a question in prose.
    assert.equal(code, 3, stderr);
    const without = await start(join(resolve(examples), "review.sh"), []);
    assert.equal(without.code, 3, without.stderr);
    const unknown = await start(join(resolve(examples), "review.sh"), ["no-such-branch"]);
    assert.equal(unknown.code, 2, unknown.stderr);
    assert.match(unknown.stderr, /no branch no-such-branch here/);
    const show = await adjutant(["sessions", "show", "last"]);
    assert.match(show.stdout, /\+print\(2\)/);
    assert.match(show.stdout, /Review this change/);
  }],
  ["the job of review.yml adds a review to the summary", async () => {
    const job = readFileSync(join(resolve(examples), "review.yml"), "utf8");
    const [, step] = /- run: (docs\/examples\/review\.sh .*)/.exec(job);
    const copy = join(project, "docs", "examples");
    mkdirSync(copy, { recursive: true });
    cpSync(join(examples, "review.sh"), join(copy, "review.sh"));
    await start("git", ["update-ref", "refs/remotes/origin/main", "main"]);
    const summary = join(home, "summary.md");
    const { code, stderr } = await start("sh", ["-c", step], { BASE: "main", GITHUB_STEP_SUMMARY: summary });
    // As above: the offline model cannot review.
    assert.equal(code, 3, stderr);
    assert.match(readFileSync(summary, "utf8"), /not a language model/);
  }],
  ["the team's settings are understood", async () => {
    const { code, stdout } = await adjutant(["config", "check"], trusted);
    assert.equal(code, 0, stdout);
    assert.doesNotMatch(stdout, /error|warning/);
  }],
  ["the agent only reads", async () => {
    const { stdout } = await adjutant(["agents", "show", "reviewer"]);
    assert.match(stdout, /Reviews a change and changes nothing/);
    const { code } = await adjutant(["run", "--mode", "reviewer", "run `touch b`"]);
    assert.notEqual(code, 0);
  }],
  ["the command passes on the log", async () => {
    const { code, stderr } = await adjutant(["run", "--command", "changes", "main", "--allow"], trusted);
    assert.ok(code === 0 || code === 3, stderr);
    const { stdout } = await adjutant(["sessions", "show", "last"]);
    assert.match(stdout, /\/changes main[^]*git log/);
  }],
  ["the hook formats", async () => {
    const replaced = await adjutant(["run", "--allow", "replace `print(2)` with `print(3)  ` in a.py"], trusted);
    assert.equal(replaced.code, 0, replaced.stderr);
    assert.equal(readFileSync(join(project, "a.py"), "utf8"), "print(3)\n");
  }],
  ["the tool loads", async () => {
    const { stdout } = await adjutant(["extensions"], trusted);
    assert.match(stdout, /lines/);
    assert.doesNotMatch(stdout, /failed/);
  }],
  ["the server answers", async () => {
    const { code, stdout, stderr } = await adjutant(
      ["mcp", "call", "notes", "add_note", '{"text":"a"}', "--allow"],
      trusted,
    );
    assert.equal(code, 0, stderr);
    assert.match(stdout, /1 notes/);
  }],
];

process.exit((await run(checks)) ? 0 : 1);

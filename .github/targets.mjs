// The targets that the release workflow builds: its matrix is the only list of them.

import { readFileSync } from "node:fs";

const workflow = new URL("workflows/release.yml", import.meta.url);

/** Returns the rows of the matrix: `{ runner, target, platform, deb }`. */
export function targets() {
  const rows = readFileSync(workflow, "utf8").matchAll(/^\s*- \{ (runner: .*target: .*) \}$/gm);
  const all = [...rows].map(([, row]) => Object.fromEntries(row.split(", ").map((pair) => pair.split(": "))));
  if (all.length === 0) throw new Error("release.yml has no targets");
  return all;
}

/** Returns the name of a target's archive, and of the directory in it, without `.tar.gz`. */
export function archive(version, target) {
  return `adjutant-${version}-${target}`;
}

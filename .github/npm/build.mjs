// Makes the npm packages: node build.mjs VERSION OUT PLATFORM=BINARY…, a platform as Node names it (`linux-x64`).
// Users install OUT/adjutant-acp; it has one optional package for each platform, with the binary.

import { chmodSync, copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "..", "..");
const [version, out, ...binaries] = process.argv.slice(2);
if (!/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version ?? "") || !out || binaries.length === 0) {
  console.error("usage: node build.mjs VERSION OUT PLATFORM=BINARY…");
  process.exit(2);
}

const common = {
  version,
  license: "MIT OR Apache-2.0",
  repository: { type: "git", url: "git+https://github.com/adjutant-agent/adjutant.git" },
  homepage: "https://github.com/adjutant-agent/adjutant#readme",
};

function pack(name, manifest, files) {
  const folder = join(out, name);
  for (const [to, from] of files) {
    mkdirSync(dirname(join(folder, to)), { recursive: true });
    copyFileSync(from, join(folder, to));
  }
  writeFileSync(join(folder, "package.json"), `${JSON.stringify({ name, ...common, ...manifest }, null, 2)}\n`);
  return folder;
}

const licences = ["LICENSE-MIT", "LICENSE-APACHE"].map((file) => [file, join(root, file)]);
const optionalDependencies = {};
for (const each of binaries) {
  const [platform, binary] = each.split("=");
  const [os, cpu] = platform.split("-");
  const name = `adjutant-acp-${platform}`;
  const description = `The binary of adjutant-acp for ${platform}`;
  const folder = pack(name, { description, os: [os], cpu: [cpu] }, [["bin/adjutant", binary], ...licences]);
  chmodSync(join(folder, "bin/adjutant"), 0o755);
  optionalDependencies[name] = version;
}
const description = "adjutant, a coding agent behind your editor: the Agent Client Protocol over stdio";
const manifest = {
  description,
  keywords: ["acp", "agent-client-protocol", "agent", "opencode"],
  bin: { "adjutant-acp": "adjutant-acp.mjs" },
  engines: { node: ">=18" },
  optionalDependencies,
};
const folder = pack("adjutant-acp", manifest, [
  ["adjutant-acp.mjs", join(here, "adjutant-acp.mjs")],
  ["README.md", join(root, "README.md")],
  ...licences,
]);
chmodSync(join(folder, "adjutant-acp.mjs"), 0o755);

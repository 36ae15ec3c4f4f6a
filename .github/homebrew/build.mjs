// Prints the Homebrew formula of a release: node build.mjs VERSION DIST; DIST has the archive of each target of the
// release workflow. Homebrew takes formulas from a tap (a repository `homebrew-…`), into which the file is copied.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { archive, targets } from "../targets.mjs";

const [version, dist] = process.argv.slice(2);
if (!/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version ?? "") || !dist) {
  console.error("usage: node build.mjs VERSION DIST");
  process.exit(2);
}

const repository = "https://github.com/adjutant-agent/adjutant";
const systems = { linux: "on_linux", darwin: "on_macos" };
const processors = { x64: "on_intel", arm64: "on_arm" };

const blocks = Object.entries(systems).map(([os, onSystem]) => {
  const inner = targets()
    .filter((row) => row.platform.startsWith(`${os}-`))
    .map(({ target, platform }) => {
      const onProcessor = processors[platform.split("-")[1]];
      if (onProcessor === undefined) throw new Error(`Homebrew has no processor for ${platform}`);
      const file = `${archive(version, target)}.tar.gz`;
      const sum = createHash("sha256").update(readFileSync(join(dist, file))).digest("hex");
      return `    ${onProcessor} do
      url "${repository}/releases/download/v${version}/${file}"
      sha256 "${sum}"
    end
`;
    });
  return `  ${onSystem} do\n${inner.join("")}  end\n`;
});

process.stdout.write(`class Adjutant < Formula
  desc "Coding agent behind your editor, over the Agent Client Protocol"
  homepage "${repository}"
  version "${version}"
  license any_of: ["MIT", "Apache-2.0"]

${blocks.join("\n")}
  def install
    bin.install "adjutant"
    generate_completions_from_executable(bin/"adjutant", "completions")
    system bin/"adjutant", "man", "--output", man1
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/adjutant --version")
  end
end
`);

// The released programs: the archive as the release workflow makes it, unpacked, and the Debian package, installed with
// dpkg, each in an empty root and run there by an ordinary user, without Node, git, bash and bubblewrap; the npm
// packages, which npx fetches from a registry on loopback; and the files that `cargo binstall`, Homebrew and editors
// read.
// node run.mjs ADJUTANT, from the top of the repository.

import assert from "node:assert/strict";
import { execFile, execFileSync, spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import {
  chmodSync, chownSync, copyFileSync, existsSync, linkSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { archive, targets } from "../../../.github/targets.mjs";
import { run } from "../check.mjs";

const adjutant = resolve(process.argv[2]);
const scratch = mkdtempSync(join(tmpdir(), "adjutant-release-"));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));
const metadata = JSON.parse(
  execFileSync("cargo", ["metadata", "--no-deps", "--offline", "--format-version", "1"], { maxBuffer: 1 << 26 }),
);
const adjutantPackage = metadata.packages.find((each) => each.name === "adjutant");
const { version, repository } = adjutantPackage;
// The target whose archive this machine could run; the build is for its usual C library.
const platform = `${process.platform}-${process.arch}`;
const { target } = targets().find((row) => row.platform === platform) ?? {};
const texts = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

// The program without its symbols, as the workflow builds it.
const program = join(scratch, "adjutant");
if (spawnSync("strip", ["-o", program, adjutant]).status !== 0) copyFileSync(adjutant, program);

/** Makes a root with nothing but the libraries of the program, an empty home and a project. */
function emptyRoot(name) {
  const root = join(scratch, name);
  for (const folder of ["home/user/project", "tmp", "dev"]) mkdirSync(join(root, folder), { recursive: true });
  chmodSync(root, 0o755);
  const found = spawnSync("ldd", [program], { encoding: "utf8" }).stdout ?? "";
  for (const [library] of found.matchAll(/\/\S+(?= \(0x)/g)) {
    mkdirSync(dirname(join(root, library)), { recursive: true });
    copyFileSync(library, join(root, library));
  }
  // In some containers even root may not make devices.
  if (spawnSync("mknod", ["-m", "666", join(root, "dev/null"), "c", "1", "3"]).status !== 0) {
    writeFileSync(join(root, "dev/null"), "", { mode: 0o666 });
  }
  if (process.getuid() === 0) for (const own of ["home/user", "home/user/project", "tmp"]) chownSync(join(root, own), 65534, 65534);
  return root;
}

/** The command line that runs a program in a root: as the user `nobody`, or as this ordinary user. */
function inside(root, command, ...args) {
  const user = process.getuid() === 0 ? ["--setgid", "65534", "--setuid", "65534"] : ["--map-current-user"];
  return ["unshare", [...user, `--root=${root}`, "--wd=/home/user/project", command, ...args]];
}

const env = { HOME: "/home/user", PATH: "/usr/bin:/bin", ADJUTANT_DISABLE_TITLES: "1", ADJUTANT_LOCAL_SERVERS: "none" };
const start = (root, command, ...args) => spawnSync(...inside(root, command, ...args), { env, encoding: "utf8" });

/** Sends a first prompt to an agent of ACP, and waits for the whole answer. */
async function firstAnswer(command, args, options) {
  const begin = performance.now();
  const agent = spawn(command, args, { ...options, stdio: ["pipe", "pipe", "inherit"] });
  const cwd = options.cwd ?? "/home/user/project";
  // An agent that cannot start has no input; its exit code shows that.
  agent.stdin.on("error", () => {});
  const say = (id, method, params) => agent.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
  const capabilities = { fs: { readTextFile: false, writeTextFile: false } };
  say(0, "initialize", { protocolVersion: 1, clientCapabilities: capabilities });
  say(1, "session/new", { cwd, mcpServers: [] });
  let answer = "";
  let first;
  for await (const line of createInterface({ input: agent.stdout })) {
    const message = JSON.parse(line);
    assert.equal(message.error, undefined, line);
    const update = message.params?.update;
    if (message.id === 1) say(2, "session/prompt", { sessionId: message.result.sessionId, prompt: [{ type: "text", text: "Hello" }] });
    if (update?.sessionUpdate === "agent_message_chunk") {
      first ??= performance.now() - begin;
      answer += update.content.text;
    }
    if (message.id === 2) break;
  }
  agent.stdin.end();
  const [code] = await once(agent, "exit");
  assert.equal(code, 0);
  assert.notEqual(answer, "");
  console.log(`      the first answer came after ${Math.round(first)} ms`);
}

/** Runs the first commands of a new user: the version, a first prompt, the doctor. */
async function firstSteps(root, command) {
  const shown = start(root, command, "--version");
  assert.equal(shown.stdout, `adjutant ${version}\n`, shown.stderr);
  await firstAnswer(...inside(root, command, "acp"), { env });

  const doctor = start(root, command, "doctor");
  assert.match(doctor.stdout, new RegExp(`^adjutant +${version.replaceAll(".", "\\.")},`), doctor.stderr);
  assert.match(doctor.stdout, /^git +not found: /m);
  assert.match(doctor.stdout, /^bash +not found: /m);
  assert.match(doctor.stdout, /^bwrap +not found: .*install the package bubblewrap/m);
  const found = JSON.parse(start(root, command, "doctor", "--json").stdout);
  for (const level of ["readOnly", "workspaceWrite"]) assert.notEqual(found.sandbox[level].mechanism, "bwrap");
}

/** Makes the Debian package of the files and the fields in Cargo.toml, as cargo-deb does. */
function debianPackage(architecture) {
  const { assets, maintainer, section, recommends } = adjutantPackage.metadata.deb;
  const tree = join(scratch, "deb");
  for (const [from, to, mode] of assets) {
    const built = from === "target/release/adjutant";
    assert.ok(built || existsSync(from), `${from} does not exist`);
    const path = join(tree, to.endsWith("/") ? join(to, from.split("/").at(-1)) : to);
    mkdirSync(dirname(path), { recursive: true });
    copyFileSync(built ? program : from, path);
    chmodSync(path, parseInt(mode, 8));
  }
  const fields = {
    Package: "adjutant", Version: version, Architecture: architecture, Maintainer: maintainer, Section: section,
    Priority: "optional", Recommends: recommends, Description: adjutantPackage.description,
  };
  mkdirSync(join(tree, "DEBIAN"));
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\n`);
  writeFileSync(join(tree, "DEBIAN", "control"), lines.join(""));
  const file = join(scratch, "adjutant.deb");
  execFileSync("dpkg-deb", ["--root-owner-group", "-Zgzip", "-z1", "--build", tree, file]);
  return file;
}

/** Installs a Debian package into a root that has no others. */
function install(root, file) {
  const database = join(root, "var/lib/dpkg");
  for (const folder of ["updates", "info"]) mkdirSync(join(database, folder), { recursive: true });
  for (const list of ["status", "available"]) writeFileSync(join(database, list), "");
  const dpkg = ["dpkg", `--root=${root}`, "--force-depends", "--force-not-root", "--install", file];
  const command = process.getuid() === 0 ? dpkg : ["unshare", "--map-root-user", ...dpkg];
  // Programs that packages with scripts would need.
  const programs = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` };
  execFileSync(command[0], command.slice(1), { env: programs, stdio: ["ignore", "pipe", "inherit"] });
}

/** Packs a folder as npm does, but fast. */
function packed(folder) {
  const file = `${folder}.tgz`;
  execFileSync("tar", ["-I", "gzip -1", "-cf", file, "--transform", "s,^[.],package,", "-C", folder, "."]);
  return file;
}

/** Serves npm packages on loopback, each a folder with a package.json. */
async function registry(folders) {
  const files = new Map(folders.map((folder) => [folder.split("/").at(-1), packed(folder)]));
  const server = createServer((request, response) => {
    const [, name, kind] = decodeURIComponent(request.url).split("/");
    const file = files.get(name);
    if (file === undefined) return response.writeHead(404).end("{}");
    const data = readFileSync(file);
    if (kind !== undefined) return response.end(data);
    const manifest = JSON.parse(readFileSync(join(file.replace(/\.tgz$/, ""), "package.json"), "utf8"));
    const integrity = `sha512-${createHash("sha512").update(data).digest("base64")}`;
    const tarball = `http://${request.headers.host}/${name}/file.tgz`;
    const versions = { [manifest.version]: { ...manifest, dist: { tarball, integrity } } };
    const document = { name, "dist-tags": { latest: manifest.version }, versions };
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify(document));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

/** Expands a template of `cargo binstall`. */
function expanded(template, target) {
  const values = { name: "adjutant", version, repo: repository, target, bin: "adjutant", "binary-ext": "" };
  return template.replace(/\{ ([\w-]+) \}/g, (_, name) => {
    assert.ok(name in values, `cargo binstall has no ${name}`);
    return values[name];
  });
}

const dist = join(scratch, "dist");
const runs = process.platform === "linux" && spawnSync("unshare", ["--version"]).status === 0;
if (!runs) console.log("no program is run in an empty root: that needs Linux and unshare");

const passed = await run([
  ["the workflow's archive runs in an empty root", async () => {
    const workflow = readFileSync(".github/workflows/release.yml", "utf8");
    const [, step] = workflow.match(/- name: Archive\n +run: \|\n((?: {10}.*\n)+)/) ?? assert.fail("no step makes the archive");
    const script = step.replaceAll("${{ matrix.target }}", target).replaceAll("${{ matrix.platform }}", platform);
    assert.ok(!script.includes("${{"), script);
    const name = archive(version, target);
    assert.match(workflow, /NAME: adjutant-\$\{\{ needs\.version\.outputs\.version \}\}-\$\{\{ matrix\.target \}\}/);
    mkdirSync(join(scratch, "target", target, "release"), { recursive: true });
    linkSync(program, join(scratch, "target", target, "release", "adjutant"));
    for (const text of texts) symlinkSync(resolve(text), join(scratch, text));
    writeFileSync(join(scratch, `${name}.cdx.json`), "{}");
    execFileSync("bash", ["-euo", "pipefail", "-c", script], { cwd: scratch, env: { ...process.env, NAME: name } });
    const root = emptyRoot("archive");
    execFileSync("tar", ["-C", root, "-xzf", join(dist, `${name}.tar.gz`)]);
    for (const text of texts) assert.ok(existsSync(join(root, name, text)), text);
    if (runs) await firstSteps(root, `/${name}/adjutant`);
  }],
  ["dpkg installs the Debian package into an empty root, where it runs", async () => {
    assert.match(adjutantPackage.metadata.deb.recommends, /\bbubblewrap\b.*\bgit\b/);
    if (!runs || spawnSync("dpkg", ["--version"]).status !== 0) return console.log("      skipped: no dpkg here");
    const architecture = execFileSync("dpkg", ["--print-architecture"], { encoding: "utf8" }).trim();
    const root = emptyRoot("debian");
    install(root, debianPackage(architecture));
    for (const text of texts) assert.ok(existsSync(join(root, "usr/share/doc/adjutant", text)), text);
    await firstSteps(root, "/usr/bin/adjutant");
  }],
  ["cargo binstall finds the archive of each target, and the program in it", async () => {
    const { "pkg-url": url, "bin-dir": path, "pkg-fmt": format } = adjutantPackage.metadata.binstall;
    assert.equal(format, "tgz");
    for (const { target } of targets()) {
      assert.equal(expanded(url, target), `${repository}/releases/download/v${version}/${archive(version, target)}.tar.gz`);
    }
    const listed = execFileSync("tar", ["-tzf", join(dist, `${archive(version, target)}.tar.gz`)], { encoding: "utf8" });
    assert.ok(listed.split("\n").includes(expanded(path, target)), listed);
  }],
  ["the Homebrew formula names the archive of each target with its checksum", async () => {
    const all = targets().map((row) => `${archive(version, row.target)}.tar.gz`);
    const own = readFileSync(join(dist, `${archive(version, target)}.tar.gz`));
    // The others cannot be built here.
    for (const file of all) if (!existsSync(join(dist, file))) writeFileSync(join(dist, file), file);
    const formula = execFileSync("node", [".github/homebrew/build.mjs", version, dist], { encoding: "utf8" });
    const pairs = [...formula.matchAll(/url "(.*)"\n +sha256 "(.*)"/g)];
    assert.equal(pairs.length, all.length);
    for (const file of all) {
      const sum = createHash("sha256").update(readFileSync(join(dist, file))).digest("hex");
      const url = `${repository}/releases/download/v${version}/${file}`;
      assert.deepEqual(pairs.filter((pair) => pair[1] === url).map((pair) => pair[2]), [sum], file);
    }
    assert.ok(own.length > 1_000_000);
    const file = join(scratch, "adjutant.rb");
    writeFileSync(file, formula);
    const checked = spawnSync("ruby", ["-c", file], { encoding: "utf8" });
    if (checked.error === undefined) assert.equal(checked.status, 0, checked.stderr);
    // Without its archive, a target is an error and not left out.
    rmSync(join(dist, all.at(-1)));
    assert.notEqual(spawnSync("node", [".github/homebrew/build.mjs", version, dist]).status, 0);
  }],
  ["an editor can read the registry's manifest", async () => {
    const manifest = JSON.parse(readFileSync(".github/registry/agent.json", "utf8"));
    const only = (object, allowed) => assert.deepEqual(Object.keys(object).filter((key) => !allowed.includes(key)), []);
    only(manifest, ["id", "name", "version", "description", "repository", "website", "authors", "license", "license_url", "distribution"]);
    assert.match(manifest.id, /^[a-z][a-z0-9-]*$/);
    assert.equal(manifest.version, version);
    assert.equal(manifest.repository, repository);
    assert.equal(manifest.license, adjutantPackage.license);
    only(manifest.distribution, ["binary", "npx", "uvx"]);
    // The command that an editor starts: npx PACKAGE ARGUMENTS. The package serves an editor without arguments.
    const { npx } = manifest.distribution;
    only(npx, ["package", "args", "env"]);
    assert.deepEqual([npx.package, ...(npx.args ?? [])], [`adjutant-acp@${version}`]);
  }],
  ["npx fetches and starts what the manifest names", async () => {
    const { npx } = JSON.parse(readFileSync(".github/registry/agent.json", "utf8")).distribution;
    const out = join(scratch, "npm");
    execFileSync("node", [".github/npm/build.mjs", version, out, `${platform}=${program}`]);
    const server = await registry(["adjutant-acp", `adjutant-acp-${platform}`].map((name) => join(out, name)));
    const home = join(scratch, "home");
    const cwd = join(home, "project");
    mkdirSync(cwd, { recursive: true });
    const own = {
      // No adjutant that is installed here.
      ...env, HOME: home, PATH: `${dirname(process.execPath)}:/usr/bin:/bin`, npm_config_update_notifier: "false",
      npm_config_registry: `http://127.0.0.1:${server.address().port}/`, npm_config_cache: join(home, "npm"),
    };
    const args = ["--yes", npx.package, ...(npx.args ?? [])];
    const shown = await new Promise((done) => {
      execFile("npx", [...args, "--version"], { cwd, env: own }, (_, stdout, stderr) => done({ stdout, stderr }));
    });
    assert.equal(shown.stdout, `adjutant ${version}\n`, shown.stderr);
    // Once more, from the cache.
    await firstAnswer("npx", args, { cwd, env: own });
    server.close();
  }],
  ["the npm packages are those of the same targets", async () => {
    const workflow = readFileSync(".github/workflows/release.yml", "utf8");
    const published = [...workflow.matchAll(/([\w-]+)=dist\/npm\/([\w-]+)/g)];
    for (const [pair, name, file] of published) assert.equal(name, file, pair);
    assert.deepEqual(published.map(([, name]) => name).sort(), targets().map((row) => row.platform).sort());
  }],
]);
process.exit(passed ? 0 : 1);

// Shared code of the clients: a directory to work in, a provider that counts tokens, and a list of checks with a count
// at the end.

import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** An empty home and an empty project; gone when the process ends. */
export function place() {
  const root = realpathSync(mkdtempSync(join(tmpdir(), "adjutant-client-")));
  const [home, project] = [join(root, "home"), join(root, "project")];
  mkdirSync(home);
  mkdirSync(project);
  process.on("exit", () => rmSync(root, { recursive: true, force: true }));
  // Without settings of this machine, and with the offline model, even if a model server runs.
  const settings = { model: "offline/offline", permission: { edit: "ask", bash: "ask" } };
  mkdirSync(join(home, ".config", "adjutant"), { recursive: true });
  writeFileSync(join(home, ".config", "adjutant", "adjutant.json"), JSON.stringify(settings));
  // A title is a request of its own, which these checks do not expect.
  const env = { HOME: home, PATH: process.env.PATH, TMPDIR: root, ADJUTANT_DISABLE_TITLES: "1" };
  return { home, project, env };
}

/** Returns settings with a provider that counts tokens, because the offline model does not. */
export async function countingProvider() {
  const usage = { prompt_tokens: 120, completion_tokens: 3, total_tokens: 123 };
  const choices = [{ index: 0, delta: { content: "Counted." }, finish_reason: "stop" }];
  const server = createServer((request, response) => {
    request.resume().on("end", () => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(`data: ${JSON.stringify({ choices, usage })}\n\ndata: [DONE]\n\n`);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  server.unref();
  const options = { baseURL: `http://127.0.0.1:${server.address().port}/v1`, apiKey: "none" };
  const models = { m: { limit: { context: 100_000, output: 1_000 } } };
  const npm = "@ai-sdk/openai-compatible";
  return JSON.stringify({ model: "counting/m", provider: { counting: { npm, options, models } } });
}

/** Runs checks one after the other; each is a name and a function that throws. */
export async function run(checks) {
  let failed = 0;
  for (const [name, check] of checks) {
    try {
      await within(60_000, check());
      console.log(`ok    ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL  ${name}\n      ${String(error?.stack ?? error).replaceAll("\n", "\n      ")}`);
    }
  }
  console.log(`${checks.length - failed} passed, ${failed} failed`);
  return failed === 0;
}

/** Fails when a promise takes too long. */
export function within(milliseconds, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing happened for ${milliseconds} ms`)), milliseconds);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

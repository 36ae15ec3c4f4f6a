// Makes real data of OpenCode: starts the program with a mock provider on loopback and lets it hold two conversations
// with invented content. The result is a home directory with its database, and exports of its sessions.
//
// `node data.mjs DIRECTORY` makes `home`, `project`, and `exports` in DIRECTORY.
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

const PICTURE =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

// The answers of the mock provider: for each prompt, by a word in it, its steps in order.
const SCRIPT = {
  "lantern file": [
    { reasoning: "The file comes first.", calls: [["read", { filePath: "lantern.txt" }]] },
    { calls: [["edit", { filePath: "lantern.txt", oldString: "wick: dry", newString: "wick: oiled" }]] },
    { calls: [["bash", { command: "echo lamps; exit 3", description: "Counts the lamps" }]] },
    {
      calls: [
        [
          "todowrite",
          {
            todos: [
              { content: "Oil the wick", status: "completed", priority: "high" },
              { content: "Polish the glass", status: "pending", priority: "low" },
            ],
          },
        ],
      ],
    },
    { calls: [["read", { filePath: "no-such-lamp.txt" }]] },
    { text: "The wick is oiled; the glass still wants polish." },
  ],
  "harbour survey": [
    {
      calls: [
        ["task", { description: "Survey the harbour", prompt: "Count the boats of the inner harbour.", subagent_type: "general" }],
      ],
    },
    { text: "The survey counted seven boats." },
  ],
  "inner harbour": [{ text: "Seven boats." }],
  "tiny picture": [{ text: "A single dot." }],
  "another town": [{ text: "Nothing is done there." }],
};

function textOf(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((part) => part.text ?? "").join("\n");
}

function answer(body) {
  if (!body.tools?.length) {
    const summary = JSON.stringify(body.messages).includes("Relevant Files");
    return { text: summary ? "## Objective\n- Keep the lanterns in order." : "Lanterns of the harbour" };
  }
  const last = body.messages.findLastIndex((message) => message.role === "user");
  const prompt = textOf(body.messages[last].content);
  const step = body.messages.slice(last).filter((message) => message.role === "assistant").length;
  const word = Object.keys(SCRIPT).find((word) => prompt.includes(word));
  return SCRIPT[word]?.[step] ?? { text: "Understood." };
}

function provider() {
  let calls = 0;
  const server = http.createServer((request, response) => {
    let text = "";
    request.on("data", (piece) => (text += piece));
    request.on("end", () => {
      const step = answer(JSON.parse(text));
      response.writeHead(200, { "content-type": "text/event-stream" });
      const send = (delta, finish = null, extra = {}) =>
        response.write(
          `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "lamp-1", choices: [{ index: 0, delta, finish_reason: finish }], ...extra })}\n\n`,
        );
      if (step.reasoning) send({ role: "assistant", reasoning_content: step.reasoning });
      if (step.text) send({ role: "assistant", content: step.text });
      (step.calls ?? []).forEach(([name, args], index) =>
        send({
          role: "assistant",
          tool_calls: [
            { index, id: `call_${++calls}`, type: "function", function: { name, arguments: JSON.stringify(args) } },
          ],
        }),
      );
      const usage = { prompt_tokens: 1200, completion_tokens: 40, total_tokens: 1240, prompt_tokens_details: { cached_tokens: 200 } };
      send({}, step.calls ? "tool_calls" : "stop", { usage });
      response.end("data: [DONE]\n\n");
    });
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

// Returns the program of this machine's platform, installed below `from`.
function program(from) {
  const require = createRequire(path.join(from, "package.json"));
  const name = `opencode-${process.platform === "win32" ? "windows" : process.platform}-${process.arch}`;
  const folder = path.dirname(require.resolve("opencode-ai/package.json"));
  const found = [path.join(folder, "..", name), path.join(folder, "node_modules", name)];
  const bin = found.map((folder) => path.join(folder, "bin", "opencode")).find(existsSync);
  if (!bin) throw new Error(`${name} is not installed`);
  return bin;
}

export async function make(target, from = path.dirname(fileURLToPath(import.meta.url))) {
  const bin = program(from);
  const home = path.join(target, "home");
  const project = path.join(target, "project");
  const exports = path.join(target, "exports");
  [home, project, exports].forEach((folder) => mkdirSync(folder, { recursive: true }));
  const model = await provider();
  const config = {
    autoupdate: false,
    share: "disabled",
    model: "lamps/lamp-1",
    small_model: "lamps/lamp-1",
    permission: "allow",
    provider: {
      lamps: {
        npm: "@ai-sdk/openai-compatible",
        options: { baseURL: `http://127.0.0.1:${model.address().port}/v1`, apiKey: "none" },
        models: {
          "lamp-1": {
            name: "Lamp 1",
            reasoning: true,
            attachment: true,
            modalities: { input: ["text", "image"], output: ["text"] },
            limit: { context: 100000, output: 8000 },
            cost: { input: 1, output: 2, cache_read: 0.5 },
          },
        },
      },
    },
  };
  writeFileSync(path.join(project, "lantern.txt"), "wick: dry\nglass: dull\n");
  writeFileSync(path.join(project, "dot.png"), Buffer.from(PICTURE, "base64"));
  const env = {
    PATH: process.env.PATH,
    HOME: home,
    XDG_DATA_HOME: path.join(home, ".local/share"),
    XDG_CONFIG_HOME: path.join(home, ".config"),
    XDG_CACHE_HOME: path.join(home, ".cache"),
    XDG_STATE_HOME: path.join(home, ".local/state"),
    OPENCODE_CONFIG_CONTENT: JSON.stringify(config),
    OPENCODE_DISABLE_AUTOUPDATE: "1",
    OPENCODE_DISABLE_MODELS_FETCH: "1",
    OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
    GIT_CONFIG_GLOBAL: "/dev/null",
    GIT_CONFIG_SYSTEM: "/dev/null",
  };
  const git = (...words) =>
    execFileSync("git", ["-c", "user.name=Lamp", "-c", "user.email=lamp@example.com", ...words], { cwd: project, env });
  git("init", "-q", "-b", "main");
  git("add", ".");
  git("commit", "-q", "-m", "Lanterns");

  const server = spawn(bin, ["serve", "--port", "0"], { cwd: project, env, stdio: ["ignore", "pipe", "inherit"] });
  try {
    const base = await new Promise((resolve, reject) => {
      let out = "";
      server.stdout.on("data", (piece) => {
        out += piece;
        const found = out.match(/http:\/\/[^\s]+/);
        if (found) resolve(found[0]);
      });
      server.on("exit", (code) => reject(new Error(`opencode serve ended with ${code}: ${out}`)));
    });
    const call = async (method, route, body) => {
      const url = new URL(route, base);
      url.searchParams.set("directory", project);
      const answered = await fetch(url, {
        method,
        headers: { "content-type": "application/json" },
        body: body && JSON.stringify(body),
      });
      const text = await answered.text();
      if (!answered.ok) throw new Error(`${method} ${route}: ${answered.status} ${text}`);
      return text ? JSON.parse(text) : undefined;
    };
    const prompt = (id, text, more = []) =>
      call("POST", `/session/${id}/message`, { parts: [{ type: "text", text }, ...more] });
    const first = await call("POST", "/session", {});
    await prompt(first.id, "Please look after the lantern file.");
    await prompt(first.id, "What does this tiny picture show?", [
      { type: "file", mime: "image/png", filename: "dot.png", url: `data:image/png;base64,${PICTURE}` },
    ]);
    await call("POST", `/session/${first.id}/summarize`, { providerID: "lamps", modelID: "lamp-1" });
    await prompt(first.id, "Order a harbour survey.");
    const second = await call("POST", "/session", { title: "A second town" });
    await prompt(second.id, "What happens in another town?");
    const undone = await prompt(second.id, "This one is taken back.");
    await call("POST", `/session/${second.id}/revert`, { messageID: undone.info.parentID });
    for (const [name, { id }] of Object.entries({ first, second })) {
      const text = execFileSync(bin, ["export", id], { cwd: project, env, stdio: ["ignore", "pipe", "ignore"] });
      writeFileSync(path.join(exports, `${name}.json`), text);
    }
    return { bin, env, home, project, exports, sessions: { first: first.id, second: second.id } };
  } finally {
    server.removeAllListeners("exit");
    server.kill();
    model.close();
    model.closeAllConnections();
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const made = await make(path.resolve(process.argv[2]));
  console.log(JSON.stringify(made.sessions));
}

// The host of a session's custom tools and plugins: reads requests, one line of JSON each, from standard input and
// writes answers to standard output. Output of the extensions goes to standard error. The host ends with its input.
import fs from "node:fs"
import path from "node:path"
import { Buffer } from "node:buffer"
import module from "node:module"
import { spawn, spawnSync } from "node:child_process"
import { fileURLToPath, pathToFileURL } from "node:url"
import util from "node:util"

const BUN = typeof Bun !== "undefined"
const DENO = typeof Deno !== "undefined"
/** The runtime with its version. */
const RUNTIME = BUN ? `Bun ${Bun.version}` : DENO ? `Deno ${Deno.version.deno}` : `Node ${process.versions.node}`
const out = process.stdout.write.bind(process.stdout)
process.stdout.write = (...all) => process.stderr.write(...all)
// An extension must not end the process, because it would end all the others.
const exit = process.exit.bind(process)
process.exit = (code) => { throw new Error(`it called process.exit(${code ?? ""})`) }
for (const word of ["log", "info", "debug"]) console[word] = (...all) => console.error(...all)

const send = (message) => out(JSON.stringify(message) + "\n")
const log = (level, text) => send({ method: "log", params: { level, text: String(text).slice(0, 4000) } })

let asked = 0
const open = new Map()
/** Sends a request to adjutant. */
function ask(method, params) {
  const id = ++asked
  return new Promise((resolve, reject) => {
    open.set(id, { resolve, reject })
    send({ id, method, params })
  })
}

// ---- modules ----------------------------------------------------------------------------------------------------

/** The source of the module hooks that strip types if the runtime does not, with the first package for it that the project has. */
const STRIPPERS = `
import module, { createRequire } from "node:module"
import fs from "node:fs"
import path from "node:path"
import { spawnSync } from "node:child_process"
import { fileURLToPath, pathToFileURL } from "node:url"
const TS = /\\.[cm]?tsx?$/
function strip(url) {
  const file = fileURLToPath(url), source = fs.readFileSync(file, "utf8"), tsx = file.endsWith("x")
  for (const mode of module.stripTypeScriptTypes && !tsx ? ["transform", "strip"] : []) {
    try { return module.stripTypeScriptTypes(source, { mode, sourceUrl: url }) } catch (e) {
      if (e.code !== "ERR_INVALID_ARG_VALUE" && e.code !== "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX") throw e
    }
  }
  const require = createRequire(file)
  for (const base of [file, ...(globalThis.adjutantBases ?? [])]) {
    const from = base === file ? require : createRequire(path.join(base, "x.js"))
    const get = (name) => { try { return from(name) } catch { return undefined } }
    const viaTsx = () => { try { return createRequire(from.resolve("tsx/package.json"))("esbuild") } catch { return undefined } }
    const esbuild = get("esbuild") ?? viaTsx()
    if (esbuild) return esbuild.transformSync(source, { loader: tsx ? "tsx" : "ts", format: "esm", target: "node20", sourcefile: file }).code
    const ts = get("typescript")
    if (ts?.transpileModule) {
      const done = ts.transpileModule(source, { fileName: file, reportDiagnostics: true, compilerOptions: { module: 99, target: 9, jsx: 2 } })
      const wrong = done.diagnostics?.find((one) => one.category === 1)
      if (wrong) {
        const at = wrong.file?.getLineAndCharacterOfPosition(wrong.start ?? 0)
        throw new SyntaxError(ts.flattenDiagnosticMessageText(wrong.messageText, " ") + " (" + file + ":" + ((at?.line ?? 0) + 1) + ")")
      }
      return done.outputText
    }
    const sucrase = get("sucrase")
    if (sucrase) return sucrase.transform(source, { transforms: tsx ? ["typescript", "jsx"] : ["typescript"], filePath: file }).code
  }
  const base = (globalThis.adjutantBases ?? []).find((base) => file.startsWith(base + path.sep)) ?? path.dirname(file)
  let why = ""
  if (globalThis.adjutantProgram && !tsx) {
    const done = spawnSync(globalThis.adjutantProgram, ["strip-types"], { input: source, encoding: "utf8", maxBuffer: 64 << 20 })
    if (done.status === 0) return done.stdout
    why = done.stderr ? " (" + done.stderr.trim().replace(/^adjutant: /, "") + ")" : ""
  }
  if (tsx) throw new Error("this runtime does not compile JSX. Install a package that does with 'npm install --prefix " + base + " esbuild'")
  throw new Error("Node " + process.versions.node + " does not run " + (why ? "this " : "") + "TypeScript" + why + ". Install a newer one with 'nvm install 22', or a package that removes types with 'npm install --prefix " + base + " esbuild'")
}
const standIn = (specifier) => {
  const name = specifier.replace(/\\/tool$/, "")
  return name === "@opencode-ai/plugin" || specifier === "@opencode-ai/sdk" ? globalThis.adjutantStandIn : undefined
}
const near = (specifier, parent) => {
  if (!/^\\.\\.?\\//.test(specifier) || !parent?.startsWith("file:")) return
  const at = fileURLToPath(new URL(specifier, parent))
  const bare = at.replace(/\\.[cm]?js$/, "")
  for (const file of [at, bare + ".ts", bare + ".tsx", bare + ".mts", at + ".ts", at + ".js", at + ".mjs", path.join(at, "index.ts"), path.join(at, "index.js")])
    if (fs.existsSync(file) && fs.statSync(file).isFile()) return pathToFileURL(file).href
}
const words = (url) => {
  if (!url.startsWith("file:") || !/\\.(txt|md)$/.test(url)) return
  return { format: "module", source: "export default " + JSON.stringify(fs.readFileSync(fileURLToPath(url), "utf8")), shortCircuit: true }
}
const esm = (url) => {
  if (!url.startsWith("file:") || !/\\.js$/.test(url)) return false
  for (let dir = path.dirname(fileURLToPath(url)); ; dir = path.dirname(dir)) {
    const manifest = path.join(dir, "package.json")
    if (fs.existsSync(manifest)) {
      try { const type = JSON.parse(fs.readFileSync(manifest, "utf8")).type; if (type) return false } catch {}
      break
    }
    if (dir === path.dirname(dir)) break
  }
  return /^\\s*(import|export)\\b/m.test(fs.readFileSync(fileURLToPath(url), "utf8"))
}
`
const ASYNC = `${STRIPPERS}
export function initialize(given) { globalThis.adjutantStandIn = given.standIn; globalThis.adjutantBases = given.bases; globalThis.adjutantProgram = given.program }
export async function resolve(specifier, context, next) {
  try { return await next(specifier, context) } catch (e) {
    const url = standIn(specifier) ?? near(specifier, context.parentURL)
    if (!url) throw e
    return { url, shortCircuit: true }
  }
}
export async function load(url, context, next) {
  if (TS.test(url) && url.startsWith("file:")) return { format: "module", source: strip(url), shortCircuit: true }
  if (esm(url)) return { format: "module", source: fs.readFileSync(fileURLToPath(url), "utf8"), shortCircuit: true }
  return words(url) ?? next(url, context)
}
`
const SYNC = `${STRIPPERS}
export default {
  resolve(specifier, context, next) {
    try { return next(specifier, context) } catch (e) {
      const url = standIn(specifier) ?? near(specifier, context.parentURL)
      if (!url) throw e
      return { url, shortCircuit: true }
    }
  },
  load(url, context, next) {
    if (TS.test(url) && url.startsWith("file:")) return { format: "module", source: strip(url), shortCircuit: true }
    if (esm(url)) return { format: "module", source: fs.readFileSync(fileURLToPath(url), "utf8"), shortCircuit: true }
    return words(url) ?? next(url, context)
  },
}
`
const data = (source) => "data:text/javascript;base64," + Buffer.from(source).toString("base64")

/** Prepares the runtime: strips types, by `program` if there is no other way, and provides `@opencode-ai/plugin`, the project's own or the replacement. */
async function prepare(standInSource, bases, program) {
  const url = data(standInSource)
  globalThis.adjutantStandIn = url
  globalThis.adjutantBases = bases
  globalThis.adjutantProgram = program
  if (BUN) {
    const own = await import(url)
    const found = bases.some((base) => fs.existsSync(path.join(base, "node_modules/@opencode-ai/plugin/package.json")))
    if (!found)
      Bun.plugin({
        name: "adjutant",
        setup(build) {
          for (const name of ["@opencode-ai/plugin", "@opencode-ai/plugin/tool"])
            build.module(name, () => ({ exports: { ...own }, loader: "object" }))
        },
      })
  } else if (DENO) return
  else if (module.registerHooks) module.registerHooks((await import(data(SYNC))).default)
  else if (module.register) module.register(data(ASYNC), { data: { standIn: url, bases, program } })
}

/** Returns the entry file of a package. */
function entry(dir) {
  const manifest = JSON.parse(fs.readFileSync(path.join(dir, "package.json"), "utf8"))
  const pick = (value) => {
    if (typeof value === "string") return value
    if (Array.isArray(value)) return value.map(pick).find(Boolean)
    if (value && typeof value === "object")
      for (const key of [...(BUN ? ["bun"] : []), "node", "import", "module", "default", "require"]) {
        const found = pick(value[key])
        if (found) return found
      }
  }
  const all = manifest.exports
  const own = all && typeof all === "object" && !Array.isArray(all)
  const dotted = own && Object.keys(all).some((key) => key.startsWith("."))
  const exported = pick(dotted ? (all["./server"] ?? all["."]) : all)
  const file = exported ?? manifest.module ?? manifest.main ?? "index.js"
  const at = path.join(dir, file)
  return fs.existsSync(at) && fs.statSync(at).isFile() ? at : [at + ".js", path.join(at, "index.js")].find((one) => fs.existsSync(one)) ?? at
}

// ---- schemas ----------------------------------------------------------------------------------------------------

/** Returns the JSON Schema of an argument's declaration: the replacement's, zod's (3 or 4), or plain JSON Schema. */
function schemaOf(type) {
  if (!type || typeof type !== "object") return {}
  if (typeof type.toJSON === "function" && type.adjutant) return type.toJSON()
  const old = type._def
  const def = type._zod?.def ?? old
  if (!def) return type
  if (typeof type.toJSONSchema === "function") {
    try {
      const { $schema, ...rest } = type.toJSONSchema({ unrepresentable: "any", io: "input" })
      return rest
    } catch {}
  }
  const kind = def.type && typeof def.type === "string" ? def.type : String(def.typeName ?? "").replace(/^Zod/, "").toLowerCase()
  const about = type.description ?? def.description
  const said = (schema) => (about ? { ...schema, description: about } : schema)
  const inner = def.innerType ?? def.schema ?? def.in
  switch (kind) {
    case "string": return said({ type: "string" })
    case "number": case "int": {
      const whole = def.checks?.some?.((one) => one.kind === "int" || one._zod?.def?.format === "safeint")
      return said({ type: whole ? "integer" : "number" })
    }
    case "boolean": return said({ type: "boolean" })
    case "enum": case "nativeenum": return said({ type: "string", enum: Object.values(def.entries ?? def.values ?? {}) })
    case "literal": return said({ enum: def.values ? [...def.values] : [def.value] })
    case "array": return said({ type: "array", items: schemaOf(def.element ?? def.type) })
    case "object": return said(objectOf(typeof def.shape === "function" ? def.shape() : def.shape))
    case "record": return said({ type: "object", additionalProperties: schemaOf(def.valueType) })
    case "union": case "discriminatedunion": return said({ anyOf: [...def.options.values()].map(schemaOf) })
    case "optional": case "default": case "nullable": case "effects": case "readonly": case "catch": case "pipe": case "branded": case "prefault":
      return said(inner ? schemaOf(inner) : {})
    default: return said({})
  }
}
const optional = (type) => {
  if (!type || typeof type !== "object") return false
  if (typeof type.isOptional === "function") { try { return type.isOptional() } catch {} }
  return type.adjutantOptional === true
}
const zodish = (type) => type && typeof type === "object" && (type._def || type._zod || type.adjutant)
function objectOf(shape) {
  if (shape && typeof shape === "object" && shape.type === "object" && !zodish(shape.type)) return shape
  const keys = Object.keys(shape ?? {})
  const properties = Object.fromEntries(keys.map((key) => [key, schemaOf(shape[key])]))
  const required = keys.filter((key) => zodish(shape[key]) ? !optional(shape[key]) : false)
  return { type: "object", properties, ...(required.length ? { required } : {}) }
}
/** Parses the arguments by their declarations. Throws an error that names the mismatches. */
function fitting(shape, args) {
  const fit = { ...args }
  const wrong = []
  for (const [key, type] of Object.entries(shape ?? {})) {
    if (typeof type?.safeParse !== "function") continue
    const read = type.safeParse(args[key])
    if (read.success) { if (read.data !== undefined) fit[key] = read.data }
    else wrong.push(`${key}: ${(read.error?.issues ?? []).map((one) => one.message).join("; ") || read.error?.message || "does not fit"}`)
  }
  if (wrong.length) throw Object.assign(new Error(wrong.join(", ")), { arguments: true })
  return fit
}

// ---- interfaces for extensions ----------------------------------------------------------------------------------

/** Bun's shell, or the part of it that works with sh. */
async function shell(cwd) {
  if (BUN) return Bun.$
  const quoted = (value) => Array.isArray(value) ? value.map(quoted).join(" ")
    : value && typeof value === "object" && "raw" in value ? String(value.raw) : `'${String(value).replaceAll("'", `'\\''`)}'`
  const make = (base) => {
    const $ = (pieces, ...values) => {
      const line = pieces.reduce((text, piece, at) => text + piece + (at < values.length ? quoted(values[at]) : ""), "")
      let options = { ...base }, running
      const run = () => running ??= new Promise((resolve, reject) => {
        const child = spawn("sh", ["-c", line], { cwd: options.cwd, env: options.env, stdio: ["ignore", "pipe", "pipe"] })
        const stdout = [], stderr = []
        child.stdout.on("data", (piece) => stdout.push(piece))
        child.stderr.on("data", (piece) => stderr.push(piece))
        child.on("error", reject)
        child.on("close", (code) => {
          const done = { stdout: Buffer.concat(stdout), stderr: Buffer.concat(stderr), exitCode: code ?? 1 }
          done.text = () => done.stdout.toString()
          done.json = () => JSON.parse(done.text())
          if (!options.quiet && done.stderr.length) process.stderr.write(done.stderr)
          if (code === 0 || options.nothrow) resolve(done)
          else reject(Object.assign(new Error(`Failed with exit code ${code}: ${line}`), done))
        })
      })
      const set = (key) => (value = true) => { options = { ...options, [key]: value }; return promise }
      const promise = {
        then: (...all) => run().then(...all), catch: (...all) => run().catch(...all), finally: (...all) => run().finally(...all),
        quiet: set("quiet"), nothrow: set("nothrow"), cwd: set("cwd"), env: set("env"),
        throws: (on) => set("nothrow")(!on),
        text: async () => (await (options.quiet = true, run())).text(), json: async () => (await (options.quiet = true, run())).json(),
        lines: async function* () { yield* (await (options.quiet = true, run())).text().split("\n") },
        arrayBuffer: async () => new Uint8Array((await run()).stdout).buffer, blob: async () => new Blob([(await run()).stdout]),
      }
      return promise
    }
    return Object.assign($, {
      cwd: (dir) => make({ ...base, cwd: dir }), env: (env) => make({ ...base, env }), nothrow: () => make({ ...base, nothrow: true }),
      throws: (on) => make({ ...base, nothrow: !on }), escape: (text) => quoted(text), braces: (text) => [text],
    })
  }
  return make({ cwd, env: process.env })
}

/** The parts of Bun that tools use most, for Node. */
function likeBun($) {
  const within = (name) => (dir) => path.join(dir, name)
  const runs = (file) => { try { fs.accessSync(file, fs.constants.X_OK); return fs.statSync(file).isFile() } catch { return false } }
  const file = (at) => {
    const name = at instanceof URL ? fileURLToPath(at) : String(at)
    const text = () => fs.promises.readFile(name, "utf8")
    return {
      name, text, json: async () => JSON.parse(await text()), exists: async () => fs.existsSync(name),
      bytes: async () => new Uint8Array(await fs.promises.readFile(name)),
      arrayBuffer: async () => new Uint8Array(await fs.promises.readFile(name)).buffer,
      get size() { return fs.existsSync(name) ? fs.statSync(name).size : 0 },
    }
  }
  return {
    $, file, env: process.env, argv: process.argv, version: "0.0.0",
    which: (name) => (process.env.PATH ?? "").split(path.delimiter).map(within(name)).find(runs) ?? null,
    sleep: (ms) => new Promise((resolve) => setTimeout(resolve, Number(ms))),
    write: async (to, what) => {
      const data = typeof what === "string" ? what : what?.arrayBuffer ? new Uint8Array(await what.arrayBuffer()) : what
      await fs.promises.writeFile(to?.name ?? (to instanceof URL ? fileURLToPath(to) : to), data)
      return Buffer.byteLength(data)
    },
  }
}

/** The number of prompts whose answers plugins await. That time does not count against the limits of their handlers. */
let prompting = 0
/** The functions to call when there are none. */
const unprompted = []
/** Counts prompts that begin, or end if the number is negative. */
function countPrompts(number) {
  prompting += number
  if (!prompting) for (const go of unprompted.splice(0)) go()
}

/** OpenCode's client for a plugin. Each method sends a request to adjutant, which answers the supported ones. */
function client(file, way = []) {
  return new Proxy(function () {}, {
    get: (_, key) => typeof key === "symbol" || key === "then" || key === "toJSON" ? undefined : client(file, [...way, key]),
    apply: async (_, __, [options]) => {
      const name = way.join(".")
      if (name === "event.subscribe" || name === "global.event") return { stream: listen() }
      const read = { "file.read": fileText, "file.list": fileList }[name]
      const prompts = name === "session.prompt" || name === "session.promptAsync" ? 1 : 0
      countPrompts(prompts)
      const answer = await (read ? read(options ?? {}) : askedOf(file, name, options)).finally(() => countPrompts(-prompts))
      if (answer.none) throw new Error(answer.none)
      if (answer.error && options?.throwOnError) throw new Error(answer.error.message)
      return { data: answer.data, error: answer.error, request: undefined, response: undefined }
    },
  })
}
const askedOf = (file, way, options) => ask("client", { file, way, options: JSON.parse(JSON.stringify(options ?? {})) })

/** Files in the form of OpenCode's client. A plugin could read them directly as well. */
const within = (options) => path.resolve(String(options.query?.path ?? options.path ?? "."))
async function fileText(options) {
  try { return { data: { type: "text", content: await fs.promises.readFile(within(options), "utf8") } } }
  catch (e) { return { error: { message: e.message } } }
}
async function fileList(options) {
  const dir = within(options)
  try {
    const all = await fs.promises.readdir(dir, { withFileTypes: true })
    const one = (entry) => ({
      name: entry.name, path: path.relative(process.cwd(), path.join(dir, entry.name)), absolute: path.join(dir, entry.name),
      type: entry.isDirectory() ? "directory" : "file", ignored: false,
    })
    return { data: all.map(one) }
  } catch (e) { return { error: { message: e.message } } }
}

/** The subscriptions to events. A subscriber that does not read them loses the oldest ones. */
const listeners = new Set()
async function* listen() {
  const mine = { events: [], wake: undefined }
  if (!listeners.size) send({ method: "listens" })
  listeners.add(mine)
  try {
    for (;;) {
      while (mine.events.length) yield mine.events.shift()
      await new Promise((resolve) => { mine.wake = resolve })
    }
  } finally { listeners.delete(mine) }
}
function published(event) {
  for (const one of listeners) {
    if (one.events.push(event) > 1000) one.events.shift()
    one.wake?.()
  }
}

// ---- logins -----------------------------------------------------------------------------------------------------

/** Asks the user during a plugin's login. Throws if there is no answer. */
async function question(words, secret = false) {
  const { data } = await ask("client", { file: "", way: "adjutant.ask", options: { question: words, secret } })
  if (typeof data !== "string") throw new Error("there was no answer")
  return data
}
const say = (words) => ask("client", { file: "", way: "adjutant.say", options: { words } })

/** Returns the login methods that plugins offer for a provider. */
const waysOf = (provider) => plugins.flatMap(({ hooks: { auth } }) => (auth?.provider === provider ? (auth.methods ?? []) : []))
const methods = async ({ provider }) => waysOf(provider).map(({ label, type }) => String(label ?? type))

/** Whether a plugin's question applies after these answers. */
function applies({ when, condition }, inputs) {
  if (typeof condition === "function" && !condition(inputs)) return false
  if (!when) return true
  if (inputs[when.key] === undefined) return false
  return (inputs[when.key] === when.value) === (when.op !== "neq")
}

/** Returns the answer to a plugin's question. Repeats the question a few times after an invalid answer. */
async function answered({ type, message, placeholder, options = [], validate }) {
  for (let left = 5; left > 0; left--) {
    if (type === "select") {
      const list = options.map(({ label, hint }, at) => `  ${at + 1}. ${label}${hint ? ` (${hint})` : ""}`).join("\n")
      const said = (await question(`${message}\n${list}\n: `)).trim()
      const found = options[Number(said) - 1] ?? options.find(({ label, value }) => [label, value].includes(said))
      if (found) return found.value
      await say(`A number from 1 to ${options.length}, please.`)
      continue
    }
    const said = await question(`${message}${placeholder ? ` (such as ${placeholder})` : ""}: `)
    const wrong = validate?.(said)
    if (!wrong) return said
    await say(String(wrong))
  }
  throw new Error("there was no answer that fits")
}

/** Logs in with one of the methods, and returns the plugin's result. */
async function login({ provider, at }) {
  const method = waysOf(provider)[at]
  if (!method) throw new Error("there is no such way to log in")
  const inputs = {}
  for (const prompt of method.prompts ?? []) if (applies(prompt, inputs)) inputs[prompt.key] = await answered(prompt)
  const done = (said) => {
    if (said?.type !== "success") throw new Error(String(said?.error ?? said?.message ?? "the login failed"))
    return said
  }
  if (method.type === "api") {
    const said = typeof method.authorize === "function" ? done(await method.authorize(inputs)) : {}
    const key = said.key ?? (await question("Key: ", true))
    return { ...said, key, metadata: said.metadata ?? inputs }
  }
  const begun = await limited(Promise.resolve(method.authorize(inputs)), 60_000)
  if (begun?.url) await say(`Open this address in a browser:\n\n  ${begun.url}\n`)
  if (begun?.instructions) await say(String(begun.instructions))
  if (begun?.method === "code") return done(await begun.callback((await question("Code: ")).trim()))
  if (typeof begun?.callback !== "function") throw new Error("the plugin says nothing of how to go on")
  await say("Waiting for the login ...")
  return done(await begun.callback())
}

/** A local proxy for adjutant's requests through a plugin's own `fetch`, at an address that cannot be guessed. */
async function relay(base, own) {
  const { createServer } = await import("node:http")
  const { randomUUID } = await import("node:crypto")
  const secret = `/${randomUUID()}`
  const server = createServer(async (request, response) => {
    const stop = new AbortController()
    response.on("close", () => stop.abort())
    try {
      if (!request.url.startsWith(secret)) { response.writeHead(404); return response.end() }
      const pieces = []
      for await (const piece of request) pieces.push(piece)
      const kept = Object.entries(request.headers).filter(([name]) => !/^(host|connection|content-length|accept-encoding|transfer-encoding)$/.test(name))
      const body = pieces.length ? Buffer.concat(pieces).toString() : undefined
      const answer = await own(base + request.url.slice(secret.length), { method: request.method, headers: Object.fromEntries(kept), body, signal: stop.signal })
      const headers = [...answer.headers].filter(([name]) => !/^(connection|content-encoding|content-length|transfer-encoding|set-cookie)$/.test(name))
      response.writeHead(answer.status, Object.fromEntries(headers))
      if (answer.body) for await (const piece of answer.body) if (!response.write(piece)) await new Promise((resolve) => { response.once("drain", resolve); response.once("close", resolve) })
      response.end()
    } catch (e) {
      if (stop.signal.aborted) return
      if (!response.headersSent) response.writeHead(400, { "content-type": "application/json" })
      response.end(JSON.stringify({ error: { message: `the plugin's fetch failed: ${e?.message ?? e}` } }))
    }
  })
  await new Promise((resolve, reject) => { server.once("error", reject); server.listen(0, "127.0.0.1", resolve) })
  server.unref()
  return `http://127.0.0.1:${server.address().port}${secret}`
}

/** Converts a model from OpenCode's form to that of the settings. */
function asSettings(model) {
  const { cost, limit, capabilities: can = {}, api, name, reasoning, temperature, attachment, tool_call, modalities, options, headers } = model
  const takes = can.input && Object.keys(can.input).filter((kind) => can.input[kind])
  const said = {
    id: api?.id ?? model.id, name, limit: limit && { context: limit.context, output: limit.output },
    cost: cost && { input: cost.input, output: cost.output, cache_read: cost.cache?.read ?? cost.cache_read, cache_write: cost.cache?.write ?? cost.cache_write },
    reasoning: can.reasoning ?? reasoning, temperature: can.temperature ?? temperature, attachment: can.attachment ?? attachment,
    tool_call: can.toolcall ?? tool_call, modalities: takes ? { input: takes, output: ["text"] } : modalities,
    options: options && Object.keys(options).length ? options : undefined, headers: headers && Object.keys(headers).length ? headers : undefined,
    provider: api?.npm || api?.url ? { npm: api.npm, api: api.url || undefined } : undefined,
  }
  return JSON.parse(JSON.stringify(said))
}

/** Returns the results of a plugin's `auth` and `provider` hooks as settings. */
async function logins(file, hooks) {
  const { auth, provider } = hooks
  const found = {}
  const known = async (id) => (await askedOf(file, "adjutant.auth", { provider: id })).data
  if (typeof auth?.loader === "function" && auth.provider) {
    const now = await known(auth.provider)
    if (now?.auth) {
      const prices = (models) => Object.fromEntries(Object.entries(models ?? {}).map(([key, { cost }]) => [key, JSON.stringify(cost)]))
      const before = prices(now.provider.models)
      const said = await limited(Promise.resolve(auth.loader(async () => (await known(auth.provider)).auth, now.provider)), 10_000)
      if (said && typeof said === "object") {
        const options = { apiKey: said.apiKey || "plugin", headers: said.headers, baseURL: said.baseURL }
        if (typeof said.fetch === "function") {
          const base = said.baseURL ?? now.base
          if (!base) throw new Error(`nobody knows where ${auth.provider} is: its loader gives no baseURL`)
          options.baseURL = await relay(String(base).replace(/\/+$/, ""), said.fetch)
        }
        // Requests within a subscription have no price, which loaders state in the models that they receive.
        const priced = Object.entries(prices(now.provider.models)).filter(([key, cost]) => before[key] && before[key] !== cost)
        const models = priced.map(([key]) => [key, { cost: asSettings(now.provider.models[key]).cost }])
        found[auth.provider] = { options: JSON.parse(JSON.stringify(options)), models: Object.fromEntries(models) }
      }
    }
  }
  if (typeof provider?.models === "function" && provider.id) {
    const now = await known(provider.id)
    if (now) {
      const models = await limited(Promise.resolve(provider.models(now.provider, { auth: now.auth ?? undefined })), 10_000)
      const all = Object.entries(models ?? {}).map(([key, model]) => [key, asSettings(model)])
      found[provider.id] = { ...found[provider.id], models: { ...found[provider.id]?.models, ...Object.fromEntries(all) } }
    }
  }
  return found
}

// ---- loading ----------------------------------------------------------------------------------------------------

const plugins = []
const tools = new Map()
/** Returns the position of a syntax error in JavaScript, which only Node's own check reports. */
function syntaxAt(file) {
  if (BUN || DENO || !file || !/\.[cm]?js$/.test(file)) return ""
  const kind = /\.cjs$/.test(file) ? "commonjs" : "module"
  const checked = spawnSync(process.execPath, ["--check", `--input-type=${kind}`, "-"], { input: fs.readFileSync(file), timeout: 5000 })
  const line = /^\[stdin\]:(\d+)/m.exec(String(checked.stderr))?.[1]
  return line ? `${file}:${line}` : ""
}
const described = (e, file) => {
  if (e === null || typeof e !== "object" || !("message" in e)) return { message: util.inspect(e, { depth: 2 }).slice(0, 2000), stack: "" }
  const at = e.position ?? e.errors?.[0]?.position
  const place = at?.file ? `${at.file}:${at.line}` : e instanceof SyntaxError ? syntaxAt(file) : ""
  const stack = (place ? `${place}\n` : "") + String(e?.stack ?? e)
  const shown = stack.split("\n").filter((line) => !/\(node:|data:text\/javascript|at async? ?node:/.test(line))
  return { message: String(e?.message ?? e).slice(0, 2000), stack: shown.join("\n").slice(0, 4000) }
}

function addTool(name, made, file) {
  if (!made || typeof made !== "object" || typeof made.execute !== "function") return false
  tools.set(name, { made, file })
  return { name, file, description: String(made.description ?? ""), schema: objectOf(made.args ?? made.parameters) }
}

/** Returns whether a value looks like a tool, but cannot be called. */
const isUnfinished = (made) => made && typeof made === "object" && typeof made.execute !== "function"
  && ["description", "args", "parameters", "execute"].some((key) => key in made)

/** Hooks that are objects. */
const OBJECTS = ["tool", "auth", "provider"]
/**
 * Returns a plugin's hooks, with those of nested objects under their full names as well
 * (`permission: { ask }` is `permission.ask`), the names of all, and the names of hooks that are of another type.
 */
function named(hooks, known) {
  const nested = {}, names = [], wrong = []
  const isPart = (name) => known.some((one) => one.startsWith(name + "."))
  const isObject = (value) => value !== null && typeof value === "object"
  const enter = (value, at) => {
    for (const [key, one] of Object.entries(value)) {
      const name = `${at}.${key}`
      if (isObject(one) && isPart(name)) enter(one, name)
      else if (typeof one === "function" && (known.includes(name) || !at.startsWith("tool"))) {
        nested[name] = one.bind(value)
        names.push(name)
      }
    }
  }
  for (const [key, value] of Object.entries(hooks)) {
    if (value === undefined || value === null || value === false) continue
    if (OBJECTS.includes(key)) isObject(value) ? names.push(key) : wrong.push(key)
    else if (typeof value === "function") names.push(key)
    else if (known.includes(key)) wrong.push(key)
    else if (key.includes(".")) names.push(key)
    if (isObject(value) && isPart(key)) enter(value, key)
  }
  const whole = Object.keys(nested).length ? Object.assign(Object.create(hooks), nested) : hooks
  return { hooks: whole, names: [...new Set(names)], wrong }
}

async function load({ directory, worktree, project, files, config, standIn, bases, program, check, login, known }) {
  process.chdir(directory)
  await prepare(standIn, bases, program)
  const $ = await shell(directory)
  // Many tools written for Bun need no more of it than this.
  if (!BUN) globalThis.Bun ??= likeBun($)
  const result = { tools: [], hooks: [], errors: [], wrong: [], runtime: RUNTIME }
  for (const file of files) {
    try {
      const at = file.package ? entry(file.path) : file.path
      const all = await import(pathToFileURL(at).href)
      if (file.kind === "tool") {
        const name = path.basename(file.path).replace(/\.[^.]+$/, "")
        const unfinished = []
        let any = false
        for (const [key, made] of Object.entries(all)) {
          const own = key === "default" ? name : `${name}_${key}`
          const added = addTool(own, made, file.id)
          if (added) { any = true; result.tools.push(added) }
          else if (isUnfinished(made)) unfinished.push({ file: file.id, tool: own })
        }
        if (any) result.wrong.push(...unfinished)
        else throw new Error("it exports no tool: an object with description, args and execute")
        continue
      }
      if (check) continue
      const input = {
        client: client(file.id), project, directory, worktree, $, serverUrl: new URL("http://adjutant.invalid/"),
        experimental_workspace: { register() {} },
      }
      const own = all.default
      const server = own && typeof own === "object" && typeof own.server === "function" ? own.server : undefined
      // Other exports of a package are not plugins.
      const main = [server ?? (file.package && typeof own === "function" ? own : undefined)].filter(Boolean)
      const functions = main.length ? main : [...new Set(Object.values(all).filter((one) => typeof one === "function"))]
      if (!functions.length) throw new Error("it exports no plugin: a function that gives hooks")
      for (const make of functions) {
        const made = await limited(make(input, file.options), 30_000)
        if (!made || typeof made !== "object") continue
        const { hooks, names, wrong } = named(made, known)
        plugins.push({ file: file.id, hooks })
        result.wrong.push(...wrong.map((hook) => ({ file: file.id, hook })))
        // A hook of another type is reported as a whole; a tool may be switched off by a condition.
        const offered = hooks.tool && typeof hooks.tool === "object" ? hooks.tool : {}
        for (const [name, made] of Object.entries(offered)) {
          const added = addTool(name, made, file.id)
          if (added) result.tools.push(added)
          else if (made !== undefined && made !== null && made !== false) result.wrong.push({ file: file.id, tool: name })
        }
        result.hooks.push({ file: file.id, names })
      }
    } catch (e) {
      result.errors.push({ file: file.id, ...described(e, file.package ? undefined : file.path) })
    }
  }
  if (login) return result
  for (const { file, hooks } of plugins) {
    if (typeof hooks.config !== "function") continue
    const before = JSON.stringify(config)
    try { await limited(hooks.config(config), 5_000) } catch (e) { result.errors.push({ file, hook: "config", ...described(e) }) }
    const own = result.hooks.find((one) => one.file === file)
    own.added = { ...own.added, ...added(JSON.parse(before), JSON.parse(JSON.stringify(config))) }
  }
  for (const { file, hooks } of plugins) {
    try {
      const own = result.hooks.find((one) => one.file === file), provider = { ...own.added?.provider }
      for (const [id, said] of Object.entries(await logins(file, hooks)))
        provider[id] = { ...provider[id], ...said, options: { ...provider[id]?.options, ...said.options }, models: { ...provider[id]?.models, ...said.models } }
      if (Object.keys(provider).length) own.added = { ...own.added, provider }
    } catch (e) { result.errors.push({ file, hook: "auth", ...described(e) }) }
  }
  return result
}
/** Returns the changes in settings: whole values, and the entries of objects. */
function added(before, after) {
  const other = (one, two) => JSON.stringify(one) !== JSON.stringify(two)
  const plain = (value) => value && typeof value === "object" && !Array.isArray(value)
  const fresh = Object.keys(after).filter((key) => other(before[key], after[key]))
  const entries = (key) => Object.entries(after[key]).filter(([name, value]) => other(before[key]?.[name], value))
  return Object.fromEntries(fresh.map((key) => [key, plain(after[key]) ? Object.fromEntries(entries(key)) : after[key]]))
}

/** Awaits a promise with a time limit; `patient` does not count the time in which an answer is awaited. */
function limited(promise, limit, patient = false) {
  let timer
  const late = new Promise((_, reject) => {
    const over = () => {
      if (patient && prompting) timer = setTimeout(over, limit)
      else reject(Object.assign(new Error(`it took longer than ${limit} ms`), { late: true }))
    }
    timer = setTimeout(over, limit)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

// ---- requests of adjutant ---------------------------------------------------------------------------------------

const running = new Map()

async function call({ tool, args, call: id, context }) {
  const { made } = tools.get(tool) ?? {}
  if (!made) throw new Error(`there is no tool ${tool}`)
  const fit = fitting(made.args, args)
  const stop = new AbortController()
  running.set(id, stop)
  try {
    const answer = await made.execute(fit, {
      ...context, callID: id, abort: stop.signal,
      metadata: (said) => send({ method: "metadata", params: { call: id, title: said?.title, metadata: said?.metadata } }),
      ask: async (wanted) => {
        const { allowed, why } = await ask("ask", { call: id, permission: wanted?.permission, patterns: wanted?.patterns, always: wanted?.always, metadata: wanted?.metadata })
        if (!allowed) throw new Error(why ?? "it was not allowed")
      },
    })
    if (typeof answer === "string") return { output: answer }
    if (answer && typeof answer === "object" && typeof answer.output === "string")
      return { output: answer.output, title: answer.title, metadata: answer.metadata, attachments: answer.attachments }
    return { output: answer === undefined ? "" : util.inspect(answer, { depth: 6, maxStringLength: 10_000 }), odd: typeof answer }
  } finally {
    running.delete(id)
  }
}

/** Runs a hook of all plugins, one after the other; each may change `output`. */
async function hook({ name, input, output, limit }) {
  const ran = []
  for (const { file, hooks } of plugins) {
    const own = hooks[name]
    if (typeof own !== "function") continue
    const before = JSON.stringify(output), began = performance.now()
    const one = { file }
    try {
      await limited(own.call(hooks, input, output), limit)
    } catch (e) {
      Object.assign(one, { error: described(e), late: e?.late === true })
    }
    one.ms = performance.now() - began
    try {
      one.changed = JSON.stringify(output) !== before
    } catch (e) {
      // A value that is not JSON is not an answer.
      Object.assign(one, { error: described(e), changed: false })
      output = JSON.parse(before)
    }
    ran.push(one)
    if (one.error && name === "tool.execute.before" && !one.late) break
  }
  return { output, ran }
}

/** The queue of events for hooks, which are handled one after the other, and its length. */
let heard = Promise.resolve()
let unheard = 0
/** The batches that wait until the queue is short again. */
const held = []
const MAX_UNHEARD = 100
/** Accepts a batch of events. Answers when there is room for more. */
async function events({ events }) {
  const hooked = plugins.some(({ hooks }) => typeof hooks.event === "function")
  for (const event of events) {
    published(event)
    if (!hooked) continue
    unheard += 1
    heard = heard.then(() => deliver(event)).finally(() => {
      unheard -= 1
      if (unheard <= MAX_UNHEARD) for (const go of held.splice(0)) go()
    })
  }
  if (unheard > MAX_UNHEARD) await new Promise((resolve) => held.push(resolve))
}
async function deliver(event) {
  for (const { file, hooks } of plugins) {
    if (typeof hooks.event !== "function") continue
    try { await limited(hooks.event({ event }), 5_000, true) } catch (e) { send({ method: "failed", params: { file, hook: "event", ...described(e) } }) }
  }
}

/** Resolves when all events so far are handled, or after the limit; waits a little longer for a prompt in progress. */
async function settled({ limit }) {
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
  await Promise.race([heard, sleep(limit)])
  const end = Date.now() + 1_000
  while (prompting && Date.now() < end) {
    await Promise.race([new Promise((resolve) => unprompted.push(resolve)), sleep(end - Date.now())])
    // The plugin may go on with another prompt.
    await sleep(0)
  }
  return {}
}

/** Answers if the runtime can do what the host needs. */
function greet() {
  if (BUN || DENO || module.registerHooks || module.register) return { runtime: RUNTIME }
  throw new Error(`${RUNTIME} is too old: 20.6 is needed`)
}

const METHODS = { greet, load, call, hook, events, settled, methods, login }

async function answer({ id, method, params }) {
  if (method === "abort") return running.get(params.call)?.abort(new Error("the user cancelled"))
  const own = METHODS[method]
  try {
    if (!own) throw new Error(`no method ${method}`)
    const result = await own(params)
    if (id !== undefined) send({ id, result: result ?? null })
  } catch (e) {
    if (id !== undefined) send({ id, error: { ...described(e), arguments: e?.arguments === true } })
  }
}

async function end() {
  const all = plugins.map(({ hooks }) => typeof hooks.dispose === "function" && limited(Promise.resolve(hooks.dispose()), 500).catch(() => {}))
  await Promise.all(all)
  exit(0)
}

export default async function host(lines) {
  process.on("unhandledRejection", (e) => send({ method: "failed", params: { ...described(e) } }))
  process.on("uncaughtException", (e) => send({ method: "failed", params: { ...described(e) } }))
  for (;;) {
    const { value, done } = await lines.next()
    if (done) return end()
    let message
    try { message = JSON.parse(value) } catch { continue }
    if (message.method) answer(message)
    else {
      const waiting = open.get(message.id)
      open.delete(message.id)
      if (message.error) waiting?.reject(new Error(message.error.message))
      else waiting?.resolve(message.result)
    }
  }
}

// A tool of the project's own: the model sees `lines` and may call it.
import { readFile } from "node:fs/promises"
import { tool } from "@opencode-ai/plugin"

export default tool({
  description: "Counts the lines of a file.",
  args: { path: tool.schema.string().describe("Path of the file") },
  async execute({ path }) {
    const text = await readFile(path, "utf8")
    return `${text.split("\n").length - 1} lines`
  },
})

// Replaces @opencode-ai/plugin if the project has not installed it: `tool`, and `tool.schema` with the zod types
// that are usual in declarations of arguments.
class Type {
  adjutant = true
  constructor(schema, check) {
    this.schema = schema
    this.check = check ?? (() => undefined)
  }
  get adjutantOptional() { return this.absent === true }
  copy(change) { return Object.assign(Object.create(Object.getPrototypeOf(this)), this, change) }
  with(schema, check) {
    const before = this.check
    return this.copy({ schema: { ...this.schema, ...schema }, check: (value) => before(value) ?? check?.(value) })
  }
  toJSON() { return this.schema }
  describe(description) { return this.with({ description }) }
  meta(meta) { return this.with(meta) }
  optional() { return this.copy({ absent: true }) }
  nullish() { return this.nullable().optional() }
  nullable() { const own = this; return this.copy({ check: (value) => (value === null ? undefined : own.check(value)) }) }
  default(value) { return this.copy({ absent: true, fallback: value, schema: { ...this.schema, default: value } }) }
  refine(good, said) { return this.with({}, (value) => (good(value) ? undefined : said?.message ?? said ?? "is not valid")) }
  transform(change) { return this.copy({ change }) }
  isOptional() { return this.absent === true }
  safeParse(value) {
    if (value === undefined && this.absent) return { success: true, data: this.fallback }
    const wrong = value === undefined ? "is missing" : this.check(value)
    if (wrong) return { success: false, error: { message: wrong, issues: [{ message: wrong }] } }
    return { success: true, data: this.change ? this.change(value) : value }
  }
  parse(value) {
    const read = this.safeParse(value)
    if (!read.success) throw new Error(read.error.message)
    return read.data
  }
  // Strings and numbers.
  min(least) {
    const key = { string: "minLength", array: "minItems" }[this.schema.type] ?? "minimum"
    return this.with({ [key]: least }, (value) => ((value?.length ?? value) < least ? `is less than ${least}` : undefined))
  }
  max(most) {
    const key = { string: "maxLength", array: "maxItems" }[this.schema.type] ?? "maximum"
    return this.with({ [key]: most }, (value) => ((value?.length ?? value) > most ? `is more than ${most}` : undefined))
  }
  length(n) { return this.min(n).max(n) }
  nonempty() { return this.min(1) }
  positive() { return this.with({ exclusiveMinimum: 0 }, (value) => (value > 0 ? undefined : "is not positive")) }
  nonnegative() { return this.min(0) }
  int() { return this.with({ type: "integer" }, (value) => (Number.isInteger(value) ? undefined : "is no whole number")) }
  regex(pattern) { return this.with({ pattern: pattern.source }, (value) => (pattern.test(value) ? undefined : `does not match ${pattern}`)) }
  url() { return this.with({}, (value) => (URL.canParse(value) ? undefined : "is not an address")) }
  email() { return this }
  uuid() { return this }
  trim() { return this.transform((value) => value.trim()) }
  strict() { return this }
  passthrough() { return this }
}
const is = (type, schema = { type }) => () => new Type({ ...schema }, (value) => (typeof value === type ? undefined : `is no ${type}`))
const any = () => new Type({})
const object = (shape = {}) => {
  const keys = Object.keys(shape)
  const required = keys.filter((key) => !shape[key].isOptional())
  const properties = Object.fromEntries(keys.map((key) => [key, shape[key].toJSON()]))
  const check = (value) => {
    if (!value || typeof value !== "object") return "is no object"
    for (const key of keys) {
      const read = shape[key].safeParse(value[key])
      if (!read.success) return `${key} ${read.error.message}`
    }
  }
  return Object.assign(new Type({ type: "object", properties, ...(required.length ? { required } : {}) }, check), { shape })
}
const schema = {
  string: is("string"),
  number: is("number"),
  int: () => is("number")().int(),
  boolean: is("boolean"),
  any,
  unknown: any,
  null: () => new Type({ type: "null" }),
  literal: (value) => new Type({ enum: [value] }, (given) => (given === value ? undefined : `is not ${JSON.stringify(value)}`)),
  enum: (values) => {
    const all = Array.isArray(values) ? values : Object.values(values)
    return new Type({ type: "string", enum: all }, (value) => (all.includes(value) ? undefined : `is none of ${all.join(", ")}`))
  },
  array: (inner) =>
    new Type({ type: "array", items: inner.toJSON() }, (value) => {
      if (!Array.isArray(value)) return "is no list"
      const at = value.findIndex((one) => !inner.safeParse(one).success)
      return at < 0 ? undefined : `${at} ${inner.safeParse(value[at]).error.message}`
    }),
  object,
  strictObject: object,
  record: (key, value) => new Type({ type: "object", additionalProperties: (value ?? key).toJSON() }),
  union: (all) =>
    new Type({ anyOf: all.map((one) => one.toJSON()) }, (value) => (all.some((one) => one.safeParse(value).success) ? undefined : "fits none of the shapes")),
  optional: (inner) => inner.optional(),
}
schema.nativeEnum = schema.enum
schema.coerce = { number: () => any().transform(Number), string: () => any().transform(String), boolean: () => any().transform(Boolean) }

export function tool(given) { return given }
tool.schema = schema
export const z = schema
export default { tool }

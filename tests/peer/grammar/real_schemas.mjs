// Schemas as people have them: one table of entities, written the way pydantic, zod, MCP servers and OpenAPI documents
// write them, and others by hand. realSchemas() gives [{name, schema}], randomSchemas(count, seed) combinations of
// keywords that nobody would write.

// --- fields: what a kind of field is in JSON Schema; `null` may be added, and `optional` leaves it out of required.
const kinds = {
  text: { type: "string" },
  name: { type: "string", minLength: 1, maxLength: 40 },
  slug: { type: "string", pattern: "^[a-z0-9]+(?:-[a-z0-9]+)*$" },
  code: { type: "string", pattern: "^[A-Z]{2,3}-\\d{3,5}$" },
  secret: { type: "string", pattern: "^(?=.*[0-9])(?=.*[a-z])[a-z0-9]{6,10}$" },
  email: { type: "string", format: "email" },
  url: { type: "string", format: "uri" },
  id: { type: "string", format: "uuid" },
  day: { type: "string", format: "date" },
  moment: { type: "string", format: "date-time" },
  span: { type: "string", format: "duration" },
  count: { type: "integer", minimum: 0 },
  page: { type: "integer", minimum: 1, maximum: 500, default: 1 },
  price: { type: "number", minimum: 0, multipleOf: 0.01 },
  ratio: { type: "number", exclusiveMinimum: 0, maximum: 1 },
  step: { type: "integer", multipleOf: 5, minimum: -50, maximum: 500 },
  flag: { type: "boolean", default: false },
  level: { type: "string", enum: ["low", "medium", "high"] },
  fixed: { const: "v1" },
  tags: { type: "array", items: { type: "string", minLength: 1 }, uniqueItems: true },
  levels: { type: "array", items: { enum: ["a", "b", "c", "d"] }, uniqueItems: true, minItems: 1, maxItems: 3 },
  point: { type: "array", prefixItems: [{ type: "number" }, { type: "number" }], items: false, minItems: 2 },
  scores: { type: "array", items: { type: "integer", minimum: 0, maximum: 10 }, contains: { const: 10 } },
  labels: { type: "object", additionalProperties: { type: "string" }, maxProperties: 4 },
  headers: {
    type: "object", propertyNames: { pattern: "^[A-Za-z-]{1,12}$" }, additionalProperties: { type: "string" },
    minProperties: 2,
  },
  ports: { type: "object", patternProperties: { "^p[0-9]+$": { type: "integer", minimum: 1, maximum: 65535 } },
    additionalProperties: false },
  either: { anyOf: [{ type: "string" }, { type: "integer" }, { type: "array", items: { type: "string" } }] },
  anything: {},
};
const entities = {
  User: { id: "id", name: "name", email: "email", role: "level", "tags?": "tags" },
  Address: { street: "name", "zip?": "code", city: "name", "geo?": "point" },
  Product: { sku: "code", title: "name", price: "price", "stock?": "count", "labels?": "labels" },
  Order: { id: "id", placed: "moment", total: "price", "note?|": "text", "levels?": "levels" },
  Event: { title: "name", starts: "moment", "lasts?": "span", "url?|": "url", kind: "level" },
  Search: { query: "name", "page?": "page", "since?|": "day", "filters?": "labels", "exact?": "flag" },
  File: { path: "slug", size: "count", "headers?": "headers", "modified?|": "moment" },
  Service: { name: "slug", version: "fixed", ports: "ports", "healthy?": "flag", "ratio?": "ratio" },
  Survey: { id: "code", scores: "scores", "comment?|": "text", "weight?": "step" },
  Account: { login: "slug", secret: "secret", "balance?|": "price", either: "either" },
  Note: { text: "text", "meta?": "anything", "tags?": "tags" },
  Ticket: { key: "code", title: "name", priority: "level", "estimate?": "span", "labels?|": "text", watchers: "count" },
  Deploy: { service: "slug", version: "fixed", at: "moment", "rollout?": "ratio", "ports?": "ports", steps: "levels" },
  Metric: { name: "slug", value: "ratio", "unit?": "level", "at?|": "moment", "steps?": "step" },
};
const entries = Object.entries;
const fieldsOf = (fields) => entries(fields).map(([key, kind]) => ({
  name: key.replace(/[?|]+$/, ""), kind, optional: key.includes("?"), nullable: key.includes("|"),
}));
const upper = (name) => name[0].toUpperCase() + name.slice(1);
const without = (object, ...keys) => Object.fromEntries(entries(object).filter(([key]) => !keys.includes(key)));

// --- dialects
function objectOf(fields, write, more = {}) {
  const list = fieldsOf(fields);
  return {
    type: "object",
    properties: Object.fromEntries(list.map((field) => [field.name, write(field)])),
    required: list.filter((field) => !field.optional).map((field) => field.name),
    ...more,
  };
}
const dialects = {
  pydantic: (fields, name) => objectOf(fields, ({ name: field, kind, optional, nullable }) => ({
    ...(nullable ? { anyOf: [kinds[kind], { type: "null" }] } : kinds[kind]),
    ...(optional ? { default: null } : {}), title: upper(field),
  }), { title: name }),
  zod: (fields) => objectOf(fields, ({ kind, nullable }) => {
    const plain = kinds[kind].prefixItems
      ? { ...without(kinds[kind], "prefixItems", "items"), items: kinds[kind].prefixItems, additionalItems: false }
      : kinds[kind];
    if (!nullable) return plain;
    return plain.type && !plain.enum ? { ...plain, type: [plain.type, "null"] } : { anyOf: [plain, { type: "null" }] };
  }, { additionalProperties: false, $schema: "http://json-schema.org/draft-07/schema#" }),
  mcp: (fields, name) => objectOf(fields, ({ name: field, kind, nullable }) => ({
    ...(nullable ? { oneOf: [kinds[kind], { type: "null" }] } : kinds[kind]), description: `The ${field} of the ${name}`,
  }), { additionalProperties: false }),
  openapi: (fields, name) => {
    const parts = fieldsOf(fields);
    const middle = Math.ceil(parts.length / 2);
    const part = (list) => objectOf(Object.fromEntries(list.map((f) =>
      [f.name + (f.optional ? "?" : ""), f.kind])), ({ kind }) => ({ ...kinds[kind], example: null }));
    return {
      $ref: `#/components/schemas/${name}`,
      components: { schemas: {
        Base: part(parts.slice(0, middle)),
        [name]: { allOf: [{ $ref: "#/components/schemas/Base" }, part(parts.slice(middle))], "x-internal": true },
      } },
    };
  },
};

// What entities are put into.
const wrappers = {
  plain: (schema) => schema,
  list: (schema) => ({ type: "object", properties: { items: { type: "array", items: schema, maxItems: 3 },
    next: { type: ["string", "null"] } }, required: ["items"], additionalProperties: false }),
  patch: (schema) => ({ ...without(schema, "required", "title"), minProperties: 1 }),
  result: (schema) => ({ oneOf: [schema, { type: "object", properties: { error: { type: "string" } },
    required: ["error"], additionalProperties: false }] }),
  sealed: (schema) => ({ allOf: [without(schema, "additionalProperties")], unevaluatedProperties: false }),
};

// Pointers in wrapped schemas would no longer fit, so what has them moves to $defs.
function wrapped(wrapper, schema) {
  const { $schema, components, ...inner } = schema;
  return { ...($schema ? { $schema } : {}), ...wrappers[wrapper](inner), ...(components ? { components } : {}) };
}

// --- by hand
const byHand = {
  "discriminated union of pydantic": {
    $defs: {
      Cat: { properties: { kind: { const: "cat", title: "Kind", type: "string" }, lives: { type: "integer", maximum: 9, minimum: 1 } },
        required: ["kind", "lives"], title: "Cat", type: "object" },
      Dog: { properties: { kind: { const: "dog", title: "Kind", type: "string" }, breed: { anyOf: [{ type: "string" }, { type: "null" }], default: null } },
        required: ["kind"], title: "Dog", type: "object" },
    },
    properties: { pet: { discriminator: { mapping: { cat: "#/$defs/Cat", dog: "#/$defs/Dog" }, propertyName: "kind" },
      oneOf: [{ $ref: "#/$defs/Cat" }, { $ref: "#/$defs/Dog" }], title: "Pet" } },
    required: ["pet"], title: "Owner", type: "object",
  },
  "union without discriminator": {
    oneOf: [
      { type: "object", properties: { path: { type: "string" } }, required: ["path"] },
      { type: "object", properties: { url: { type: "string", format: "uri" } }, required: ["url"] },
      { type: "object", properties: { inline: { type: "string" } }, required: ["inline"] },
    ],
  },
  "one of several arguments": {
    type: "object", properties: { id: { type: "integer" }, name: { type: "string" }, email: { type: "string", format: "email" } },
    oneOf: [{ required: ["id"] }, { required: ["name"] }, { required: ["email"] }], additionalProperties: false,
  },
  "credit card needs an address": {
    type: "object", properties: { name: { type: "string" }, card: { type: "string", pattern: "^[0-9]{16}$" }, address: { type: "string" } },
    required: ["name"], dependentRequired: { card: ["address"] },
  },
  "country decides the postal code": {
    type: "object", properties: { country: { enum: ["US", "CA"] }, code: { type: "string" } }, required: ["country", "code"],
    if: { properties: { country: { const: "US" } } },
    then: { properties: { code: { pattern: "^[0-9]{5}(-[0-9]{4})?$" } } },
    else: { properties: { code: { pattern: "^[A-Z][0-9][A-Z] [0-9][A-Z][0-9]$" } } },
  },
  "chain of conditions": {
    type: "object", properties: { type: { enum: ["a", "b", "c"] }, n: { type: "integer" } }, required: ["type"],
    allOf: [
      { if: { properties: { type: { const: "a" } }, required: ["type"] }, then: { required: ["n"] } },
      { if: { properties: { type: { const: "b" } }, required: ["type"] }, then: { properties: { n: { minimum: 10 } } } },
      { if: { properties: { type: { const: "c" } }, required: ["type"] }, then: { not: { required: ["n"] } } },
    ],
  },
  "tree": { $defs: { node: { type: "object", properties: { value: { type: "integer" }, children: { type: "array", maxItems: 2, items: { $ref: "#/$defs/node" } } },
    required: ["value"], additionalProperties: false } }, $ref: "#/$defs/node" },
  "linked list with anchors": { $id: "https://example.org/list", $ref: "#cell",
    $defs: { cell: { $anchor: "cell", type: ["object", "null"], properties: { head: { type: "string", maxLength: 5 }, tail: { $ref: "#cell" } }, required: ["head"], additionalProperties: false } } },
  "set of enums": { type: "array", items: { type: "string", enum: ["read", "write", "admin", "owner"] }, uniqueItems: true, minItems: 2 },
  "set of pairs": { type: "array", uniqueItems: true, items: { type: "array", prefixItems: [{ type: "boolean" }, { enum: [1, 2] }], items: false, minItems: 2 } },
  "set of numbers": { type: "array", uniqueItems: true, items: { type: "number", minimum: 0, maximum: 3 }, minItems: 1 },
  "set of records": { type: "array", uniqueItems: true, items: { type: "object", properties: { id: { type: "integer" }, on: { type: "boolean" } }, required: ["id"] } },
  "not a reserved word": { type: "object", properties: { name: { type: "string", pattern: "^[a-z]+$", not: { enum: ["admin", "root"] } } }, required: ["name"] },
  "no empty patch": { type: "object", properties: { a: { type: "integer" }, b: { type: "integer" } }, not: { maxProperties: 0 } },
  "exactly one admin": { type: "array", items: { type: "object", properties: { role: { enum: ["admin", "user"] } }, required: ["role"], additionalProperties: false },
    contains: { properties: { role: { const: "admin" } } }, minContains: 1, maxContains: 1 },
  "environment": { type: "object", patternProperties: { "^[A-Z_]+$": { type: "string" }, "^[a-z]+Count$": { type: "integer" } }, additionalProperties: false },
  "locale map": { type: "object", propertyNames: { enum: ["en", "de", "fr"] }, additionalProperties: { type: "string", minLength: 1 }, minProperties: 1 },
  "OpenAI strict": { type: "object", properties: { steps: { type: "array", items: { type: "object", properties: { explanation: { type: "string" }, output: { type: "string" } },
    required: ["explanation", "output"], additionalProperties: false } }, final_answer: { type: "string" } }, required: ["steps", "final_answer"], additionalProperties: false },
  "GeoJSON point": { type: "object", properties: { type: { const: "Point" }, coordinates: { type: "array", minItems: 2, maxItems: 3, items: { type: "number", minimum: -180, maximum: 180 } } }, required: ["type", "coordinates"] },
  "compose service": { type: "object", properties: { image: { type: "string" }, command: { oneOf: [{ type: "string" }, { type: "array", items: { type: "string" } }] },
    environment: { oneOf: [{ type: "object", patternProperties: { ".+": { type: ["string", "number", "null"] } }, additionalProperties: false }, { type: "array", items: { type: "string" }, uniqueItems: true }] } },
    patternProperties: { "^x-": {} }, additionalProperties: false },
  "renovate-like": { type: "object", properties: { extends: { oneOf: [{ type: "array", items: { type: "string" } }, { type: "string" }] }, schedule: { anyOf: [{ type: "string" }, { type: "array", items: { type: "string" } }] } } },
  "version or range": { anyOf: [{ type: "string", pattern: "^\\d+\\.\\d+\\.\\d+$" }, { type: "string", pattern: "^[~^]\\d+" }, { const: "latest" }] },
  "keywords without type": { minimum: 2, maxLength: 3, items: { type: "integer" }, required: ["a"] },
  "dynamic tree": { $id: "https://example.org/strict", $dynamicAnchor: "node", type: "object", properties: { data: { type: "boolean" }, kids: { type: "array", items: { $dynamicRef: "#node" }, maxItems: 2 } }, additionalProperties: false },
};

export function realSchemas() {
  const list = entries(byHand).map(([name, schema]) => ({ name, schema }));
  for (const [kind, schema] of entries(kinds)) list.push({ name: `a ${kind}`, schema });
  for (const [dialect, write] of entries(dialects)) {
    for (const [name, fields] of entries(entities)) {
      for (const wrapper of Object.keys(wrappers)) {
        // Keywords of 2019 mean nothing beside draft 7's $schema.
        if (wrapper === "sealed" && dialect === "zod") continue;
        list.push({ name: `${dialect} ${name} ${wrapper}`, schema: wrapped(wrapper, write(fields, name)) });
      }
    }
  }
  return list;
}

// --- at random
function mulberry(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export function randomSchemas(count, seed) {
  const random = mulberry(seed);
  const below = (n) => Math.floor(random() * n);
  const pick = (list) => list[below(list.length)];
  const names = ["a", "b", "ab", "c"];
  const some = (list) => list.filter(() => random() < 0.5);
  const values = [0, 1, 2.5, -3, "a", "b", "ab", "", true, false, null, [1], ["a", 1], { a: 1 }, { b: "a" }, {}];
  const patterns = ["^a", "b$", "^[ab]*$", "a.b", "^.{2}$", "^(a|bb)+$"];
  const map = (make) => Object.fromEntries(some(names).map((name) => [name, make()]));
  const writers = {
    type: () => pick(["string", "integer", "number", "object", "array", "boolean", ["string", "null"], ["object", "array"], ["integer", "string"]]),
    enum: () => [pick(values), pick(values), pick(values)],
    const: () => pick(values),
    minimum: () => below(5) - 2, exclusiveMaximum: () => below(8) / 2, multipleOf: () => pick([1, 2, 0.5, 0.1, 3]),
    minLength: () => below(3), maxLength: () => below(5), pattern: () => pick(patterns),
    format: () => pick(["date", "ipv4", "uuid"]),
    minItems: () => below(3), maxItems: () => below(4), uniqueItems: () => true,
    items: (d) => schema(d), prefixItems: (d) => [schema(d), schema(d)].slice(below(2)),
    contains: (d) => schema(d), minContains: () => below(3), maxContains: () => below(3),
    properties: (d) => map(() => schema(d)), required: () => some(names), additionalProperties: (d) => schema(d),
    patternProperties: (d) => ({ [pick(patterns)]: schema(d) }), propertyNames: (d) => schema(d),
    minProperties: () => below(3), maxProperties: () => below(4),
    dependentRequired: () => ({ [pick(names)]: some(names) }), dependentSchemas: (d) => ({ [pick(names)]: schema(d) }),
    not: (d) => schema(d), if: (d) => schema(d), then: (d) => schema(d), else: (d) => schema(d),
    allOf: (d) => [schema(d), schema(d)], anyOf: (d) => [schema(d), schema(d)], oneOf: (d) => [schema(d), schema(d)],
    unevaluatedProperties: (d) => schema(d), unevaluatedItems: (d) => schema(d), $ref: () => "#/$defs/other",
  };
  function schema(depth) {
    if (depth <= 0 || random() < 0.1) return pick([true, false, {}, { type: "string" }, { type: "integer" }, { const: 1 }]);
    const result = {};
    for (let i = 1 + below(3); i > 0; --i) {
      const keyword = pick(Object.keys(writers));
      result[keyword] = writers[keyword](depth - 1);
    }
    return result;
  }
  const list = [];
  for (let i = 0; i < count; ++i) {
    const made = schema(3);
    if (typeof made === "object") made.$defs = { other: { type: pick(["integer", "object", "string"]), minLength: 1 } };
    list.push({ name: `random ${seed}/${i}`, schema: made });
  }
  return list;
}

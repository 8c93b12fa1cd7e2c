// JSON schemas in the page: whether an answer that is still being written can become JSON, and whether a whole one
// matches its schema. The server enforces the schema token by token; this shows it, with eyes of its own.

const TOKEN = /[ \t\r\n]+|[[\]{}:,]|"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[\da-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?=[\s\]},])|true|false|null/y;
const PART = /^(?:"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[\da-fA-F]{4}))*(?:\\(?:u[\da-fA-F]{0,3})?)?|-?(?:0|[1-9]\d*)?(?:\.\d*)?(?:[eE][+-]?\d*)?|t|tr|tru|f|fa|fal|fals|n|nu|nul)$/;
// What may follow: by what came last, for a value that stands in nothing, an object or a list.
const AFTER = { '': ['v', 'v', 'v'], '{': ['', 'k}', ''], '[': ['', '', 'v]'], ':': ['', 'v', ''], ',': ['', 'k', 'v'],
    v: ['', ',}', ',]'], k: ['', ':', ''] };

// Takes JSON as it comes; `problem` says why no JSON can come of it any more. Linear and without recursion.
export class JsonScanner {
  constructor() {
    this.open = [];
    this.last = this.rest = '';
    this.at = 0;
    this.problem = null;
  }

  feed(text) {
    if (this.problem) return;
    this.rest += text;
    if (this.isText && !/["\\\x00-\x1f]/.test(text)) return;  // a long string goes on
    let used = 0;
    for (;;) {
      TOKEN.lastIndex = used;
      const token = TOKEN.exec(this.rest)?.[0];
      if (!token || (this.problem = this.wrong(token, used))) break;
      used += token.length;
    }
    this.rest = this.rest.slice(used);
    this.at += used;
    this.isText = this.rest[0] === '"' && !/\\[^]{0,5}$/.test(this.rest.slice(-6));
    if (!this.problem && this.rest && !(this.may(this.rest[0] === '"' ? 'k' : 'v')
        || (this.rest[0] === '"' && this.may('v')))) this.problem = this.place('nothing may stand');
    else if (!this.problem && !PART.test(this.rest) && this.rest) this.problem = this.place('no value stands');
  }

  place(what, used = 0) {
    return `${what} at character ${this.at + used + 1}`;
  }
  may(kind) {
    return AFTER[this.last][{ '{': 1, '[': 2 }[this.open.at(-1)] ?? 0].includes(kind);
  }

  // Takes a whole token. What is wrong with its place, or null.
  wrong(token, used) {
    if (/\s/.test(token[0])) return null;
    const isMark = ':,]}'.includes(token);
    const kind = isMark ? token : token[0] === '"' && this.may('k') ? 'k' : 'v';
    if (!this.may(kind)) return this.place(`${JSON.stringify(token.slice(0, 20))} is not expected`, used);
    if ('{['.includes(token)) this.open.push((this.last = token));
    else if (']}'.includes(token)) this.open.pop(), (this.last = 'v');
    else this.last = kind;
    return null;
  }

  // Whether it is all there. A number at the end has no end of its own.
  get isWhole() {
    if (this.rest) this.feed(' ');
    return !this.problem && !this.rest.trim() && this.last === 'v' && !this.open.length;
  }
}

const typeOf = (value) =>
  value === null ? 'null' : Array.isArray(value) ? 'array' : Number.isInteger(value) ? 'integer' : typeof value;
const equal = (a, b) => stable(a) === stable(b);
const stable = (value) => JSON.stringify(value, (_, inner) =>
  inner && typeof inner === 'object' && !Array.isArray(inner)
    ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1))) : inner);
const length = (text) => [...text].length;

export const KNOWN = new Set(['type', 'enum', 'const', 'properties', 'required', 'additionalProperties', 'patternProperties',
    'propertyNames', 'minProperties',
  'maxProperties', 'items', 'prefixItems', 'minItems', 'maxItems', 'uniqueItems', 'contains', 'minLength', 'maxLength', 'pattern',
  'minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf', 'allOf', 'anyOf', 'oneOf', 'not', 'if', 'then', 'else',
      '$ref',
  '$defs', 'definitions', '$schema', '$id', '$comment', 'title', 'description', 'default', 'examples', 'deprecated', 'readOnly',
      'writeOnly']);

// Keywords of the schema that validate() does not look at, such as format.
export function unchecked(schema, found = new Set(), depth = 0) {
  if (!schema || typeof schema !== 'object' || depth > 60) return found;
  for (const [key, value] of Object.entries(schema)) {
    if (!KNOWN.has(key)) found.add(key);
    else if (['properties', 'patternProperties', '$defs', 'definitions'].includes(key)) Object.values(value ?? {}).forEach((inner) =>
        unchecked(inner, found, depth + 1));
    else if (Array.isArray(value) && /Of$|prefixItems/.test(key)) value.forEach((inner) => unchecked(inner, found, depth + 1));
    else if (!['enum', 'const', 'default', 'examples', 'required'].includes(key) && !Array.isArray(value)) unchecked(value, found,
        depth + 1);
  }
  return found;
}

// The first thing in which the value does not match, as "path: what"; null where it matches.
export function validate(value, schema, root = schema, path = '$', depth = 0) {
  if (schema === true || schema === undefined) return null;
  if (schema === false) return `${path}: nothing may stand here`;
  if (depth > 100) return `${path}: the schema refers to itself too often`;
  const check = (inner, innerValue = value, innerPath = path) => validate(innerValue, inner, root, innerPath, depth + 1);
  if (schema.$ref !== undefined) {
    const target = resolve(schema.$ref, root);
    if (target === undefined) return `${path}: ${schema.$ref} is not in the schema`;
    const problem = check(target);
    if (problem) return problem;
  }
  const type = typeOf(value);
  const types = [schema.type ?? []].flat();
  if (types.length && !types.includes(type) && !(type === 'integer'
      && types.includes('number'))) return `${path}: ${type} instead of ${types.join(' or ')}`;
  if (schema.enum && !schema.enum.some((one) => equal(one, value))) return `${path}: not one of the enum`;
  if ('const' in schema && !equal(schema.const, value)) return `${path}: not ${JSON.stringify(schema.const)}`;
  return combined(schema, path, check) ?? (type === 'object' ? object(value, schema, path, check) : type === 'array'
      ? array(value, schema, path, check)
    : type === 'string' ? string(value, schema, path) : /number|integer/.test(type) ? number(value, schema, path) : null);
}

function resolve(ref, root) {
  if (ref === '#') return root;
  if (!ref.startsWith('#/')) return undefined;
  return ref.slice(2).split('/').reduce((at, key) => at?.[decodeURIComponent(key).replaceAll('~1', '/').replaceAll('~0', '~')], root);
}

function combined(schema, path, check) {
  for (const inner of schema.allOf ?? []) {
    const problem = check(inner);
    if (problem) return problem;
  }
  if (schema.anyOf && schema.anyOf.every((inner) => check(inner))) return `${path}: none of anyOf matches`;
  const matches = (schema.oneOf ?? []).filter((inner) => !check(inner)).length;
  if (schema.oneOf && matches !== 1) return `${path}: ${matches} of oneOf match`;
  if (schema.not !== undefined && !check(schema.not)) return `${path}: matches what it must not`;
  if (schema.if !== undefined) return check(check(schema.if) ? schema.else : schema.then);
  return null;
}

function object(value, schema, path, check) {
  const keys = Object.keys(value);
  const missing = (schema.required ?? []).find((key) => !Object.hasOwn(value, key));
  if (missing !== undefined) return `${path}: ${missing} is missing`;
  if (keys.length < (schema.minProperties ?? 0)) return `${path}: too few properties`;
  if (keys.length > (schema.maxProperties ?? Infinity)) return `${path}: too many properties`;
  for (const key of keys) {
    const pattern = Object.keys(schema.patternProperties ?? {}).find((one) => new RegExp(one, 'u').test(key));
    const inner = Object.hasOwn(schema.properties ?? {}, key) ? schema.properties[key]
      : pattern !== undefined ? schema.patternProperties[pattern] : schema.additionalProperties;
    if (inner === false) return `${path}.${key}: not allowed`;
    const problem = (schema.propertyNames !== undefined && check(schema.propertyNames, key, `${path}.${key}`))
        || check(inner, value[key], `${path}.${key}`);
    if (problem) return problem;
  }
  return null;
}

function array(value, schema, path, check) {
  if (value.length < (schema.minItems ?? 0)) return `${path}: too few items`;
  if (value.length > (schema.maxItems ?? Infinity)) return `${path}: too many items`;
  if (schema.uniqueItems && new Set(value.map(stable)).size < value.length) return `${path}: two items are the same`;
  if (schema.contains !== undefined && value.every((item) => check(schema.contains, item))) return `${path}: contains matches no item`;
  for (const [i, item] of value.entries()) {
    const problem = check(schema.prefixItems?.[i] ?? schema.items, item, `${path}[${i}]`);
    if (problem) return problem;
  }
  return null;
}

function string(value, schema, path) {
  if (length(value) < (schema.minLength ?? 0)) return `${path}: too short`;
  if (length(value) > (schema.maxLength ?? Infinity)) return `${path}: too long`;
  try {
    if (schema.pattern && !new RegExp(schema.pattern, 'u').test(value)) return `${path}: does not match the pattern`;
  } catch {
    return `${path}: this browser cannot read the pattern ${schema.pattern}`;
  }
  return null;
}

function number(value, { minimum = -Infinity, maximum = Infinity, exclusiveMinimum = -Infinity, exclusiveMaximum = Infinity,
    multipleOf }, path) {
  if (value < minimum || value <= exclusiveMinimum) return `${path}: too small`;
  if (value > maximum || value >= exclusiveMaximum) return `${path}: too large`;
  const times = value / multipleOf;
  if (multipleOf && Math.abs(times - Math.round(times)) > 1e-9 * Math.max(1,
      Math.abs(times))) return `${path}: no multiple of ${multipleOf}`;
  return null;
}

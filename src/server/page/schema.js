// JSON schemas in the page: whether an answer that is still being written can become JSON, and whether a whole one
// matches its schema. The server enforces the schema token by token; this shows it, with eyes of its own.

// What is wrong with the beginning of a JSON text: {problem, at}, or {isWhole}. Linear and without recursion.
export class JsonScanner {
  constructor() {
    this.stack = [];
    this.expects = 'value';
    this.token = '';
    this.at = 0;
    this.problem = null;
  }

  feed(text) {
    for (const char of text) {
      if (!this.problem) this.take(char);
      ++this.at;
    }
    return this;
  }

  get isWhole() {
    return !this.problem && (this.expects === 'end' || (this.expects === 'word' && !this.stack.length && isWord(this.token)));
  }

  fail(what) {
    this.problem = `${what} at character ${this.at + 1}`;
  }

  valueDone() {
    this.expects = this.stack.length ? 'comma' : 'end';
  }

  take(char) {
    if (this.expects === 'string') return this.inString(char);
    if (this.expects === 'word') {
      if (/[\w.+-]/.test(char)) {
        this.token += char;
        return canBeWord(this.token) ? undefined : this.fail(`“${this.token.slice(0, 20)}” is no value`);
      }
      if (!isWord(this.token)) return this.fail(`“${this.token.slice(0, 20)}” is no value`);
      this.valueDone();
    }
    if (/[ \t\r\n]/.test(char)) return;
    this.structure(char);
  }

  inString(char) {
    if (this.escape) {
      if (this.escape === 'u') {
        if (!/[\da-f]/i.test(char)) return this.fail('a broken escape');
        if (++this.digits === 4) this.escape = null;
      } else if (char === 'u') {
        this.escape = 'u';
        this.digits = 0;
      } else if ('"\\/bfnrt'.includes(char)) {
        this.escape = null;
      } else {
        this.fail('a broken escape');
      }
    } else if (char === '\\') {
      this.escape = 'any';
    } else if (char === '"') {
      this.isKey ? (this.expects = 'colon') : this.valueDone();
    } else if (char < ' ') {
      this.fail('a control character in a string');
    }
  }

  structure(char) {
    const top = this.stack.at(-1);
    const { expects } = this;
    if (expects === 'colon') return char === ':' ? void (this.expects = 'value') : this.fail('a colon is missing');
    if (expects === 'end') return this.fail('text after the end');
    if (expects === 'comma') {
      if (char === ',') return void (this.expects = top === '{' ? 'key' : 'value');
      if (char === (top === '{' ? '}' : ']')) return this.stack.pop(), this.valueDone();
      return this.fail('a comma is missing');
    }
    if ((expects === 'first key' && char === '}') || (expects === 'first value' && char === ']')) {
      return this.stack.pop(), this.valueDone();
    }
    if (expects.endsWith('key') && char !== '"') return this.fail('a key is missing');
    if (char === '"') {
      this.isKey = expects.endsWith('key');
      this.escape = null;
      this.expects = 'string';
    } else if (char === '{' || char === '[') {
      this.stack.push(char);
      this.expects = char === '{' ? 'first key' : 'first value';
    } else if (/[-\dtfn]/.test(char)) {
      this.token = char;
      this.expects = 'word';
    } else {
      this.fail(`“${char}” is no value`);
    }
  }
}

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const isWord = (text) => ['true', 'false', 'null'].includes(text) || NUMBER.test(text);
const canBeWord = (text) =>
  ['true', 'false', 'null'].some((word) => word.startsWith(text)) || /^-?(0|[1-9]\d*)?(\.\d*)?([eE][+-]?\d*)?$/.test(text);

const typeOf = (value) =>
  value === null ? 'null' : Array.isArray(value) ? 'array' : Number.isInteger(value) ? 'integer' : typeof value;
const equal = (a, b) => stable(a) === stable(b);
const stable = (value) => JSON.stringify(value, (_, inner) =>
  inner && typeof inner === 'object' && !Array.isArray(inner)
    ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1))) : inner);
const length = (text) => [...text].length;

export const KNOWN = new Set(['type', 'enum', 'const', 'properties', 'required', 'additionalProperties', 'patternProperties', 'propertyNames', 'minProperties',
  'maxProperties', 'items', 'prefixItems', 'minItems', 'maxItems', 'uniqueItems', 'contains', 'minLength', 'maxLength', 'pattern',
  'minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf', 'allOf', 'anyOf', 'oneOf', 'not', 'if', 'then', 'else', '$ref',
  '$defs', 'definitions', '$schema', '$id', '$comment', 'title', 'description', 'default', 'examples', 'deprecated', 'readOnly', 'writeOnly']);

// Keywords of the schema that validate() does not look at, such as format.
export function unchecked(schema, found = new Set(), depth = 0) {
  if (!schema || typeof schema !== 'object' || depth > 60) return found;
  for (const [key, value] of Object.entries(schema)) {
    if (!KNOWN.has(key)) found.add(key);
    else if (['properties', 'patternProperties', '$defs', 'definitions'].includes(key)) Object.values(value ?? {}).forEach((inner) => unchecked(inner, found, depth + 1));
    else if (Array.isArray(value) && /Of$|prefixItems/.test(key)) value.forEach((inner) => unchecked(inner, found, depth + 1));
    else if (!['enum', 'const', 'default', 'examples', 'required'].includes(key) && !Array.isArray(value)) unchecked(value, found, depth + 1);
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
  if (types.length && !types.includes(type) && !(type === 'integer' && types.includes('number'))) return `${path}: ${type} instead of ${types.join(' or ')}`;
  if (schema.enum && !schema.enum.some((one) => equal(one, value))) return `${path}: not one of the enum`;
  if ('const' in schema && !equal(schema.const, value)) return `${path}: not ${JSON.stringify(schema.const)}`;
  return combined(schema, path, check) ?? (type === 'object' ? object(value, schema, path, check) : type === 'array' ? array(value, schema, path, check)
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
    const problem = (schema.propertyNames !== undefined && check(schema.propertyNames, key, `${path}.${key}`)) || check(inner, value[key], `${path}.${key}`);
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

function number(value, { minimum = -Infinity, maximum = Infinity, exclusiveMinimum = -Infinity, exclusiveMaximum = Infinity, multipleOf }, path) {
  if (value < minimum || value <= exclusiveMinimum) return `${path}: too small`;
  if (value > maximum || value >= exclusiveMaximum) return `${path}: too large`;
  const times = value / multipleOf;
  if (multipleOf && Math.abs(times - Math.round(times)) > 1e-9 * Math.max(1, Math.abs(times))) return `${path}: no multiple of ${multipleOf}`;
  return null;
}

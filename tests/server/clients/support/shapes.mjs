// What JSON must look like: the same keys in the same order, and values that are equal or pass.
import assert from 'node:assert/strict';

// Values that are not known beforehand.
export const text = (value) => typeof value === 'string';
export const count = (value) => Number.isInteger(value) && value >= 0;
export const number = (value) => typeof value === 'number' && Number.isFinite(value);
export const like = (pattern) => (value) => typeof value === 'string' && pattern.test(value);
export const listOf = (shape) => (value, path) => {
  assert.ok(Array.isArray(value), `${path} is a list`);
  value.forEach((item, i) => sameShape(item, shape, `${path}[${i}]`));
  return true;
};

// llama-server's "timings"; the last two are there where tokens were drafted.
export function timings(value, path) {
  const { draft_n, draft_n_accepted, ...rest } = value;
  sameShape(rest, {
    cache_n: count, prompt_n: count, prompt_ms: number, prompt_per_token_ms: number, prompt_per_second: number,
    predicted_n: count, predicted_ms: number, predicted_per_token_ms: number, predicted_per_second: number,
  }, path);
  return draft_n === undefined || (count(draft_n) && count(draft_n_accepted));
}

export function sameShape(value, shape, path = 'it') {
  if (typeof shape === 'function') {
    assert.ok(shape(value, path), `${path} is ${JSON.stringify(value)}, not as in ${shape}`);
  } else if (Array.isArray(shape)) {
    assert.ok(Array.isArray(value), `${path} is a list: ${JSON.stringify(value)}`);
    assert.equal(value.length, shape.length, `${path} has ${shape.length} entries: ${JSON.stringify(value)}`);
    shape.forEach((item, i) => sameShape(value[i], item, `${path}[${i}]`));
  } else if (shape !== null && typeof shape === 'object') {
    assert.ok(value !== null && typeof value === 'object', `${path} is an object: ${JSON.stringify(value)}`);
    assert.deepEqual(Object.keys(value), Object.keys(shape), `${path}: ${JSON.stringify(value)}`);
    for (const key of Object.keys(shape)) sameShape(value[key], shape[key], `${path}.${key}`);
  } else {
    assert.equal(value, shape, path);
  }
}

// Joins neighbours that are pieces of one text: how many there are depends on the pace of model and client. `same`
// says whether two are of one text, `join` appends the second to the first.
export function joined(list, same, join) {
  const out = [];
  for (const item of list) {
    if (out.length > 0 && same(out.at(-1), item)) {
      join(out.at(-1), item);
    } else {
      out.push(structuredClone(item));
    }
  }
  return out;
}

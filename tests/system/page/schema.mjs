// The page's own eye on structured output: whether what there is can become JSON, and whether it matches its schema. Both
// are pure functions, so no browser is needed.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { JsonScanner, unchecked, validate } from '../../../src/server/page/schema.js';

// Fed at once and one character after another: [problem or null, whole].
function scan(text) {
  const [slow, fast] = [new JsonScanner(), new JsonScanner()];
  for (const char of text) slow.feed(char);
  fast.feed(text);
  const result = ({ problem, isWhole }) => [problem !== null, isWhole];
  const [one, other] = [result(slow), result(fast)];
  assert.deepEqual(one, other, text);
  return one;
}

test('every beginning of JSON is good, and only the end is whole', () => {
  for (const text of ['{"a": [1, -2.5e3, true, null, "x\\u00e9\\"\\\\"], "b": {}, "": [[]]}', '"text"', '[]', '12', '-0.5', 'true']) {
    for (let end = 0; end < text.length; ++end) {
      const [isBad, isWhole] = scan(text.slice(0, end));
      assert.equal(isBad, false, text.slice(0, end));
      if (/^[[{"]/.test(text)) assert.equal(isWhole, false, text.slice(0, end));
    }
    assert.deepEqual(scan(text), [false, true], text);
    assert.deepEqual(scan(`${text} \n`), [false, true], text);
  }
});

test('what no JSON begins with is bad at once', () => {
  for (const text of ['A', '[1,]', '{,', '{"a":1,}', '{"a" 1', '{1', '[1 2', '{}x', '[}', 'trux', '01', '"\\x', '"\n"', "'a'", '{"a":}', ']', 'nulll', '[1]]', '"a" "b"']) {
    assert.equal(scan(text)[0], true, text);
  }
});

test('a long string takes no longer than its length', () => {
  const scanner = new JsonScanner();
  const begin = performance.now();
  scanner.feed('"');
  for (let i = 0; i < 20000; ++i) scanner.feed('some words ');
  scanner.feed('"');
  assert.ok(scanner.isWhole);
  assert.ok(performance.now() - begin < 1000);
});

const CASES = [
  [{ type: 'integer' }, [1, 2.0], [1.5, '1', null]],
  [{ type: ['string', 'null'] }, ['a', null], [1, []]],
  [{ enum: [1, { a: [2] }] }, [1, { a: [2] }], [2, { a: 2 }]],
  [{ const: { a: 1, b: 2 } }, [{ b: 2, a: 1 }], [{ a: 1 }]],
  [{ properties: { a: { type: 'string' } }, required: ['a'], additionalProperties: false }, [{ a: 'x' }, 'no object'], [{}, { a: 1 }, { a: 'x', b: 1 }]],
  [{ patternProperties: { '^x': { type: 'number' } }, additionalProperties: { type: 'string' } }, [{ x1: 1, y: 's' }], [{ x1: 's' }, { y: 1 }]],
  [{ minProperties: 1, maxProperties: 2, propertyNames: { maxLength: 2 } }, [{ a: 1 }], [{}, { a: 1, b: 2, c: 3 }, { long: 1 }]],
  [{ items: { minimum: 2 }, minItems: 1, maxItems: 2, uniqueItems: true }, [[2], [2, 3]], [[], [1], [2, 2], [2, 3, 4]]],
  [{ prefixItems: [{ type: 'string' }], items: { type: 'number' } }, [['a', 1], []], [[1], ['a', 'b']]],
  [{ contains: { const: 7 } }, [[1, 7]], [[1]]],
  [{ minLength: 2, maxLength: 3, pattern: '^\\p{L}+$' }, ['äöü', '😀'.length === 2 ? 'ab' : 'ab'], ['a', 'abcd', 'a1']],
  [{ exclusiveMinimum: 0, maximum: 1, multipleOf: 0.1 }, [0.3, 1], [0, 1.1, 0.25]],
  [{ anyOf: [{ type: 'string' }, { minimum: 5 }] }, ['a', 6], [4]],
  [{ oneOf: [{ minimum: 5 }, { maximum: 7 }] }, [4, 8], [6]],
  [{ allOf: [{ minimum: 5 }], not: { const: 6 } }, [5], [4, 6]],
  [{ if: { type: 'string' }, then: { minLength: 2 }, else: { minimum: 0 } }, ['ab', 0], ['a', -1]],
  [{ $defs: { tree: { type: 'object', properties: { kids: { type: 'array', items: { $ref: '#/$defs/tree' } } } } }, $ref: '#/$defs/tree' }, [{ kids: [{ kids: [] }] }], [{ kids: [1] }]],
  [true, [1], []],
  [false, [], [1]],
];

test('values match their schemas, or it is said where not', () => {
  for (const [schema, good, bad] of CASES) {
    for (const value of good) assert.equal(validate(value, schema), null, `${JSON.stringify(value)} and ${JSON.stringify(schema)}`);
    for (const value of bad) assert.match(String(validate(value, schema)), /^\$/, `${JSON.stringify(value)} and ${JSON.stringify(schema)}`);
  }
  assert.equal(validate({ a: [{ b: 1 }] }, { properties: { a: { items: { properties: { b: { type: 'string' } } } } } }), '$.a[0].b: integer instead of string');
});

test('a schema that refers to itself without end is no endless loop', () => {
  assert.match(validate(1, { $ref: '#' }), /refers to itself/);
});

test('what is not checked is named', () => {
  assert.deepEqual([...unchecked({ format: 'date', properties: { format: { type: 'string', contentEncoding: 'base64' } }, anyOf: [{ minContains: 2 }] })], ['format', 'contentEncoding', 'minContains']);
  assert.deepEqual([...unchecked({ type: 'object', properties: { title: { enum: [{ odd: 1 }] } }, required: ['title'] })], []);
});

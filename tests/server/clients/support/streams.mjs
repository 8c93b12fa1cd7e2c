// Requests without any client library, and their answers byte by byte.
import assert from 'node:assert/strict';

export async function post(url, body, headers = {}) {
  return fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
}

// The answer's status and JSON.
export async function ask(url, body, headers) {
  const response = await post(url, body, headers);
  return { status: response.status, headers: response.headers, body: await response.json() };
}

// The events of a whole stream of server-sent events: {event, data} with data as JSON or, of "[DONE]", as text, and
// {comment}. Anything else between two empty lines is an error.
export function parseEvents(text) {
  assert.ok(text === '' || text.endsWith('\n\n'), `a stream ends with an empty line: ${JSON.stringify(text.slice(-80))}`);
  return text.split('\n\n').slice(0, -1).map((block) => {
    if (block.startsWith(': ')) return { comment: block.slice(2) };
    const lines = block.split('\n');
    const event = lines.length === 2 ? /^event: (\S+)$/.exec(lines[0])?.[1] : undefined;
    const data = /^data: (.*)$/.exec(lines.at(-1))?.[1];
    assert.ok(data !== undefined && (lines.length === 1 || event), `no event: ${JSON.stringify(block)}`);
    return { ...(event && { event }), data: data === '[DONE]' ? data : JSON.parse(data) };
  });
}

export async function events(url, body, headers) {
  const response = await post(url, body, headers);
  assert.equal(response.status, 200, response.status === 200 ? '' : await response.text());
  assert.equal(response.headers.get('content-type'), 'text/event-stream');
  assert.equal(response.headers.get('cache-control'), 'no-cache');
  assert.equal(response.headers.get('x-accel-buffering'), 'no');
  return parseEvents(await response.text());
}

// The lines of a stream of JSON objects.
export async function lines(url, body) {
  const response = await post(url, body);
  assert.equal(response.status, 200, response.status === 200 ? '' : await response.text());
  assert.equal(response.headers.get('content-type'), 'application/x-ndjson');
  const text = await response.text();
  assert.ok(text.endsWith('\n'));
  return text.split('\n').slice(0, -1).map((line) => JSON.parse(line));
}

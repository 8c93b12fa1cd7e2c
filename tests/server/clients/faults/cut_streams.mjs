// Streams of the OpenAI's and Anthropic's libraries, while somebody else kills a server behind the balancer:
//   node cut_streams.mjs URL
// Writes "begun" when each stream has its first text, and at the end one line of JSON: how many streams ended as they
// should, how many made the library throw (and what), and how many ended early without a word, of which there must be none.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const url = process.argv[2];
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
const anthropic = new Anthropic({ baseURL: url, apiKey: "none" });
const messages = [{ role: "user", content: "What is nginx?" }];
const tokens = 1500;

async function askOpenAi(session, onText) {
  const stream = await openai.chat.completions.create(
    { model: "gemma", messages, stream: true, max_tokens: tokens, ignore_eos: true },
    { headers: { "x-session-affinity": session } },
  );
  let reason = null;
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta?.content) onText();
    reason ??= chunk.choices[0]?.finish_reason;
  }
  return reason === "length";
}

async function askResponses(session, onText) {
  const stream = await openai.responses.create(
    { model: "gemma", input: "What is nginx?", stream: true, max_output_tokens: tokens, ignore_eos: true },
    { headers: { "x-session-affinity": session } },
  );
  let end = null;
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") onText();
    if (event.type === "response.completed" || event.type === "response.incomplete") end = event.type;
  }
  return end !== null;
}

async function askAnthropic(session, onText) {
  // This API has no word for long answers, so the short ones are asked for until the others have theirs.
  for (;;) {
    const stream = anthropic.messages.stream(
      { model: "gemma", messages, max_tokens: tokens },
      { headers: { "x-session-affinity": session } },
    );
    stream.on("text", onText);
    const message = await stream.finalMessage();
    if (!message.stop_reason) return false;
    if (long === 0) return true;
  }
}

const asks = [];
let long = 8; // streams that run for a while
for (let i = 0; i < 4; ++i) asks.push([askOpenAi, `openai-${i}`], [askResponses, `responses-${i}`], [askAnthropic, `anthropic-${i}`]);
const result = { whole: 0, short: 0, raised: {} };
let begun = 0;
await Promise.all(asks.map(async ([ask, session]) => {
  let isFirst = true;
  const onText = () => {
    if (isFirst && ++begun === asks.length) console.log("begun");
    isFirst = false;
  };
  try {
    (await ask(session, onText)) ? ++result.whole : ++result.short;
  } catch (error) {
    const name = `${ask.name}: ${error.constructor.name}: ${error.message}`;
    result.raised[name] = (result.raised[name] ?? 0) + 1;
  }
  if (ask !== askAnthropic) --long;
}));
console.log(JSON.stringify(result));

// Starts a server as a child process, asks it with nothing but Node's own fetch, and ends it.
//   node serve.mjs [path of carat] ["question"]
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const [program = "carat", question = "What is nginx?"] = process.argv.slice(2);
const server = spawn(program, ["serve", "--port", "0"], { stdio: ["ignore", "pipe", "inherit"] });
const ended = new Promise((resolve) => server.once("exit", resolve));

// The first line of its output says where it listens.
async function address() {
  for await (const line of createInterface({ input: server.stdout })) {
    const found = line.match(/listening on (\S+)/);
    if (found) return found[1];
  }
  throw new Error("the server ended before it listened");
}

async function untilReady(url) {
  for (let tries = 0; tries < 600; ++tries) {
    if ((await fetch(`${url}/health`)).ok) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error("the model was not ready in time");
}

try {
  const url = await address();
  await untilReady(url);
  const answer = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    body: JSON.stringify({ stream: true, messages: [{ role: "user", content: question }] }),
  });
  if (!answer.ok) throw new Error(await answer.text());
  let pending = "";
  for await (const bytes of answer.body.pipeThrough(new TextDecoderStream())) {
    const lines = (pending + bytes).split("\n");
    pending = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const event = JSON.parse(line.slice("data: ".length));
      if (event.error) throw new Error(event.error.message);
      process.stdout.write(event.choices[0]?.delta?.content ?? "");
    }
  }
  process.stdout.write("\n");
} catch (error) {
  console.error(`error: ${error.message}`);
  process.exitCode = 1;
} finally {
  server.kill("SIGINT");
  await ended;
}

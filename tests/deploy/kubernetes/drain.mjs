// The drain and the probes of deploy/kubernetes on a real carat process: this script is the kubelet, with the manifest's
// arguments and timings divided by a number so that the test does not take minutes. Nothing else is changed but the
// model, the address and the device.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { container, readManifests } from "./manifests.mjs";

const carat = process.env.CARAT_PROGRAM;
const model = join(dirname(fileURLToPath(import.meta.url)), "../../../models/demo-e-q8_0.gguf");
const { pod, main } = container(readManifests());
const now = () => performance.now() / 1000;

async function freePort() {
  const probe = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => probe.once("listening", resolve));
  const { port } = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

// The container, with all times divided by `divisor`.
class Pod {
  constructor(divisor) {
    this.divisor = divisor;
    this.readiness = [];  // [seconds, is ready]
    this.liveness = [];
  }

  async start() {
    this.port = await freePort();
    const replaced = { "--model": model, "--host": "127.0.0.1", "--port": String(this.port) };
    const args = main.args.map((word, i) => {
      const flag = main.args[i - 1];
      if (flag in replaced) return replaced[flag];
      return flag === "--drain-grace" || flag === "--drain-timeout" ? String(Number(word) / this.divisor) : word;
    });
    args.push("--device", "cpu", "-t", "1", "-c", "8192", "--log-requests", "off");
    this.process = spawn(carat, args, { stdio: ["ignore", "ignore", "pipe"] });
    this.log = "";
    this.process.stderr.on("data", (text) => (this.log += text));
    this.ended = new Promise((resolve) => this.process.once("exit", (code, signal) => resolve({ code, signal, at: now() })));
    const { startupProbe } = main;
    for (let tries = 0; !(await this.probe(startupProbe)); ++tries) {
      assert.ok(tries < startupProbe.failureThreshold, this.log);
      await sleep(20);
    }
    this.probing = Promise.all([this.keepProbing(main.readinessProbe, this.readiness), this.keepProbing(main.livenessProbe, this.liveness)]);
  }

  async probe({ httpGet, timeoutSeconds }) {
    try {
      const signal = AbortSignal.timeout(Math.round((1000 * timeoutSeconds) / this.divisor) + 100);
      const answer = await fetch(`http://127.0.0.1:${this.port}${httpGet.path}`, { signal });
      await answer.text();
      return answer.status >= 200 && answer.status < 400;
    } catch {
      return false;
    }
  }

  async keepProbing(probe, results) {
    while (this.process.exitCode === null && this.process.signalCode === null) {
      const good = await this.probe(probe);
      // What is asked of a process that is gone says nothing of it.
      if (this.process.exitCode === null) results.push([now(), good]);
      await sleep((1000 * probe.periodSeconds) / this.divisor);
    }
  }

  // As many failures in a row as the probe allows.
  hasFailed(probe, results) {
    const last = results.slice(-probe.failureThreshold);
    return last.length === probe.failureThreshold && last.every(([, good]) => !good);
  }

  // What the kubelet does with a pod that is deleted: preStop, then SIGTERM, then SIGKILL when the time is over.
  async stop() {
    const [, seconds] = main.lifecycle.preStop.exec.command;
    this.deleted = now();
    await sleep((1000 * Number(seconds)) / this.divisor);
    this.terminated = now();
    this.process.kill("SIGTERM");
  }

  kill() {
    if (this.process?.exitCode === null) this.process.kill("SIGKILL");
    return this.ended;
  }

  ask(fields) {
    return fetch(`http://127.0.0.1:${this.port}/v1/chat/completions`, {
      method: "POST",
      body: JSON.stringify({ messages: [{ role: "user", content: "What is nginx?" }], ...fields }),
    });
  }
}

test("a deleted pod answers everybody who still comes, and then ends", async () => {
  const made = new Pod(5);
  try {
    await made.start();
    const stream = await made.ask({ stream: true, ignore_eos: true, max_tokens: 3000 });
    const whole = stream.text().then((text) => ({ text, at: now() }));
    // Clients whose node has not heard of the end yet; they come until readiness says no.
    const statuses = [];
    const clients = (async () => {
      while (!made.terminated || !made.hasFailed(main.readinessProbe, made.readiness)) {
        const answer = await made.ask({ max_tokens: 4 });
        statuses.push(answer.status);
        await answer.text();
        await sleep(20);
      }
      return now();
    })();
    await sleep(300);
    await made.stop();
    const noticed = await clients;
    assert.ok(statuses.length > 10, String(statuses.length));
    assert.deepEqual(new Set(statuses), new Set([200]));
    const grace = Number(main.args[main.args.indexOf("--drain-grace") + 1]) / made.divisor;
    assert.ok(noticed - made.terminated < grace, "readiness is gone before new requests are refused");

    const { text, at } = await whole;
    assert.match(text, /data: \[DONE\]\n\n$/, "the stream that ran has its end");
    const { code, signal, at: ended } = await made.ended;
    assert.deepEqual([code, signal], [0, null], made.log);
    assert.ok(ended - made.deleted < pod.spec.terminationGracePeriodSeconds / made.divisor);
    await made.probing;
    assert.ok(!made.hasFailed(main.livenessProbe, made.liveness), "nobody would have killed it meanwhile");
    const before = made.readiness.filter(([seconds]) => seconds < made.terminated);
    assert.ok(before.length > 1 && before.every(([, good]) => good), "until SIGTERM it is ready");
    console.log(`# ${statuses.length} requests after deletion began; stream over after ${(at - made.deleted).toFixed(1)} s, ` +
      `process after ${(ended - made.deleted).toFixed(1)} s of ${pod.spec.terminationGracePeriodSeconds / made.divisor}`);
  } finally {
    await made.kill();
  }
});

test("answers longer than the drain are cut off with an error, in time", async () => {
  const made = new Pod(60);
  try {
    await made.start();
    const streams = await Promise.all(Array.from({ length: 16 }, () => made.ask({ stream: true, ignore_eos: true, max_tokens: 8000 })));
    const texts = Promise.all(streams.map((stream) => stream.text().catch((error) => `connection lost: ${error}`)));
    await made.stop();
    const { code, at } = await made.ended;
    assert.equal(code, 0, made.log);
    for (const text of await texts) {
      assert.doesNotMatch(text, /\[DONE\]/);
      assert.match(text, /data: \{"error":\{/);
    }
    // What follows a drain is not divided: ten seconds at most until all is cut off, two until connections are closed.
    const drain = ["--drain-grace", "--drain-timeout"].map((flag) => Number(main.args[main.args.indexOf(flag) + 1]));
    const seconds = (drain[0] + drain[1]) / made.divisor;
    assert.ok(at - made.terminated >= seconds - 0.1 && at - made.terminated < seconds + 12, String(at - made.terminated));
    console.log(`# ended ${(at - made.terminated - seconds).toFixed(2)} s after the drain's time was over; the manifest has 12 s for that`);
  } finally {
    await made.kill();
  }
});

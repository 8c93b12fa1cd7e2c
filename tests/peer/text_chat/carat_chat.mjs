// Our side of the comparisons: the program chat_peer.
import { spawnSync } from "node:child_process";

export function askCarat(program, requests) {
  const result = spawnSync(program, [], { input: JSON.stringify(requests), maxBuffer: 1 << 30 });
  if (result.error) throw result.error;
  if (result.status !== 0) throw new Error(`${program} failed (${result.status}): ${result.stderr}`);
  return JSON.parse(result.stdout.toString());
}

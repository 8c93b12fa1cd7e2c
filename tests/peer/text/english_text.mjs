// Ordinary English to measure with: the documentation of the installed packages, almost a megabyte of prose, lists and
// some code.
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

export function packageDocumentation() {
  const root = path.join(path.dirname(fileURLToPath(import.meta.url)), "..", "node_modules");
  return fs
    .readdirSync(root, { recursive: true })
    .filter((name) => name.endsWith(".md"))
    .sort()
    .map((name) => path.join(root, name))
    .filter((name) => fs.statSync(name).isFile())
    .map((name) => fs.readFileSync(name, "utf8"))
    .join("\n");
}

#!/usr/bin/env python3
"""Which file of which model fits which card, as Markdown: what `carat plan` says of hollow synthetic files.

    scripts/fit_table.py build/release/src/cli/carat > table.md

Each cell is the largest context with all layers on the GPU, or how many layers would run on the CPU at 4,096 tokens.
Cards are described, so no GPU is needed; of each 0.5 GB are taken to be in use by the screen.
"""
import argparse
import json
import os
import subprocess
import tempfile

MODELS = ["e2b", "e4b", "12b", "26b-a4b", "31b"]
FORMATS = ["q8_0", "q4_0", "q4_k_m", "iq4_xs", "q3_k_m", "iq3_xxs", "iq2_m"]
CARDS = {8: "8.9,24,8,7.5", 12: "8.9,46,12,11.5", 16: "8.9,66,16,15.5", 24: "8.9,128,24,23.5"}


def thousands(tokens):
    return f"{tokens // 1024}k" if tokens >= 1024 else str(tokens)


def cell(carat, path, card, trained):
    def plan(*extra):
        result = subprocess.run([carat, "plan", path, "--json", "--gpu", f"card,{CARDS[card]}", *extra],
                                capture_output=True, text=True)
        if result.returncode not in (0, 1) or not result.stdout.startswith("{"):
            raise SystemExit(f"carat plan {path}: {result.stderr}")
        return json.loads(result.stdout)

    whole = plan("-c", "4096", "-ngl", "all")
    if whole["fits"]:
        largest = whole["largest_context"]
        return "all" if largest + 64 > trained else thousands(largest)
    parts = plan("-c", "4096")
    return f"{parts['layers_on_cpu']} of {parts['layers']} on the CPU"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("carat")
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--formats", nargs="*", default=FORMATS)
    arguments = parser.parse_args()
    print("| model | file | size | " + " | ".join(f"{card} GB" for card in CARDS) + " |")
    print("|---|---|---|" + "---|" * len(CARDS))
    with tempfile.TemporaryDirectory() as folder:
        for model in arguments.models:
            for number, form in enumerate(arguments.formats):
                path = os.path.join(folder, f"{model}-{form}.gguf")
                subprocess.run([arguments.carat, "synth", model, form, path, "--hollow"], check=True,
                               stdout=subprocess.DEVNULL)
                info = json.loads(subprocess.run([arguments.carat, "info", path, "--json"], check=True,
                                                 capture_output=True, text=True).stdout)
                trained = info["model"]["context_length"]
                cells = [cell(arguments.carat, path, card, trained) for card in CARDS]
                size = os.path.getsize(path) / 1e9
                print(f"| {model if number == 0 else ''} | {form} | {size:.1f} GB | " + " | ".join(cells) + " |",
                      flush=True)
                os.remove(path)


if __name__ == "__main__":
    main()

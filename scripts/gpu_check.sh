#!/usr/bin/env bash
# Builds with CUDA and runs what needs a GPU: tests, sanitizers, benchmarks. One machine, one script, one short table last.
# usage: scripts/gpu_check.sh [build|test|sanitize|kernels|bench ...]   (default: build test)
# Environment: BUILD (build folder), ARCH (CUDA architectures), MODELS (folder for synthetic models), JOBS.
set -uo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build/gpu}
ARCH=${ARCH:-90a-real}
MODELS=${MODELS:-/dev/shm/carat-models}
JOBS=${JOBS:-$(nproc)}

build() {
  cmake -S . -B "$BUILD" -G Ninja -DCARAT_CUDA=ON -DCARAT_CUDA_ARCHITECTURES="$ARCH" -DCMAKE_BUILD_TYPE=Release >"$BUILD.configure.log" 2>&1 ||
    { tail -20 "$BUILD.configure.log"; return 1; }
  local started=$SECONDS
  cmake --build "$BUILD" -j "$JOBS" >"$BUILD.build.log" 2>&1 ||
    { grep -E 'error|FAILED' "$BUILD.build.log" | head -40; return 1; }
  echo "built in $((SECONDS - started)) s"
}

run_tests() {
  ctest --test-dir "$BUILD" -L gpu --output-on-failure -j 4 >"$BUILD.tests.log" 2>&1
  grep -E 'Failure|Error|error:|\*\*\*Failed' "$BUILD.tests.log" | head -40
  tail -6 "$BUILD.tests.log"
}

# synth PRESET FORMAT: makes the file once and prints its path.
synth() {
  local path="$MODELS/$1-$2.gguf"
  mkdir -p "$MODELS"
  [ -e "$path" ] || "$BUILD/src/cli/carat" synth "$1" "$2" "$path" >/dev/null || return 1
  echo "$path"
}

step() { echo; echo "== $*"; }

mkdir -p "$(dirname "$BUILD")"
for what in "${@:-build test}"; do
  for part in $what; do
    step "$part"
    case $part in
      build) build || exit 1 ;;
      test) run_tests ;;
      sanitize)
        for tool in memcheck racecheck synccheck; do
          for program in "$BUILD"/tests/exec/cuda/*_test; do
            echo "$tool $(basename "$program"): $(compute-sanitizer --tool $tool "$program" --gtest_filter='*Small*' 2>&1 | tail -1)"
          done
        done ;;
      kernels) for program in "$BUILD"/bench/cuda/*_bench; do "$program"; done ;;
      *) echo "unknown part: $part"; exit 2 ;;
    esac
  done
done

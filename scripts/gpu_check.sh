#!/usr/bin/env bash
# Builds with CUDA and runs what needs a GPU: tests, sanitizers, benchmarks. One machine, one script, one short table last.
# usage: scripts/gpu_check.sh [build|test|sanitize|kernels|bench|decode|compare|exactness ...]   (default: build test)
# Environment: BUILD (build folder), ARCH (CUDA architectures), MODELS (folder for synthetic models), JOBS;
# for compare: OTHER (the folder of another version of these sources), COMPARE ("PRESET FORMAT;..."), DEVICE.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build/gpu}
ARCH=${ARCH:-90a-real}
MODELS=${MODELS:-/dev/shm/carat-models}
JOBS=${JOBS:-$(nproc)}
DEVICE=${DEVICE:-gpu}
CUDA=ON
[ "$DEVICE" = gpu ] || CUDA=OFF

# build [SOURCES FOLDER TARGET]: everything of these sources, or a target of others.
build() {
  local sources=${1:-.} folder=${2:-$BUILD} target=${3:-all}
  cmake -S "$sources" -B "$folder" -G Ninja -DCARAT_CUDA="$CUDA" -DCARAT_CUDA_ARCHITECTURES="$ARCH" -DCMAKE_BUILD_TYPE=Release \
    >"$folder.configure.log" 2>&1 ||
    { tail -20 "$folder.configure.log"; return 1; }
  local started=$SECONDS
  cmake --build "$folder" --target "$target" -j "$JOBS" >"$folder.build.log" 2>&1 ||
    { grep -E 'error|FAILED' "$folder.build.log" | head -40; return 1; }
  echo "built $sources in $((SECONDS - started)) s"
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

# A line of `carat bench` for each speed.
run() {
  "$BUILD/src/cli/carat" bench --device "$DEVICE" "$@" 2>&1 | grep -E '^\| gemma4|rror' |
    sed 's/gemma4 Gemma 4 //; s/ with random weights//'
}

# The table of docs/benchmarks.md: one synthetic model after the other, because the large ones fill the folder.
bench() {
  local path
  for model in "e2b q8_0-pure" "e4b q8_0-pure" "e4b q8_0" "e4b q4_0-pure" "e4b q4_0" "e4b q4_k_m" "12b q4_0-pure" \
               "26b-a4b q4_0-pure" "31b q4_0-pure"; do
    # shellcheck disable=SC2086
    path=$(synth $model) || continue
    run -m "$path" -p 512,2048 -n 128 -r "${REPEATS:-5}"
    case $model in
      "e4b q8_0-pure") run -m "$path" -p 8192,32768 -n 128 -d 0 -r 3; run -m "$path" -p 0 -n 128 -d 32768 -r 3 ;;
      "12b q4_0-pure") run -m "$path" -p 8192 -n 128 -d 32768 -r 3 ;;
    esac
    rm -f "$path"
  done
}

# The tables of generation there, pure files before those as they are shipped: one sequence, at depth, and batches.
decode() {
  local path
  for model in "e2b q8_0-pure" "e4b q8_0-pure" "e4b q4_0-pure" "e4b q4_k-pure" "12b q4_0-pure" "26b-a4b q4_0-pure" \
               "31b q4_0-pure" "e2b q8_0" "e4b q8_0" "e4b q4_0" "e4b q4_k_m" "12b q4_0" "26b-a4b q4_0" "31b q4_0"; do
    # shellcheck disable=SC2086
    path=$(synth $model) || continue
    run -m "$path" -p 0 -n 128 -r "${REPEATS:-5}"
    case $model in "e4b "*-pure | "12b "*-pure | "31b "*-pure) run -m "$path" -p 0 -n 128 -d 32768 -r 3 ;; esac
    case $model in "e4b q8_0-pure") run -m "$path" -p 0 -n 128 -d 512 -npl 8,32,64 -r 3 ;; esac
    rm -f "$path"
  done
}

# generation FOLDER MODEL: tokens a second of the carat built in that folder, mean and deviation. A version that hangs
# costs a minute, not the session.
generation() {
  timeout 60 "$1/src/cli/carat" bench --device "$DEVICE" -m "$2" -p 0 -n 128 -r "${REPEATS:-3}" -o csv 2>/dev/null |
    awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) { gsub(/"/, "", $i); at[$i] = i } next }
             { for (i = 1; i <= NF; ++i) gsub(/"/, "", $i); printf "%.1f +- %.1f", $at["avg_ts"], $at["stddev_ts"] }'
}

# Generation of another version of the sources and of these, in turn, two processes of each: figures of one machine on
# one day, which alone can be compared.
compare() {
  local other="${OTHER:?set OTHER to the folder of the other version}" models model path
  build . "$BUILD" carat && build "$other" "$BUILD-other" carat || return 1
  IFS=';' read -ra models <<<"${COMPARE:-e2b q8_0-pure;e4b q8_0-pure;e4b q4_0-pure;e4b q4_k-pure;12b q4_0-pure;26b-a4b q4_0-pure;31b q4_0-pure}"
  printf '%-22s %-16s %-16s %-16s %-16s\n' model other this other this
  for model in "${models[@]}"; do
    # shellcheck disable=SC2086
    path=$(synth $model) || continue
    printf '%-22s' "$model"
    for folder in "$BUILD-other" "$BUILD" "$BUILD-other" "$BUILD"; do
      printf ' %-16s' "$(generation "$folder" "$path" || echo failed)"
    done
    echo
    rm -f "$path"
  done
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
        # Small shapes only: a race check takes hundreds of times longer. Without the library's products, which report
        # hazards of their own.
        for tool in memcheck synccheck racecheck; do
          for program in "$BUILD"/tests/exec/cuda/*_test; do
            case $program in *plan_test | *emulated*) continue ;; esac
            # Tests of too little memory ask for calls to fail.
            flags=(--tool $tool)
            [ $tool = memcheck ] && flags+=(--report-api-errors no)
            echo "$tool $(basename "$program"): $(compute-sanitizer "${flags[@]}" "$program" --gtest_filter='*Small*-GemmTest*:Fp8ProductTest*' 2>&1 | tail -1)"
          done
        done ;;
      bench) bench ;;
      decode) decode ;;
      compare) compare || exit 1 ;;
      exactness) "$BUILD/tests/parity/cuda_parity_test" --gtest_filter='*References*' | grep -E 'KL|greedy' ;;
      kernels) for program in "$BUILD"/bench/cuda/*_bench; do "$program"; done ;;
      *) echo "unknown part: $part"; exit 2 ;;
    esac
  done
done

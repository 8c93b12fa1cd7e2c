#!/usr/bin/env bash
# Builds carat for `make run` and prints the path of the program; everything said on the way goes to standard error.
# On a terminal that is one line that moves, otherwise a line for every tenth of the work; all of it is in build/run.log.
# Environment: CUDA (1 or 0: with or without the part for GPUs; unset: with it where there is an NVIDIA driver), CUDACXX, JOBS;
# SYSTEM_ROOT is where a test has files of its own in place of the machine's.
set -euo pipefail
cd "$(dirname "$0")/.."
FOLDER=build/run
LOG=build/run.log
SYSTEM_ROOT=${SYSTEM_ROOT:-}
TOOLKIT='the CUDA toolkit 12 or newer (https://developer.nvidia.com/cuda-downloads, package cuda-toolkit)'

# Of the terminal that standard error is.
columns() {
  local size
  size=$(stty size <&2 2>/dev/null) || size='24 80'
  echo "$((${size#* } > 1 ? ${size#* } : 80))"
}

say() {
  if [[ -t 2 ]]; then printf 'carat: %s\n' "$*" | fold -s -w "$(columns)" >&2; else printf 'carat: %s\n' "$*" >&2; fi
}

# What the driver puts there: on Linux itself, and in Windows' subsystem for it.
has_driver() { [[ -e $SYSTEM_ROOT/proc/driver/nvidia/version || -e $SYSTEM_ROOT/usr/lib/wsl/lib/libcuda.so.1 ]]; }

# The places cmake/CaratCuda.cmake looks at, too.
has_nvcc() { [[ -n ${CUDACXX:-} ]] || command -v nvcc >/dev/null || [[ -x $SYSTEM_ROOT/usr/local/cuda/bin/nvcc ]]; }

# Says which parts will be built, and why, and sets CARAT_CUDA.
choose_parts() {
  CARAT_CUDA=OFF
  case ${CUDA:-} in
    1)
      has_nvcc || { say "CUDA=1 needs nvcc, which is not here: install $TOOLKIT or set CUDACXX"; exit 1; }
      CARAT_CUDA=ON
      say 'building for the CPU and NVIDIA GPUs, as CUDA=1 says'
      ;;
    0) say 'building for the CPU alone, as CUDA=0 says' ;;
    '')
      if ! has_driver; then
        say 'building for the CPU alone: this machine has no NVIDIA driver (make run CUDA=1 builds for GPUs all the same)'
      elif has_nvcc; then
        CARAT_CUDA=ON
        say 'building for the CPU and NVIDIA GPUs'
      else
        say "building for the CPU alone: here is an NVIDIA driver but no nvcc; to use the GPU, install $TOOLKIT"
      fi
      ;;
    *) say "CUDA=$CUDA is neither 1 nor 0"; exit 1 ;;
  esac
}

# Reads what ninja prints, such as "[12/240] Building CXX object src/base/CMakeFiles/carat_base.dir/utf8.cc.o".
show_progress() {
  local moves=0 room line finished total doing tenth=0
  if [[ -t 2 ]]; then
    moves=1
    room=$(($(columns) - 1))
    printf 'configuring' >&2
  fi
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\ (.*)$ ]] || continue
    finished=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]} doing=${BASH_REMATCH[3]}
    if [[ $doing =~ (src/.*)CMakeFiles/[^/]*\.dir/(.*)\.o$ ]]; then
      doing="${BASH_REMATCH[1]}${BASH_REMATCH[2]}"
    elif [[ $doing =~ ^Linking.*/([^/]+)$ ]]; then
      doing="linking ${BASH_REMATCH[1]}"
    fi
    if ((moves)); then
      line="building: $finished of $total, $doing"
      printf '\r\033[K%s' "${line:0:room}" >&2
    elif ((total >= 10 && finished * 10 / total > tenth)); then
      tenth=$((finished * 10 / total))
      say "building: $finished of $total"
    fi
  done
  ((moves)) && printf '\r\033[K' >&2
  return 0
}

build() {
  cmake --preset run -DCARAT_CUDA="$CARAT_CUDA" && cmake --build --preset run --target carat -j "${JOBS:-$(nproc)}"
}

choose_parts
mkdir -p build
if ! build 2>&1 | tee "$LOG" | show_progress; then
  cat "$LOG" >&2
  say "the build failed; all it said is above and in $LOG"
  exit 1
fi
echo "$FOLDER/src/cli/carat"

#!/usr/bin/env bash
# libcarat after `make install`: found by CMake and by pkg-config, in a folder that was not the configured prefix, by a
# project that is not carat's. usage: check_install.sh BUILD EXAMPLE.c MODEL
set -euo pipefail
build=$1 example=$2 model=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for component in library development; do
  cmake --install "$build" --prefix "$work/prefix" --component "$component" >/dev/null
done
answers() {
  (cd "$work" && LD_LIBRARY_PATH=${2:-} "$1" "What is nginx?" "$model") | tee /dev/stderr | grep -q server
}

cmake -S "$here/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DEXAMPLE="$example" >/dev/null
cmake --build "$work/build" >/dev/null
answers "$work/build/ask"

if ! command -v pkg-config >/dev/null; then
  echo "without pkg-config: only CMake was tried"
  exit 0
fi
PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name carat.pc)")
export PKG_CONFIG_PATH
read -ra flags < <(pkg-config --cflags --libs carat)
cc -std=c99 -Wall -Wextra -Wpedantic -Werror "$example" "${flags[@]}" -o "$work/ask"
answers "$work/ask" "$(pkg-config --variable=libdir carat)"

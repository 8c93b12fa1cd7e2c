#!/usr/bin/env bash
# The functions that a shared library exports are those its header declares, no more and no fewer, and all have the version
# CARAT_1. usage: check_exports.sh LIBRARY HEADER
set -euo pipefail
exported=$(nm -D --defined-only "$1" | awk '$2 != "A" {print $3}' | sort)
# Functions are declared with CARAT_API; what comments say of them has the same names.
declared=$(grep -oE '\bcarat_[a-z_]+\(' "$2" | tr -d '(' | sort -u | sed 's/$/@@CARAT_1/')
if [[ $exported != "$declared" ]]; then
  diff <(echo "$declared") <(echo "$exported") || true
  exit 1
fi
echo "$(echo "$exported" | wc -l) functions"

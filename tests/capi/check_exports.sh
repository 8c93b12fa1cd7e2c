#!/usr/bin/env bash
# The functions that a shared library exports are those its header declares, no more and no fewer.
set -euo pipefail
exported=$(nm -D --defined-only "$1" | awk '$2 == "T" || $2 == "W" || $2 == "D" || $2 == "B" || $2 == "V" {print $3}' |
  sed 's/@.*//' | sort)
declared=$(grep -oE '\bcarat_[a-z_]+\(' "$2" | tr -d '(' | sort -u |
  grep -vxE 'carat_event_fn' )
# Functions are declared with CARAT_API; other mentions in comments are of the same names.
if [[ $exported != "$declared" ]]; then
  diff <(echo "$declared") <(echo "$exported") || true
  exit 1
fi
echo "$(echo "$exported" | wc -l) functions"

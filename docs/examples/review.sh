#!/bin/sh
# Prints a review of the changes since BASE (default: main), with tools that only read.
#
#     docs/examples/review.sh origin/main > review.md
set -eu
base=${1:-main}
# Not in the pipe, where a failure of git would leave nothing to review.
change=$(git diff "$base"...)
printf '%s\n' "$change" | adjutant run -q --strict --mode plan --tools read,grep,glob \
  "Review this change. List bugs first, with file and line; then what is hard to read. Be brief."

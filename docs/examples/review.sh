#!/bin/sh
# Prints a review of the changes since BASE, committed or not, with tools that only read.
#
#     docs/examples/review.sh [BASE] > review.md
#
# Without BASE: the default branch of the remote, otherwise main or master.
set -eu

exists() {
  git rev-parse --verify --quiet "$1^{commit}" >/dev/null
}

base=${1:-}
if [ -z "$base" ]; then
  for branch in origin/HEAD main master; do
    if exists "$branch"; then
      base=$branch
      break
    fi
  done
fi
if [ -z "$base" ] || ! exists "$base"; then
  echo "review.sh: there is no branch ${base:-main or master} here; name the one to compare with" >&2
  exit 2
fi

# Not in the pipe, in which a failure of git would leave nothing to review.
change=$(git diff --merge-base "$base")
if [ -z "$change" ]; then
  echo "review.sh: there are no changes since $base" >&2
  exit 0
fi
printf '%s\n' "$change" | adjutant run -q --strict --mode plan --tools read,grep,glob \
  "Review this change. List bugs first, with file and line; then what is hard to read. Be brief."

#!/bin/sh
# Removes trailing whitespace.
set -eu
sed -i.bak 's/[ \t]*$//' "$1"
rm -f "$1.bak"

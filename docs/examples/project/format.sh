#!/bin/sh
# Removes blanks at the ends of lines.
set -eu
sed -i.bak 's/[ \t]*$//' "$1"
rm -f "$1.bak"

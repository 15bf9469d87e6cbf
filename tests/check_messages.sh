#!/bin/sh
# The messages, read by a second reader; and every message is explained.
set -eu
src=${top_srcdir:-.}
build=${top_builddir:-.}
ref=$src/tests/py/messages_ref.py
table=$src/proto/messages.def

"$PYTHON3" "$ref" "$table" --page "$src/proto/MESSAGES.md"
[ -x "$build/tests/unit/wire" ] || {
	echo "no libcheck, so no frames to read"
	exit 77
}
frames=$(mktemp)
trap 'rm -f "$frames"' EXIT
"$build/tests/unit/wire" dump >"$frames"
"$PYTHON3" "$ref" "$table" <"$frames"

#!/bin/sh
# Fingerprints and staged lists as a second reader sees them, from their pages alone.
set -eu
src=${top_srcdir:-.}
build=${top_builddir:-.}
facts=$build/tests/apply/dump.txt
"$build/tests/apply/dump" >"$facts"
${PYTHON3:-/usr/bin/python3} "$src/tests/py/fingerprint_ref.py" "$src/proto/FINGERPRINT.md" "$facts"
${PYTHON3:-/usr/bin/python3} "$src/tests/py/list_ref.py" "$src/proto/LIST.md" "$facts"
rm -f "$facts"

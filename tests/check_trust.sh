#!/bin/sh
# Signed records, read by a second reader with its own Ed25519: those of the vectors, and those that the
# command makes.
set -eu
export PYTHONDONTWRITEBYTECODE=1
src=${top_srcdir:-.}
build=${top_builddir:-.}
"$PYTHON3" "$src/tests/py/trust_ref.py" "$src/proto/vectors/trust.txt"
exec "$PYTHON3" "$src/tests/py/trust_tools.py" "$build/tools/godwit" "$src"

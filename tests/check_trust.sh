#!/bin/sh
# The signed records of proto/vectors/trust.txt, read by a second reader with its own Ed25519.
set -eu
src=${top_srcdir:-.}
exec "$PYTHON3" "$src/tests/py/trust_ref.py" "$src/proto/vectors/trust.txt"

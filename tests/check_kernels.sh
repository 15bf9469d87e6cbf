#!/bin/sh
# Device code is C++ that more than one compiler takes: here clang's view of what g++ runs and nvcc builds.
set -eu
src=${top_srcdir:-.}
command -v clang++ >/dev/null || {
	echo "skipped, no clang++"
	exit 77
}
for test in emulated broken; do # they include the kernels
	clang++ -std=gnu++17 -fsyntax-only -Wall -Wextra -Werror -DGW_EMU -I"$src" -I"$src/src" "$src/tests/apply/$test.cc"
done
echo "kernels: clang++ takes them"

#!/bin/sh
# folding all patches of a series gives the file that diff makes of its ends; and diff, then apply, gives every file of the next version byte for byte: each step of every series under $SERIES
# (folders that hold v0, v1, …), the way back, first to last and last to first, into a new folder and in place.
# make check-series SERIES=DIR; without SERIES the small real series of tests/data.
set -eu
series=${SERIES:-${top_srcdir:-.}/tests/data}
godwit=${top_builddir:-.}/tools/godwit
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

# pair OLD NEW
pair() {
	ok=1
	rm -rf "${work:?}"/*
	line=$("$godwit" diff "$1" "$2" -o "$work/p") || ok=0
	[ $ok = 1 ] && "$godwit" apply "$work/p" "$1" -o "$work/new" >/dev/null || ok=0
	[ $ok = 1 ] && diff -r "$2" "$work/new" || ok=0
	[ $ok = 1 ] && cp -r --no-preserve=mode "$1" "$work/place" &&
		"$godwit" apply "$work/p" "$work/place" --in-place >/dev/null && diff -r "$2" "$work/place" || ok=0
	if [ $ok = 1 ]; then
		passed=$((passed + 1))
		echo "${2#"$series"/} from ${1##*/}: $line"
	else
		failed=$((failed + 1))
		echo "FAILED: $1 to $2"
	fi
}

# chain DIR LAST: the patches from v0 to it, folded
chain() {
	rm -rf "${work:?}"/*
	patches=
	for k in $(seq "$2"); do
		"$godwit" diff "$1/v$((k - 1))" "$1/v$k" -o "$work/p$k" >/dev/null
		patches="$patches $work/p$k"
	done
	"$godwit" diff "$1/v0" "$1/v$2" -o "$work/direct" >/dev/null
	# shellcheck disable=SC2086 # one word each
	if "$godwit" fold $patches --base "$1/v0" -o "$work/folded" >/dev/null && cmp "$work/direct" "$work/folded"; then
		passed=$((passed + 1))
		steps=$(cat $patches | wc -c)
		echo "${1#"$series"/}: v0 to v$2 folded: $(wc -c <"$work/folded") bytes for $steps"
	else
		failed=$((failed + 1))
		echo "FAILED: $1, v0 to v$2 folded"
	fi
}

for first in $(find "$series" -type d -name v0 | sort); do
	dir=${first%/v0}
	n=0
	while [ -d "$dir/v$((n + 1))" ]; do
		pair "$dir/v$n" "$dir/v$((n + 1))"
		n=$((n + 1))
	done
	if [ $n -gt 1 ]; then
		pair "$dir/v0" "$dir/v$n"
		chain "$dir" $n
	fi
	if [ $n -gt 0 ]; then
		pair "$dir/v$n" "$dir/v0"
	fi
done
[ $((passed + failed)) -gt 0 ] || { echo "no series under $series"; exit 1; }
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]

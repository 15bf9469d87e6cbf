#!/bin/sh
# diff, apply, apply in place, and a patch from nothing, of a checkpoint of 4 GiB (BYTES=…), each with 2 and with 16
# threads, stay below 256 MiB of private memory. Needs some 20 GB in $TMPDIR. make check-memory; not in make check.
set -eu
bytes=${BYTES:-4G}
build=${top_builddir:-.}
py="${PYTHON3:-/usr/bin/python3} ${top_srcdir:-.}/tests/py/peak_private.py 256"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$build/tools/lab/synth" "$work/s" --bytes "$bytes" --steps 1 --density 0.0035 --seed 1 --shards 4
for threads in 2 16; do
	$py "$build/tools/godwit" diff "$work/s/v0" "$work/s/v1" -o "$work/p" --force --threads $threads
	$py "$build/tools/godwit" apply "$work/p" "$work/s/v0" -o "$work/n" --threads $threads
	cmp "$work/s/v1/model-00001-of-00004.safetensors" "$work/n/model-00001-of-00004.safetensors"
	"$build/tools/godwit" diff "$work/n" "$work/s/v0" -o "$work/back" --force
	$py "$build/tools/godwit" apply "$work/back" "$work/n" --in-place --threads $threads
	cmp "$work/s/v0/model-00001-of-00004.safetensors" "$work/n/model-00001-of-00004.safetensors"
	rm -rf "$work/n"
	$py "$build/tools/godwit" diff --from-nothing "$work/s/v1" -o "$work/a" --force --threads $threads
	$py "$build/tools/godwit" apply "$work/a" -o "$work/n" --threads $threads
	rm -rf "$work/n" "$work/a"
done
echo "memory: all below 256 MiB"

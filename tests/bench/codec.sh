#!/bin/sh
# Measures the codec on real and synthetic pairs, one RESULT line a figure: every consecutive pair of every series under
# $SERIES (folders that hold v0, v1, …; tests/data), then synthetic models of BENCH_PARAMS bf16 parameters (540M) at
# BENCH_DENSITIES, and of BENCH_FP8_PARAMS (400M) quantised to fp8 at BENCH_FP8_DENSITY. Work files lie in a folder
# under $TMPDIR, 3.3 GB of them by default, and are removed.
# --check: whether it all works, on pieces of the series of tests/data, each once; figures are of no use then.
set -eu
top=${top_srcdir:-.}
build=${top_builddir:-.}
series=${SERIES:-$top/tests/data}
params=${BENCH_PARAMS:-540M}
densities=${BENCH_DENSITIES-0.0008 0.002 0.0035 0.01 0.025 0.1}
fp8_params=${BENCH_FP8_PARAMS:-400M}
fp8_density=${BENCH_FP8_DENSITY-0.002}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

codec() {
	"$build/tests/bench/codec" "$@" --work "$work"
}

# every_pair COMMAND…: with the folders of each pair and its label
every_pair() {
	for first in $(find "$series" -type d -name v0 | sort); do
		dir=${first%/v0}
		n=0
		while [ -d "$dir/v$((n + 1))" ]; do
			"$@" "$dir/v$n" "$dir/v$((n + 1))" "${dir#"$series"/}/v$n-v$((n + 1))"
			n=$((n + 1))
		done
	done
}

# pair OLD NEW LABEL
pair() {
	echo "codec: $3" >&2
	codec "$1" "$2" --label "$3"
}

# synthetic DTYPE PARAMS DENSITY ONLY: of fp8 models only what is in fp8, since the rest is as in bf16
synthetic() {
	echo "codec: synthetic $1, $2 parameters, $3 changed" >&2
	"$build/tools/lab/synth" "$work/s" --dtype "$1" --params "$2" --steps 1 --density "$3" --jobs 2 >/dev/null
	codec "$work/s/v0" "$work/s/v1" --label "synthetic/$1/$3" --only "$4"
	rm -rf "$work/s"
}

machine() {
	echo "MACHINE date $(date -u +%Y-%m-%d)"
	sed -n 's/^model name[[:space:]]*: /MACHINE cpu /p' /proc/cpuinfo | head -n 1
	echo "MACHINE cores $(nproc)"
	sed -n 's/^cache size[[:space:]]*: /MACHINE cache /p' /proc/cpuinfo | head -n 1
	sed -n 's/^MemTotal:[[:space:]]*/MACHINE memory /p' /proc/meminfo
	echo "MACHINE kernel $(uname -sr)"
	# Those of tools.c.
	for tool in zstd xdelta3 bsdiff; do
		command -v $tool >/dev/null || echo "MISSING $tool"
	done
}

# Every pair of tests/data, cut short: whatever is not decoded to the new bits ends it.
check() {
	echo "codec: $3"
	codec "$1" "$2" --label "$3" --runs 1 --small 1 >"$work/lines"
	for line in bound bits.godwit decode.godwit bits.xor_zstd1 bits.gaps_steps_zstd1; do
		grep -q "^RESULT codec.$line " "$work/lines" || { echo "no line of codec.$line"; exit 1; }
	done
	cat "$work/lines" >>"$work/all"
	passed=$((passed + 1))
}

if [ "${1:-}" = --check ]; then
	series=$top/tests/data
	passed=0
	every_pair check
	[ $passed -gt 0 ]
	synthetic bf16 500K 0.01 BF16 >>"$work/all" 2>/dev/null
	synthetic f8_e4m3 500K 0.01 F8_E4M3 >>"$work/all" 2>/dev/null
	"${PYTHON3:-python3}" "$top/tools/lab/bench_table.py" "$work/all" --markdown "$work/md" --svg "$work/svg" >/dev/null
	grep -q "Godwit" "$work/md"
	grep -q "</svg>" "$work/svg"
	passed=$((passed + 2))
	echo "$passed passed, 0 failed, 0 skipped"
	exit 0
fi
machine
every_pair pair
for density in $densities; do
	synthetic bf16 "$params" "$density" BF16
done
[ -z "$fp8_density" ] || synthetic f8_e4m3 "$fp8_params" "$fp8_density" F8_E4M3

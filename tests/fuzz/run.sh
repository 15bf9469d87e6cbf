#!/bin/sh
# Builds the fuzz targets with clang's libFuzzer, runs them from their corpora and what earlier runs found, and says which
# lines of the decoder that reaches. make fuzz, make fuzz-coverage; not in make check, which replays the corpora.
#   run.sh run          FUZZ_TARGETS, FUZZ_TIME (seconds a target), FUZZ_RUNS (executions a target; 0: as time allows)
#   run.sh coverage     of the corpora alone, then with what was found (FUZZ_COVERAGE=corpus: only the first)
#   run.sh minimise N   prints what was found for target N, as small as it goes, as lines for N.hex
# Under $FUZZ_DIR (fuzz): NAME, the program; NAME.found, inputs; NAME.log; crash-… where something broke.
set -eu
top=${top_srcdir:-.}
dir=${FUZZ_DIR:-fuzz}
cc=${FUZZ_CC:-clang}
targets=${FUZZ_TARGETS:-tile diff patch message index safetensors record}
flags="-std=gnu11 -g -O2 -D_GNU_SOURCE -fno-omit-frame-pointer -I$top/src -I$top -I. $FUZZ_CFLAGS"
decoder="coder companion model step survey survey_x86 tables decode body patch"

# build SUFFIX FLAGS…: objects of all layers once, then the targets.
build() {
	suffix=$1
	shift
	mkdir -p "$dir/o$suffix"
	# A header that changed makes all objects old.
	if [ -n "$(find "$top/src" "$top/tests" -name '*.h' -newer "$dir/o$suffix/stamp" 2>&1)" ]; then
		rm -f "$dir/o$suffix"/*.o
		touch "$dir/o$suffix/stamp"
	fi
	for c in "$top"/src/base/*.c "$top"/src/weights/*.c "$top"/src/patch/*.c "$top"/src/wire/*.c "$top"/src/trust/*.c \
		"$top"/tests/bench/memfs.c; do
		o="$dir/o$suffix/$(basename "$(dirname "$c")")_$(basename "$c" .c).o"
		[ "$o" -nt "$c" ] || "$cc" $flags "$@" -c "$c" -o "$o"
	done
	for t in $targets; do
		"$cc" $flags "$@" $link "$top/tests/fuzz/$t.c" "$dir/o$suffix"/*.o $FUZZ_LIBS -o "$dir/$t$suffix"
	done
}

# Seeds of a target, each in a file.
seed() {
	mkdir -p "$dir/$1.seeds" "$dir/$1.found"
	"${PYTHON3:-python3}" -c '
import pathlib, sys
for i, line in enumerate(open(sys.argv[1])):
    if line.strip() and line[0] != "#":
        pathlib.Path(sys.argv[2], f"{i:04}").write_bytes(bytes.fromhex(line.lstrip("=")))
' "$top/tests/fuzz/$1.hex" "$dir/$1.seeds"
}

# The print of a target's statistics that says how many executions there were.
executions() {
	sed -n 's/^stat::number_of_executed_units: *//p' "$1"
}

case ${1:-run} in
run)
	link=-fsanitize=fuzzer
	# Memory is kept rather than given back between executions: it is most of their time.
	ASAN_OPTIONS=quarantine_size_mb=8:allocator_release_to_os_interval_ms=-1:${ASAN_OPTIONS:-}
	export ASAN_OPTIONS
	# Without the tracing of comparisons, which costs more than all else together and finds no bits of a stack.
	build "" -DFUZZER -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all \
		-fno-sanitize-coverage=trace-cmp,trace-div,trace-gep
	for t in $targets; do
		seed "$t"
		runs=${FUZZ_RUNS:-0}
		[ "$runs" != 0 ] || runs=-1
		"$dir/$t" "$dir/$t.found" "$dir/$t.seeds" -runs="$runs" -max_total_time="${FUZZ_TIME:-20}" -max_len=4096 \
			-timeout=20 -rss_limit_mb=2048 -malloc_limit_mb=512 -print_final_stats=1 \
			-artifact_prefix="$dir/crash-$t-" >"$dir/$t.log" 2>&1 || { tail -n 60 "$dir/$t.log"; exit 1; }
		echo "$t: $(executions "$dir/$t.log") executions, nothing found"
	done
	;;
coverage)
	link=$top/tests/fuzz/replay.c
	targets="tile diff patch"
	build .cov -fprofile-instr-generate -fcoverage-mapping
	objects=
	for t in $targets; do
		seed "$t"
		objects="$objects -object $dir/$t.cov"
		LLVM_PROFILE_FILE="$dir/$t.corpus.profraw" "$dir/$t.cov"
		[ "${FUZZ_COVERAGE:-all}" = corpus ] || LLVM_PROFILE_FILE="$dir/$t.found.profraw" \
			"$dir/$t.cov" "$dir/$t.found" >/dev/null
	done
	for what in corpus found; do
		[ -f "$dir/tile.$what.profraw" ] || continue
		set -- "$dir"/*.corpus.profraw
		[ $what = corpus ] || set -- "$dir"/*.profraw
		llvm-profdata-14 merge -sparse "$@" -o "$dir/$what.profdata"
		echo "lines of the decoder reached by the corpora$([ $what = corpus ] || echo " and by what runs found"):"
		llvm-cov-14 report ${objects# -object } -instr-profile="$dir/$what.profdata" 2>/dev/null |
			awk -v wanted=" $decoder " 'function row(name, lines, missed) {
				printf "%-28s %5d lines %5d missed %6.2f %%\n", name, lines, missed, 100 * (lines - missed) / lines
			}
			split($1, part, "/patch/") == 2 && sub(/\.c$/, "", part[2]) && index(wanted, " " part[2] " ") {
				row($1, $8, $9)
				lines += $8
				missed += $9
			}
			END { row("all", lines, missed) }'
	done
	;;
minimise)
	rm -rf "$dir/$2.small"
	mkdir "$dir/$2.small"
	"$dir/$2" -merge=1 "$dir/$2.small" "$dir/$2.seeds" "$dir/$2.found" >"$dir/$2.log" 2>&1
	"${PYTHON3:-python3}" -c '
import pathlib, sys
for p in sorted(pathlib.Path(sys.argv[1]).iterdir(), key=lambda p: (p.stat().st_size, p.name)):
    print(p.read_bytes().hex())
' "$dir/$2.small"
	;;
*)
	echo "run.sh: run, coverage or minimise NAME" >&2
	exit 2
	;;
esac

#!/bin/sh
# Arrows between layers run one way (src/README). Three views of it: the #include lines of the sources, the names
# that each library takes from others, and what pure libraries ask of the system.
#   tests/check_layers.sh       the tree at $top_srcdir, the libraries built in $top_builddir
set -eu
src=${top_srcdir:-.}
build=${top_builddir:-.}
nm=${NM:-nm}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/bad"

bad() {
	echo "$*" | tee -a "$work/bad"
}

# layer: what it may use, itself aside
allowed() {
	case $1 in
	base) echo "" ;;
	weights | trust | wire) echo "base wire" ;;
	patch) echo "base weights" ;;
	mesh | swarm | board | engine | gate) echo "base weights patch trust wire" ;;
	node) echo "base weights patch trust wire mesh swarm board engine gate" ;;
	io/os) echo "base weights patch trust wire" ;;
	io/zmq) echo "base weights patch trust wire io/os" ;;
	gpu) echo "base patch" ;;
	lib) echo "base weights patch trust wire engine io/os gpu" ;;
	daemon) echo "base weights patch trust wire mesh swarm board engine gate node io/os io/zmq gpu lib" ;;
	tools) echo "base weights patch trust wire io/os lib" ;;
	*) bad "$1: a layer that tests/check_layers.sh does not know" >&2 ;;
	esac
}
pure="weights patch trust wire mesh swarm board engine gate node"

# The layer of a path as #include lines spell it.
layer_of() {
	case $1 in
	io/os/* | io/zmq/*) echo "$1" | cut -d/ -f1-2 ;;
	*) echo "${1%%/*}" ;;
	esac
}

# --- what sources include ---
files=$(cd "$src" && find src gpu tools -name '*.[chS]' -o -name '*.def' -o -name '*.cu' | sort)
[ -n "$files" ] || bad "no sources below $src"
for f in $files; do
	from=$(layer_of "${f#src/}")
	sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]\([^">]*\/[^">]*\)[">].*/\1/p' "$src/$f" >"$work/includes"
	while read -r inc; do
		to=$(layer_of "$inc")
		case $inc in
		proto/*) to=wire ;; # tables that belong to the wire layer, and are fit for messages everywhere
		../* | */../*) bad "$f includes $inc: write the path from the top" && continue ;;
		*) [ -d "$src/src/$to" ] || [ -d "$src/$to" ] || continue ;; # a system header
		esac
		case " $from $(allowed "$from") " in
		*" $to "*) ;;
		*) [ "$inc" = proto/messages.def ] || bad "$f includes $inc: $from may not use $to" ;;
		esac
	done <"$work/includes"
done

# --- what libraries take from each other ---
layers="base weights patch trust wire mesh swarm board engine gate node io/os io/zmq daemon gpu"
mkdir "$work/io"
for layer in $layers; do
	[ -d "$src/src/$layer" ] || [ -d "$src/$layer" ] || continue
	lib=$build/.libs/libgw_$(basename "$layer").a
	if ! $nm -A "$lib" >"$work/$layer.nm" 2>"$work/err" || ! [ -s "$work/$layer.nm" ]; then
		bad "$lib: not there, or $nm cannot read it; run make first" "$(head -n 1 "$work/err")"
		continue
	fi
	# A line of nm -A: library:member:[address] type name. Versions of symbols do not count.
	awk '{sub(/@.*/, "", $NF); print ($(NF - 1) ~ /^[Uwv]$/ ? "U" : "D"), $NF}' "$work/$layer.nm" |
		sort -u >"$work/$layer.all"
	sed -n 's/^D //p' "$work/$layer.all" >"$work/$layer.defined"
	sed -n 's/^U //p' "$work/$layer.all" | grep -vxF -f "$work/$layer.defined" >"$work/$layer.wanted" || true
	: >"$work/reach"
	for to in $(allowed "$layer"); do
		[ ! -f "$work/$to.defined" ] || cat "$work/$to.defined" >>"$work/reach"
	done
	for name in $(grep '^gw_' "$work/$layer.wanted" | grep -vxF -f "$work/reach" || true); do
		bad "libgw_$(basename "$layer") takes $name from a layer that $layer may not use"
	done
done

# --- what they ask of the system ---
# Pure libraries want memory, text, arithmetic, hashes and compression; names with two underscores come from compilers
# and sanitizers.
innocent='_.*|(mem|str).*|calloc|malloc|realloc|reallocarray|free|v?snprintf|sprintf|qsort(_r)?|bsearch|abort'
innocent="$innocent|(log|exp|pow|sqrt|floor|ceil|round|lround|fma)[0-9]*f?|ZSTD_.*|crypto_generichash.*|msgpack_.*|gw_.*"
suspect='__(read|pread|pread64|recv|recvfrom|open|open64|openat|openat64|poll|ppoll|v?f?printf)(_2)?(_chk)?'
for layer in $pure; do
	[ -f "$work/$layer.wanted" ] || continue
	more='-'
	case $layer in
	trust) more='crypto_.*|randombytes_buf|sodium_.*' ;; # keys are made here, by libsodium
	patch) more='pthread_once' ;;                        # which instructions the processor has
	esac
	for name in $(grep -vxE "($innocent|$more)" "$work/$layer.wanted" || true
		grep -xE "$suspect" "$work/$layer.wanted" || true); do
		bad "libgw_$layer is not pure: it calls $name"
	done
done
# One file of io/os publishes and syncs; libzmq stays in io/zmq, out of what engines load.
for layer in $layers; do
	[ -f "$work/$layer.nm" ] || continue
	grep -E ' U (rename|renameat2?|fsync|fdatasync|syncfs|sync_file_range)(@.*)?$' "$work/$layer.nm" |
		grep -v 'libgw_os\.a:fs_os\.o:' >"$work/found" || true
	[ ! -s "$work/found" ] || bad "only io/os/fs_os.c may rename and sync: $(cat "$work/found")"
	[ "$layer" != io/zmq ] && grep '^zmq_' "$work/$layer.wanted" >"$work/found" || continue
	bad "$layer calls libzmq, which is io/zmq's alone:" $(cat "$work/found")
done

[ -s "$work/bad" ] && exit 1
echo "layers: all arrows run the right way"

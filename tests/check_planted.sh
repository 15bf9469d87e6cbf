#!/bin/sh
# Do the checks of the tree find what they are there for? Faults are planted in a small tree of their own, one at a
# time, and each must be named.
set -eu
top=$(cd "${top_srcdir:-.}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fresh() {
	rm -rf "$work/top" "$work/build"
	mkdir -p "$work/top/src/base" "$work/top/src/mesh" "$work/top/src/io/os" "$work/top/tools" "$work/top/gpu" \
		"$work/top/src/node" "$work/build/.libs"
	echo 'void gw_base_do(void) {}' >"$work/top/src/base/do.c"
	printf '#include "base/do.h"\nvoid gw_base_do(void);\nvoid gw_mesh_do(void) { gw_base_do(); }\n' >"$work/top/src/mesh/do.c"
	echo 'void gw_os_do(void) {}' >"$work/top/src/io/os/fs_os.c"
	printf '#include "base/do.h"\nint main(void) { return 0; }\n' >"$work/top/tools/tool.c"
	echo 'void gw_node_do(void) {}' >"$work/top/src/node/node.c"
	echo 'void gw_gpu_do(void) {}' >"$work/top/gpu/device.c"
}

# Not libtool: what counts is that nm finds the symbols. Includes of headers that nobody wrote are taken out.
build() {
	for layer in base mesh io/os node gpu; do
		name=$(basename $layer)
		dir=$work/top/src/$layer
		[ -d "$dir" ] || dir=$work/top/$layer
		for c in "$dir"/*.c; do
			sed '/#include "/d' "$c" >"$work/build/$(basename "$c")"
			${CC:-cc} -w -O0 -ffreestanding -c -o "$work/build/$(basename "$c" .c).o" "$work/build/$(basename "$c")"
			${AR:-ar} cr "$work/build/.libs/libgw_$name.a" "$work/build/$(basename "$c" .c).o" 2>/dev/null
		done
	done
}

# sound CHECK: nothing is planted, and the check passes.
sound() {
	top_srcdir=$work/top top_builddir=$work/build sh "$top/tests/$1" >"$work/out" 2>&1 && return
	echo "$1 refuses a sound tree:"
	cat "$work/out"
	failed=1
}

# finds CHECK WORDS: the check fails and says so.
finds() {
	if top_srcdir=$work/top top_builddir=$work/build sh "$top/tests/$1" >"$work/out" 2>&1; then
		echo "$1 passes, though it should have said: $2"
		failed=1
	elif ! grep -qF -- "$2" "$work/out"; then
		echo "$1 fails, but does not say: $2"
		cat "$work/out"
		failed=1
	fi
}

fresh && build
sound check_layers.sh

echo '#include "node/node.h"' >>"$work/top/src/mesh/do.c"
finds check_layers.sh 'src/mesh/do.c includes node/node.h: mesh may not use node'
fresh && build
echo '#  include <io/os/loop.h>' >>"$work/top/src/node/node.h"
finds check_layers.sh 'src/node/node.h includes io/os/loop.h: node may not use io/os'
fresh && build
for layer in node mesh; do
	echo "#include \"$layer/$layer.h\"" >"$work/top/tools/more.c"
	finds check_layers.sh "tools/more.c includes $layer/$layer.h: tools may not use $layer"
done
fresh && build
echo '#include "../io/os/loop.h"' >>"$work/top/src/mesh/do.c"
finds check_layers.sh 'write the path from the top'
fresh && build
rm "$work/build/.libs/libgw_mesh.a"
finds check_layers.sh 'libgw_mesh.a: not there'
fresh
echo 'void gw_node_do(void); void gw_mesh_more(void) { gw_node_do(); }' >>"$work/top/src/mesh/do.c"
build
finds check_layers.sh 'libgw_mesh takes gw_node_do from a layer that mesh may not use'
for call in time getenv clock_gettime socket __read_chk rand; do
	fresh
	echo "void $call(void); void gw_node_more(void) { $call(); }" >>"$work/top/src/node/node.c"
	build
	finds check_layers.sh "libgw_node is not pure: it calls $call"
done
fresh
echo 'void fsync(void); void gw_os_sync(void) { fsync(); }' >"$work/top/src/io/os/other.c"
build
finds check_layers.sh 'only io/os/fs_os.c may rename and sync'
fresh
echo 'void zmq_send(void); void gw_os_send(void) { zmq_send(); }' >"$work/top/src/io/os/other.c"
build
finds check_layers.sh "calls libzmq, which is io/zmq's alone: zmq_send"

[ $failed = 0 ] && echo "planted faults are found"
exit $failed

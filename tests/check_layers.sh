#!/bin/sh
# Arrows between layers run one way (design.md, section 3). Two views of it:
# the #include lines of the sources, and the undefined symbols of the libraries that must be pure.
set -eu
src=${top_srcdir:-.}/src
build=${top_builddir:-.}
nm=${NM:-nm}
bad=0

# layer: what it may include, itself aside
allowed() {
	case $1 in
	base) echo "" ;;
	weights | trust | wire) echo "base wire" ;;
	patch) echo "base weights" ;;
	mesh | swarm | board | engine | gate) echo "base weights patch trust wire" ;;
	node) echo "base weights patch trust wire mesh swarm board engine gate" ;;
	io/os) echo "base weights patch trust wire" ;;
	io/zmq) echo "base weights patch trust wire io/os" ;;
	lib) echo "base weights patch trust wire engine io/os gpu" ;;
	daemon) echo "base weights patch trust wire mesh swarm board engine gate node io/os io/zmq gpu lib" ;;
	*) echo "?" ;;
	esac
}

layer_of() {
	case $1 in
	io/os/* | io/zmq/*) echo "$1" | cut -d/ -f1-2 ;;
	*/*) echo "${1%%/*}" ;;
	esac
}

cd "$src"
for f in $(find . -name '*.[ch]' | sed 's,^\./,,' | sort); do
	from=$(layer_of "$f")
	ok=" $from $(allowed "$from") "
	for inc in $(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$f"); do
		case $inc in
		proto/*) to=wire ;; # tables that belong to no layer
		*/*) to=$(layer_of "$inc") ;;
		*) continue ;;
		esac
		case $ok in
		*" $to "*) ;;
		*)
			[ "$inc" = proto/messages.def ] && continue
			echo "src/$f includes $inc: $from may not use $to"
			bad=1
			;;
		esac
	done
done
cd - >/dev/null

# Pure libraries ask nothing of the system but memory and arithmetic. A deny-list, because sanitizers and
# the compiler add symbols of their own.
deny='socket|bind|listen|accept4?|connect|sendto|sendmsg|send|recvfrom|recvmsg|recv|open(at)?(64)?|creat(64)?|fopen(64)?|read|pread(64)?|write|pwrite(64)?|close|rename(at)?|unlink(at)?|mkdir(at)?|fsync|fdatasync|mmap(64)?|munmap|clock_gettime|gettimeofday|time|nanosleep|usleep|sleep|pthread_create|fork|vfork|execv[ep]*|posix_spawnp?|rand|random|srand|getrandom|getentropy|randombytes.*|zmq_.*|system|popen|signal|sigaction'
for lib in weights patch trust wire mesh swarm board engine gate node; do
	so=$build/.libs/libgw_$lib.a
	[ -f "$so" ] || continue
	limits=$deny
	# Key generation is trust's own business, and done by libsodium.
	[ "$lib" = trust ] && limits=$(echo "$deny" | sed 's/|randombytes\.\*//')
	found=$($nm -u "$so" 2>/dev/null | awk '{print $NF}' | sed 's/@.*//' | sort -u | grep -xE "($limits)" || true)
	if [ -n "$found" ]; then
		echo "libgw_$lib is not pure: it calls" $found
		bad=1
	fi
done
[ $bad = 0 ] && echo "layers: all arrows run the right way"
exit $bad

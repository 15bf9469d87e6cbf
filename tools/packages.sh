# Debian packages that the build and the tests need, and how they are installed. Sourced by tools/check,
# tools/quickstart; not run.
BUILD_PACKAGES="gcc libc6-dev make autoconf automake libtool pkg-config libzmq3-dev libsodium-dev libzstd-dev \
libmsgpack-dev libinih-dev libjansson-dev"
RUN_PACKAGES="python3 procps ca-certificates"
TEST_PACKAGES="$RUN_PACKAGES check g++ python3-numpy python3-zstandard clang libclang-rt-14-dev valgrind iproute2 git \
xz-utils"
# Rivals of make bench-codec; what is missing is left out there.
BENCH_PACKAGES="zstd xdelta3 bsdiff"

# install_packages "a b c": only what is missing, so that a second run needs no network.
install_packages() {
	local missing="" p
	for p in $1; do
		dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q "install ok installed" || missing="$missing $p"
	done
	[ -n "$missing" ] || return 0
	local sudo=""
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null || { echo "not root and no sudo: please install:$missing" >&2; return 1; }
		sudo=sudo
	fi
	echo "installing:$missing"
	$sudo apt-get update -qq
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

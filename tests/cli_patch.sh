#!/bin/sh
# The verbs diff, apply, fold, inspect, fingerprint as users meet them: exit codes, messages that name what is wrong, JSON
# fields, and nothing left behind.
set -eu
godwit=${top_builddir:-.}/tools/godwit
python=${PYTHON3:-/usr/bin/python3}
data=${top_srcdir:-.}/tests/data/lr1e-6
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

# want CODE WORDS COMMAND…: exits so, and says these words
want() {
	code=$1
	words=$2
	shift 2
	got=0
	"$@" >"$work/out" 2>&1 || got=$?
	if [ $got = "$code" ] && grep -qF -e "$words" "$work/out"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED ($got for $code, \"$words\"): $*"
		cat "$work/out"
	fi
}

# flip FILE BYTE: its lowest bit
flip() {
	chmod u+w "$1"
	b=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
	printf "\\$(printf %o $((b ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# field FILE PYTHON: an expression over the document d is true
field() {
	if $python -c "import json,sys; d=json.load(open(sys.argv[1])); sys.exit(not ($2))" "$1"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED: $2 in"
		cat "$1"
	fi
}

v0=$data/bf16/v0
v1=$data/bf16/v1
want 2 "-o FILE" "$godwit" diff "$v0" "$v1"
want 0 "37835 of 1868544 elements changed" "$godwit" diff "$v0" "$v1" -o "$work/p"
want 1 "exists already" "$godwit" diff "$v0" "$v1" -o "$work/p"
want 1 "no such file" "$godwit" diff "$v0" "$work/none" -o "$work/q"
"$godwit" diff "$v0" "$v1" -o "$work/p" --force --json >"$work/json"
field "$work/json" "d['elements'] == 1868544 and d['changed'] == 37835 and d['raw_bytes'] == 2 * d['elements']"
field "$work/json" "abs(d['bits_per_change'] - 8 * d['patch_bytes'] / d['changed']) < 1e-9"
field "$work/json" "sum(t['changed'] for t in d['tensors']) == d['changed'] and d['patch_bytes'] == $(wc -c <"$work/p")"
field "$work/json" "all({'name', 'dtype', 'shape', 'elements', 'changed', 'bytes'} <= t.keys() for t in d['tensors'])"
"$godwit" inspect "$work/p" --json >"$work/json2"
cmp "$work/json" "$work/json2" && passed=$((passed + 1))
want 0 "bits a change" "$godwit" inspect "$work/p"
"$godwit" fingerprint "$v0" --json >"$work/f0"
field "$work/f0" "d['fingerprint'] == json.load(open('$work/json'))['before'] and len(d['tensors']) == 9"
want 0 "the whole:" "$godwit" fingerprint "$v0"

want 2 "either -o NEW or --in-place" "$godwit" apply "$work/p" "$v0"
want 0 "fingerprint" "$godwit" apply "$work/p" "$v0" -o "$work/new"
diff -r "$v1" "$work/new" && passed=$((passed + 1))
want 1 "exists already" "$godwit" apply "$work/p" "$v0" -o "$work/new"
want 6 "tensor model." "$godwit" apply "$work/p" "$v1" -o "$work/wrong"
want 6 "tensor model." "$godwit" apply "$work/p" "$data/fp8/v0" -o "$work/wrong"
want 0 "holds this version already" "$godwit" apply "$work/p" "$work/new" --in-place
cp -r --no-preserve=mode "$v0" "$work/place"
want 0 "fingerprint" "$godwit" apply "$work/p" "$work/place" --in-place
diff -r "$v1" "$work/place" && passed=$((passed + 1))
(cd "$work/place" && case $godwit in /*) ;; *) godwit=$OLDPWD/$godwit ;; esac && "$godwit" apply "$work/p" . --in-place >/dev/null)
flip "$work/place/model.safetensors" 1000000
want 6 "other bits" "$godwit" apply "$work/p" "$work/place" --in-place

cp "$work/p" "$work/bad"
flip "$work/bad" 5000
want 6 "digest does not match" "$godwit" apply "$work/bad" "$v0" -o "$work/wrong"
cp "$work/p" "$work/bad"
flip "$work/bad" 60
want 6 "header or tables are damaged" "$godwit" inspect "$work/bad"
head -c 20000 "$work/p" >"$work/bad"
want 1 "ends at 20000 of" "$godwit" inspect "$work/bad"
want 1 "not a patch file" "$godwit" inspect "$v0/model.safetensors"
cp -r --no-preserve=mode "$v0" "$work/base"
flip "$work/base/model.safetensors" 3000000
want 6 "tensor model." "$godwit" apply "$work/p" "$work/base" -o "$work/wrong"
want 0 "a whole version of" "$godwit" diff --from-nothing "$v1" -o "$work/anchor"
want 0 "fingerprint" "$godwit" apply "$work/anchor" -o "$work/whole"
diff -r "$v1" "$work/whole" && passed=$((passed + 1))
# A chain is one patch: the file that a diff of its ends is.
v2=$data/bf16/v2
"$godwit" diff "$v1" "$v2" -o "$work/p2" >/dev/null
"$godwit" diff "$v0" "$v2" -o "$work/direct" >/dev/null
want 2 "-o FILE" "$godwit" fold "$work/p" "$work/p2" --base "$v0"
want 2 "too few arguments" "$godwit" fold "$work/p" --base "$v0" -o "$work/folded"
want 2 "needs the base" "$godwit" fold "$work/p" "$work/p2" -o "$work/folded"
want 0 "elements changed" "$godwit" fold "$work/p" "$work/p2" --base "$v0" -o "$work/folded" --threads 2
cmp "$work/direct" "$work/folded" && passed=$((passed + 1))
want 1 "exists already" "$godwit" fold "$work/p" "$work/p2" --base "$v0" -o "$work/folded"
"$godwit" fold "$work/p" "$work/p2" --base "$v0" -o "$work/folded" --force --json >"$work/json"
"$godwit" inspect "$work/direct" --json >"$work/json2"
cmp "$work/json" "$work/json2" && passed=$((passed + 1))
want 6 "not a chain" "$godwit" fold "$work/p2" "$work/p" --base "$v1" -o "$work/wrong"
want 6 "tensor model." "$godwit" fold "$work/p" "$work/p2" --base "$v1" -o "$work/wrong"
want 1 "not a patch file" "$godwit" fold "$work/p" "$v0/model.safetensors" --base "$v0" -o "$work/wrong"
want 6 "takes no base" "$godwit" fold "$work/anchor" "$work/p2" --base "$v1" -o "$work/wrong"
want 0 "a whole version of" "$godwit" fold "$work/anchor" "$work/p2" -o "$work/anchor2"
"$godwit" diff --from-nothing "$v2" -o "$work/direct" --force >/dev/null
cmp "$work/direct" "$work/anchor2" && passed=$((passed + 1))
# A bar on a terminal, and nothing elsewhere.
cp -r --no-preserve=mode "$v0" "$work/bar"
if $python - "$godwit" "$v0" "$v1" "$work" <<'END'; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
import os, pty, subprocess, sys
godwit, v0, v1, work = sys.argv[1:]
for verb in (["diff", v0, v1, "-o", f"{work}/bar.p"], ["apply", f"{work}/bar.p", v0, "-o", f"{work}/bar.new"],
             ["apply", f"{work}/bar.p", f"{work}/bar", "--in-place"], ["fingerprint", v0],
             ["fold", f"{work}/p", f"{work}/p2", "--base", v0, "-o", f"{work}/bar.f"]):
    main, side = pty.openpty()
    ran = subprocess.run([godwit, *verb], stdout=subprocess.PIPE, stderr=side, check=True)
    os.close(side)
    said = b""
    try:
        while more := os.read(main, 4096):
            said += more
    except OSError:
        pass
    os.close(main)
    if not (said.startswith(f"\r{verb[0]} ".encode()) and b"] 100 %, " in said and b"/s" in said and said.endswith(b"\n")
            and b"\r" not in ran.stdout):
        sys.exit(f"FAILED: {verb[0]} drew {said!r}")
quiet = subprocess.run([godwit, "fingerprint", v0], capture_output=True, check=True)
sys.exit(f"FAILED: drew into a pipe: {quiet.stderr!r}" if quiet.stderr else 0)
END
want 0 "--in-place" "$godwit" apply --help
want 0 "mesh invite" "$godwit" mesh --help
want 2 "unknown verb none" "$godwit" mesh none
want 2 "unknown verb none" "$godwit" none
want 2 "unknown option --none" "$godwit" diff --none

[ ! -e "$work/wrong" ] && [ -z "$(find "$work" -name '.*.tmp-*' -o -name '*godwit-redo*')" ] || {
	echo "FAILED: something was left behind"
	failed=$((failed + 1))
}
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]

"""godwit keygen, mesh init, mesh invite and verify, against the second reader (and signer) of trust_ref.py.

    trust_tools.py GODWIT TOP_SRCDIR
"""
import base64
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Tuple

sys.path.insert(0, os.path.dirname(__file__))
import fingerprint_ref as prints  # noqa: E402
import trust_ref as ref  # noqa: E402

GODWIT, TOP = sys.argv[1], sys.argv[2]
SECOND = 10**9


def run(*args: str) -> Tuple[int, str, str]:
    done = subprocess.run([GODWIT, *args], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def good(*args: str) -> str:
    code, out, err = run(*args)
    assert code == 0, (args, code, err)
    return out


def refused(code: int, named: str, *args: str) -> str:
    got, out, err = run(*args)
    assert got == code and named in err, (args, got, err)
    return out


def put(path: str, b: bytes) -> str:
    with open(path, "wb") as f:
        f.write(b)
    return path


def key_lines(path: str) -> Dict[str, str]:
    with open(path, encoding="ascii") as f:
        return dict(line.rstrip("\n").split(": ", 1) for line in f if ": " in line)


def sign(seed: bytes, raw: bytes) -> bytes:
    """raw, signer, signature: RFC 8032."""
    h = hashlib.sha512(seed).digest()
    a = int.from_bytes(h[:32], "little") & ((1 << 254) - 8) | (1 << 254)

    def packed(p: ref.Point) -> bytes:
        inverse = pow(p[2], ref.P - 2, ref.P)
        x, y = p[0] * inverse % ref.P, p[1] * inverse % ref.P
        return (y | (x & 1) << 255).to_bytes(32, "little")

    pk = packed(ref.times(a, ref.BASE))
    r = int.from_bytes(hashlib.sha512(h[32:] + raw).digest(), "little") % ref.ORDER
    first = packed(ref.times(r, ref.BASE))
    k = int.from_bytes(hashlib.sha512(first + pk + raw).digest(), "little") % ref.ORDER
    return raw + pk + first + ((r + k * a) % ref.ORDER).to_bytes(32, "little")


def le(n: int, *values: int) -> bytes:
    return b"".join(v.to_bytes(n, "little") for v in values)


def name(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def manifest(seed: bytes, to: int, after: Tuple[int, int], table: bytes, now: int) -> bytes:
    """An anchor whose object is the table and one more byte."""
    raw = b"godwit-manifest1" + le(2, 2, 1) + le(4, 65536) + bytes(16) + le(8, to, to, now, now + 3600 * SECOND)
    raw += le(8, 0, 0, *after) + bytes(32) + le(8, len(table) + 1, len(table), 0, 0) + le(4, 1, 0)
    return sign(seed, raw + ref.digest(table) + le(4, 1) + name("demo") + ref.digest(table + b"\n"))


def head(seed: bytes, sequence: int, created: int, life: int, of: bytes) -> bytes:
    raw = b"godwit-head----1" + bytes(16) + le(8, 1, sequence, 3) + ref.digest(of) + le(8, created, created + life)
    return sign(seed, raw + le(4, 0, 0) + name("demo"))


def tensor_table(rows: List[Tuple[str, int, List[int], Tuple[int, int]]]) -> bytes:
    out = b"godwit-tensors-1" + le(4, len(rows))
    for text, dtype, shape, lanes in rows:
        out += le(2, len(text.encode())) + text.encode() + le(2, dtype) + bytes([len(shape), 0])
        out += le(8, *shape) + le(8, *lanes)
    return out


def check_keys(d: str) -> str:
    out = json.loads(good("keygen", "-o", f"{d}/host.key", "--json", "--comment", "a host"))
    secret, public = key_lines(f"{d}/host.key"), key_lines(f"{d}/host.key.pub")
    assert os.stat(f"{d}/host.key").st_mode & 0o777 == 0o600
    assert secret["kind"] == "secret host" and public["kind"] == "public host" and public["comment"] == "a host"
    assert public["curve"] == out["curve"] and len(out["curve"]) == 40
    pk = base64.b64decode(public["ed25519"])
    assert pk.hex() == out["ed25519"] and secret["id"] == public["id"] == ref.digest(pk)[:8].hex() == out["id"]
    assert sign(base64.b64decode(secret["ed25519"]), b"x")[1:33] == pk
    before = open(f"{d}/host.key", "rb").read()
    refused(1, "host.key", "keygen", "-o", f"{d}/host.key")
    refused(2, "king", "keygen", "-o", f"{d}/k", "--kind", "king")
    refused(2, "-o FILE", "keygen")
    put(f"{d}/busy.pub", b"")
    refused(1, "busy.pub", "keygen", "-o", f"{d}/busy")
    assert not os.path.exists(f"{d}/busy") and open(f"{d}/host.key", "rb").read() == before
    return str(out["curve"])


def check_mesh(d: str, curve: str) -> bytes:
    out = json.loads(good("mesh", "init", f"{d}/mesh", "--policy", "demo", "--json"))
    root = ref.read_root(open(f"{d}/mesh/root.v1", "rb").read())
    assert root["id"].hex() == out["root"] and root["threshold"] == 2 and len(root["keys"]) == 3
    assert [f for f in os.listdir(f"{d}/mesh") if f.endswith(".key") and os.stat(f"{d}/mesh/{f}").st_mode & 0o077] == []
    refused(1, "mesh", "mesh", "init", f"{d}/mesh", "--policy", "demo")
    refused(2, "--policy", "mesh", "init", f"{d}/other")
    refused(2, "--policy", "mesh", "init", f"{d}/other", "--policy", "a/b")
    refused(2, "--policy", "mesh", "init", f"{d}/other", "--policy", "a,")
    refused(2, "twice", "mesh", "init", f"{d}/other", "--policy", "a,a")
    refused(2, "--threshold", "mesh", "init", f"{d}/other", "--policy", "demo", "--threshold", "4")
    assert not os.path.exists(f"{d}/other")
    good("mesh", "init", f"{d}/several", "--policy", "demo,big")
    several = ref.read_root(open(f"{d}/several/root.v1", "rb").read())
    assert [r[0] for r in several["releases"]] == ["demo", "big"] and several["releases"][0][1] == several["releases"][1][1]

    token_args = ["mesh", "invite", "--dir", f"{d}/mesh", "--bootstrap", f"10.0.0.1:7401={curve},[fd00::1]:7401={curve}"]
    out_text = good(*token_args, "--region", "eu", "--roles", "island,relay", "--ttl", "10m", "-o", f"{d}/token")
    assert out_text == "" and os.stat(f"{d}/token").st_mode & 0o777 == 0o600
    token = ref.read_token(open(f"{d}/token", "rb").read().strip())
    grant = token["delegation"]
    assert token["root"] == root["id"] and [b[0] for b in token["bootstraps"]] == ["10.0.0.1:7401", "[fd00::1]:7401"]
    assert grant["region"] == "eu" and grant["roles"] == 5 and grant["signer"] == root["admissions"][0][0]
    assert grant["join_until"] - grant["created"] == 600 * SECOND
    assert ref.read_token(good("mesh", "invite", "--dir", f"{d}/mesh", "-o", "-").strip().encode())["bootstraps"] == []
    refused(2, "--bootstrap", "mesh", "invite", "--dir", f"{d}/mesh", "--bootstrap", "h:1=short", "-o", f"{d}/t")
    refused(2, "--roles", "mesh", "invite", "--dir", f"{d}/mesh", "--roles", "king", "-o", f"{d}/t")
    refused(2, "--member-ttl", "mesh", "invite", "--dir", f"{d}/mesh", "--ttl", "9d", "--member-ttl", "1d", "-o", f"{d}/t")
    os.chmod(f"{d}/mesh/admission.key", 0o644)
    refused(1, "chmod 600", "mesh", "invite", "--dir", f"{d}/mesh", "-o", f"{d}/t")
    os.chmod(f"{d}/mesh/admission.key", 0o600)
    assert not os.path.exists(f"{d}/t")
    return base64.b64decode(key_lines(f"{d}/mesh/release-demo.key")["ed25519"])


def check_verify(d: str, release: bytes) -> None:
    root, now = f"{d}/mesh/root.v1", time.time_ns()
    table = tensor_table([("a", 12, [2, 3], (1, 2)), ("b", 15, [], (3, 4))])
    m = manifest(release, 3, (5, 6), table, now)
    files = {
        "m": m,
        "h": head(release, 9, now, 120 * SECOND, m),
        "old": head(release, 8, now - 300 * SECOND, 120 * SECOND, m),
        "t": table,
        "stranger": manifest(bytes(32), 3, (5, 6), table, now),
        "noise": b"not a record of any kind",
    }
    p = {k: put(f"{d}/{k}", v) for k, v in files.items()}
    good("verify", "--root", root, root, p["m"], p["h"])
    said: Dict[str, Any] = json.loads(good("verify", "--root", root, "--manifest", p["m"], "--json", p["m"], p["h"], p["t"]))
    assert said["ok"] and [r["kind"] for r in said["records"]] == ["manifest", "head", "tensors"]
    assert said["records"][0]["id"] == ref.digest(m).hex() == said["records"][1]["manifest"]
    assert said["records"][1]["fresh"] is True and said["records"][2]["tensors"] == 2
    stale = json.loads(good("verify", "--root", root, "--json", p["old"]))
    assert stale["records"][0]["fresh"] is False  # expired: never fresh
    assert "not fresh" in good("verify", "--root", root, p["old"])

    held = json.loads(good("inspect", "--root", root, "--json", p["m"]))
    first = {k: v for k, v in said["records"][0].items() if k not in ("file", "kind")}
    assert held == {**first, "format": "manifest"} and held["what"] == "anchor" and held["to"] == 3
    assert held["object_bytes"] == held["tensor_table_bytes"] + held["patch_bytes"]
    assert "after    " + held["after"] in good("inspect", "--root", root, p["m"])
    refused(2, "--root", "inspect", p["m"])
    refused(6, "stranger", "inspect", "--root", root, p["stranger"])

    refused(2, "--root", "verify", p["m"])
    refused(6, "stranger", "verify", "--root", root, p["stranger"])
    refused(1, "noise", "verify", "--root", root, p["noise"])
    refused(1, "nowhere", "verify", "--root", root, f"{d}/nowhere")
    refused(2, "--manifest", "verify", "--root", root, p["t"])
    pin = ref.read_root(open(root, "rb").read())["id"].hex()
    good("verify", "--root", root, "--pin", pin, p["m"])
    refused(6, "pinned", "verify", "--root", root, "--pin", "0" * 64, p["m"])
    for kind, named in (("m", "manifest"), ("h", "head")):
        for at in (20, len(files[kind]) // 2, len(files[kind]) - 1):
            broken = bytearray(files[kind])
            broken[at] ^= 4
            refused(6, named, "verify", "--root", root, put(f"{d}/broken", bytes(broken)))
        refused(6, named, "verify", "--root", root, put(f"{d}/broken", files[kind][:-1]))
    broken = bytearray(table)
    broken[-1] ^= 1
    refused(6, "tensor table", "verify", "--root", root, "--manifest", p["m"], put(f"{d}/broken", bytes(broken)))
    broken = bytearray(open(root, "rb").read())
    broken[60] ^= 1
    failed = json.loads(refused(6, "root record", "verify", "--root", put(f"{d}/broken", bytes(broken)), "--json", p["m"]))
    assert failed["ok"] is False and "root record" in failed["error"]


Tensors = List[Tuple[str, str, int, List[int], bytes]]  # name, dtype, its number, shape, bytes


def checkpoint(path: str, tensors: Tensors) -> str:
    header: Dict[str, Any] = {}
    data = b""
    for text, dtype, _, shape, raw in tensors:
        header[text] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    os.makedirs(path)
    put(f"{path}/model.safetensors", le(8, len(text)) + text + data)
    put(f"{path}/config.json", b"{}")
    return path


def check_checkpoints(d: str, release: bytes) -> None:
    root = f"{d}/mesh/root.v1"
    tensors: Tensors = [
        ("a", "BF16", 12, [2, 3], bytes(range(12))),
        ("a.b", "F32", 15, [], b"\1\2\3\4"),
        ("b", "I64", 18, [2], bytes(range(100, 116))),
    ]
    rows, model = [], (0, 0)
    for text, dtype, number, shape, raw in tensors:
        lanes = prints.fingerprint({12: 2, 15: 4, 18: 8}[number], 0, raw)
        rows.append((text, number, shape, lanes))
        model = prints.add(model, prints.words(text, dtype, shape, lanes))
    table = tensor_table(rows)
    m = put(f"{d}/cm", manifest(release, 7, model, table, time.time_ns()))
    t = put(f"{d}/ct", table + b"the payload, which is not looked at")
    right = checkpoint(f"{d}/right", tensors)
    both = ["verify", "--root", root, "--manifest", m]
    said = json.loads(good(*both, "--table", t, "--json", right, f"{right}/model.safetensors"))
    assert [(r["kind"], r["version"]) for r in said["records"]] == [("checkpoint", 7)] * 2
    assert said["records"][0]["fingerprint"] == prints.text(model)
    good(*both, right)
    os.symlink(right, f"{d}/link")
    good(*both, f"{d}/link")
    refused(2, "--manifest", "verify", "--root", root, right)
    put(f"{d}/ct-bad", table[:-1] + b"\0")
    refused(6, "tensor table", *both, "--table", f"{d}/ct-bad", right)
    refused(1, "tensor table", *both, "--table", put(f"{d}/ct-cut", table[:-1]), right)
    # One bit of one tensor; another dtype; one missing; one more, which only the whole model's fingerprint shows.
    flipped = [(n, dt, k, s, raw[:-1] + bytes([raw[-1] ^ 128]) if n == "a.b" else raw) for n, dt, k, s, raw in tensors]
    wrong = [("flip", flipped, "a.b"), ("type", [("a", "F16", *tensors[0][2:])] + tensors[1:], "tensor a "),
             ("less", tensors[:1] + tensors[2:], "a.b"), ("more", tensors + [("c", "U8", 2, [1], b"x")], "version 7")]
    for which, content, named in wrong:
        path = checkpoint(f"{d}/{which}", content)
        refused(6, named, *both, "--table", t, path)
        refused(6, "version 7", *both, path)


def main() -> int:
    with tempfile.TemporaryDirectory() as d:
        release = check_mesh(d, check_keys(d))
        check_verify(d, release)
        check_checkpoints(d, release)
    print("keygen, mesh init, mesh invite and verify agree with the second reader")
    return 0


if __name__ == "__main__":
    sys.exit(main())

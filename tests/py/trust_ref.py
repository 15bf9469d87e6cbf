"""A second reader of signed records: slow, obvious, from proto/TRUST.md and proto/MANIFEST.md alone.

    trust_ref.py VECTORS      checks every line of proto/vectors/trust.txt and prints what it says
    trust_ref.py --show FILE  one record
"""
import base64
import hashlib
import sys
from typing import Any, Dict, List, Tuple

# --- Ed25519 verification, RFC 8032, with plain integers ---

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
Point = Tuple[int, int, int, int]


def add(a: Point, b: Point) -> Point:
    s, t = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    c, d = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = t - s, d - c, d + c, t + s
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(n: int, p: Point) -> Point:
    q: Point = (0, 1, 1, 0)
    while n:
        if n & 1:
            q = add(q, p)
        p, n = add(p, p), n >> 1
    return q


def point(b: bytes) -> Point:
    y = int.from_bytes(b, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    if y >= P:
        raise ValueError("not a point")
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - x2) % P or (x == 0 and sign):
        raise ValueError("not a point")
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


BASE = point(bytes([0x58]) + bytes([0x66] * 31))


def signature_ok(pk: bytes, message: bytes, signature: bytes) -> bool:
    r, s = point(signature[:32]), int.from_bytes(signature[32:], "little")
    if s >= ORDER:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + pk + message).digest(), "little") % ORDER
    a, b = times(s, BASE), add(r, times(h, point(pk)))
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0


def digest(b: bytes) -> bytes:
    return hashlib.blake2b(b, digest_size=32).digest()


# --- records ---


class Reader:
    def __init__(self, b: bytes) -> None:
        self.b, self.at = b, 0

    def raw(self, n: int) -> bytes:
        if self.at + n > len(self.b):
            raise ValueError("truncated")
        self.at += n
        return self.b[self.at - n : self.at]

    def u(self, n: int) -> int:
        return int.from_bytes(self.raw(n), "little")

    def name(self) -> str:
        return self.raw(self.u(1)).decode("ascii")

    def end(self) -> None:
        if self.at != len(self.b):
            raise ValueError("trailing bytes")


def opened(b: bytes, magic: str) -> Tuple[Reader, bytes]:
    """The raw bytes behind the magic, and who signed them."""
    raw, pk, signature = b[:-96], b[-96:-64], b[-64:]
    if raw[:16] != magic.encode() or not signature_ok(pk, raw, signature):
        raise ValueError(f"{magic}: signature")
    r = Reader(raw)
    r.raw(16)
    return r, pk


def read_root(b: bytes) -> Dict[str, Any]:
    count = b[-1]
    raw = b[: len(b) - 1 - 96 * count]
    signers = []
    for i in range(count):
        entry = b[len(raw) + 96 * i : len(raw) + 96 * (i + 1)]
        if not signature_ok(entry[:32], raw, entry[32:]):
            raise ValueError("root: signature")
        signers.append(entry[:32])
    r = Reader(raw)
    if r.raw(16) != b"godwit-root----1":
        raise ValueError("root: magic")
    out: Dict[str, Any] = {k: r.u(8) for k in ("version", "epoch", "created", "expires")}
    threshold, keys, one, other = r.u(1), r.u(1), r.u(1), r.u(1)
    releases, admissions = r.u(2), r.u(2)
    out["keys"] = [r.raw(32) for _ in range(keys)]
    out["releases"] = [(r.name(), r.raw(32), r.u(8), r.u(8)) for _ in range(releases)]
    out["admissions"] = [(r.raw(32), r.u(8), r.u(8)) for _ in range(admissions)]
    r.end()
    out["threshold"], out["id"], out["signers"] = threshold, digest(raw), signers
    if (one, other) != (1, 1) or len(set(signers) & set(out["keys"])) < threshold:
        raise ValueError("root: threshold")
    return out


def read_manifest(b: bytes) -> Dict[str, Any]:
    r, signer = opened(b, "godwit-manifest1")
    out: Dict[str, Any] = {"kind": r.u(2), "encoding": r.u(2), "piece_bytes": r.u(4), "run": r.raw(16)}
    for k in ("from", "to", "created", "expires"):
        out[k] = r.u(8)
    out["before"], out["after"] = (r.u(8), r.u(8)), (r.u(8), r.u(8))
    out["previous"] = r.raw(32)
    for k in ("object_bytes", "tensor_table_bytes", "changed", "elements"):
        out[k] = r.u(8)
    out["object_pieces"], out["table_pieces"] = r.u(4), r.u(4)
    out["tensor_table"] = r.raw(32)
    count = r.u(4)
    out["policy"] = r.name()
    out["digests"] = [r.raw(32) for _ in range(count)]
    r.end()
    pieces = -(-out["object_bytes"] // out["piece_bytes"])
    leaves = 0 if pieces <= 512 else -(-pieces * 32 // 65536)
    if (pieces, leaves, leaves or pieces) != (out["object_pieces"], out["table_pieces"], count):
        raise ValueError("manifest: pieces")
    out["signer"], out["id"] = signer, digest(b)
    return out


def read_head(b: bytes) -> Dict[str, Any]:
    r, signer = opened(b, "godwit-head----1")
    out: Dict[str, Any] = {"run": r.raw(16), "root_epoch": r.u(8), "sequence": r.u(8), "newest": r.u(8)}
    out["manifest"], out["created"], out["expires"] = r.raw(32), r.u(8), r.u(8)
    anchors, skips = r.u(4), r.u(4)
    out["policy"] = r.name()
    out["anchors"] = [(r.raw(32), r.u(8), r.u(8)) for _ in range(anchors)]
    out["skips"] = [(r.raw(32), r.u(8), r.u(8)) for _ in range(skips)]
    r.end()
    out["signer"], out["id"] = signer, digest(b)
    return out


def read_tensors(b: bytes) -> List[Dict[str, Any]]:
    r = Reader(b)
    if r.raw(16) != b"godwit-tensors-1":
        raise ValueError("tensors: magic")
    rows = []
    for _ in range(r.u(4)):
        name = r.raw(r.u(2)).decode("utf-8")
        dtype, rank, axis = r.u(2), r.u(1), r.u(1)
        shape = [r.u(8) for _ in range(rank)]
        rows.append({"name": name, "dtype": dtype, "axis": axis, "shape": shape, "print": (r.u(8), r.u(8))})
    r.end()
    names = [row["name"].encode() for row in rows]
    if names != sorted(set(names)):
        raise ValueError("tensors: order")
    return rows


def read_counters(b: bytes) -> Dict[str, Any]:
    r = Reader(b)
    if r.raw(16) != b"godwit-counters1":
        raise ValueError("counters: magic")
    out = {"run": r.raw(16), "root_epoch": r.u(8), "sequence": r.u(8), "newest": r.u(8), "head": r.raw(32)}
    r.end()
    return out


def read_delegation(b: bytes) -> Dict[str, Any]:
    r, signer = opened(b, "godwit-delegate1")
    out = {"key": r.raw(32), "region": r.name(), "roles": r.u(4), "created": r.u(8), "join_until": r.u(8)}
    out["expires"], out["signer"] = r.u(8), signer
    r.end()
    return out


def read_member(b: bytes) -> Dict[str, Any]:
    whole = Reader(b)
    delegation = read_delegation(whole.raw(whole.u(2)))
    r, signer = opened(whole.raw(whole.u(2)), "godwit-cert----1")
    out: Dict[str, Any] = {"identity": r.raw(32), "curve": r.raw(32), "name": r.name(), "region": r.name()}
    out["island"], out["roles"], out["issued"], out["expires"] = r.name(), r.u(4), r.u(8), r.u(8)
    r.end()
    p, host = opened(whole.raw(whole.u(2)), "godwit-presence1")
    whole.end()
    out["stamp"] = p.u(8)
    out["addresses"] = [(p.u(1), p.name(), p.name()) for _ in range(p.u(1))]
    p.end()
    if signer != delegation["key"] or host != out["identity"]:
        raise ValueError("member: chain")
    if out["roles"] & ~delegation["roles"] or delegation["region"] not in ("", out["region"]):
        raise ValueError("member: more than was granted")
    out["delegation"] = delegation
    return out


def read_token(b: bytes) -> Dict[str, Any]:
    prefix = b"godwit-join-1:"
    if not b.startswith(prefix):
        raise ValueError("token: prefix")
    text = b[len(prefix) :]
    body = base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    if digest(body[:-4])[:4] != body[-4:]:
        raise ValueError("token: check")
    r = Reader(body[:-4])
    out: Dict[str, Any] = {"root": r.raw(32), "root_version": r.u(8)}
    out["bootstraps"] = [(r.name(), r.raw(32)) for _ in range(r.u(1))]
    out["seed"] = r.raw(32)
    out["delegation"] = read_delegation(r.raw(r.u(2)))
    r.end()
    return out


READERS = {
    "root1": read_root,
    "root2": read_root,
    "tensors": read_tensors,
    "transition": read_manifest,
    "anchor": read_manifest,
    "head": read_head,
    "counters": read_counters,
    "member": read_member,
    "token": read_token,
}
BY_MAGIC = {
    b"godwit-root----1": read_root,
    b"godwit-manifest1": read_manifest,
    b"godwit-head----1": read_head,
    b"godwit-tensors-1": read_tensors,
    b"godwit-delegate1": read_delegation,
}


def show(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex() if len(value) <= 16 else value.hex()[:16] + "…"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(show(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {show(v)}" for k, v in value.items()) + "}"
    return str(value)


def check_vectors(path: str) -> int:
    said: Dict[str, Any] = {}
    for line in open(path, encoding="ascii"):
        if line.startswith("#"):
            continue
        name, _, text = line.strip().partition(" ")
        raw = bytes.fromhex(text)
        said[name] = READERS[name](raw)
        print(f"{name}: {show(said[name])}")
        if name in ("head", "transition", "anchor", "member"):  # a flipped bit is refused here too
            for at in (17, len(raw) // 2, len(raw) - 1):
                broken = bytearray(raw)
                broken[at] ^= 1
                try:
                    READERS[name](bytes(broken))
                except ValueError:
                    continue
                raise ValueError(f"{name}: a flipped bit at byte {at} went unseen")
    # What holds between them.
    root, root2, head, transition = said["root1"], said["root2"], said["head"], said["transition"]
    assert len(set(root2["signers"]) & set(root["keys"])) >= root["threshold"], "root2 is signed by the old keys"
    assert root2["version"] == root["version"] + 1 and root2["epoch"] > root["epoch"]
    assert ("demo", transition["signer"]) in [r[:2] for r in root["releases"]]
    assert head["manifest"] == transition["id"] and head["anchors"][0][0] == said["anchor"]["id"]
    assert head["run"] == transition["run"] == said["counters"]["run"] and said["counters"]["head"] == head["id"]
    tensors = [line.split()[1] for line in open(path, encoding="ascii") if line.startswith("tensors ")][0]
    assert digest(bytes.fromhex(tensors)) == transition["tensor_table"]
    assert said["token"]["root"] == root["id"]
    assert said["member"]["delegation"]["signer"] == root["admissions"][0][0]
    print("the vectors hold together")
    return 0


def main() -> int:
    if sys.argv[1] == "--show":
        raw = open(sys.argv[2], "rb").read()
        print(show(BY_MAGIC[raw[:16]](raw)))
        return 0
    return check_vectors(sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())

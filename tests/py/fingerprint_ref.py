#!/usr/bin/python3
"""A second reader of proto/FINGERPRINT.md: slow, obvious, from the page alone.

fingerprint_ref.py PAGE FACTS    checks the page's worked values, then what the C code printed (tests/apply/dump.c)
"""

import hashlib
import re
import sys
from collections.abc import Sequence

MASK = 2**64 - 1


def mix(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def s(seed: str, n: int) -> int:
    return mix((int.from_bytes(seed.encode("ascii"), "little") + (n + 1) * 0x9E3779B97F4A7C15) & MASK) | 1


def key(lane: int, unit: int) -> int:
    return s(f"godwitA{lane}", unit // 1024) * s(f"godwitB{lane}", unit % 1024) & MASK


def fingerprint(width: int, first: int, data: bytes) -> tuple[int, int]:
    """Of elements first, first + 1, … of a tensor."""
    unit_bytes = min(width, 4)
    number = first * (width // unit_bytes)
    f = [0, 0]
    for at in range(0, len(data), unit_bytes):
        value = int.from_bytes(data[at : at + unit_bytes], "little")
        for lane in range(2):
            f[lane] = (f[lane] + key(lane, number) * value) & MASK
        number += 1
    return f[0], f[1]


def u64(x: int) -> bytes:
    return x.to_bytes(8, "little")


def words(name: str, dtype: str, shape: Sequence[int], f: tuple[int, int]) -> tuple[int, int]:
    message = b"godwit model print 1\0"
    for text in (name.encode(), dtype.encode()):
        message += u64(len(text)) + text
    message += u64(len(shape)) + b"".join(u64(d) for d in shape) + u64(f[0]) + u64(f[1])
    digest = hashlib.blake2b(message, digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def add(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return (a[0] + b[0]) & MASK, (a[1] + b[1]) & MASK


def text(f: tuple[int, int]) -> str:
    return f"{f[0]:016x}{f[1]:016x}"


def check_page(page: str) -> int:
    data = bytes((7 * i + 3) % 256 for i in range(5000))
    seen = 0

    def expect(got: str, want: str, what: str) -> None:
        nonlocal seen
        seen += 1
        if got != want:
            sys.exit(f"{what}: the page says {want}, reckoned {got}")

    for n, width, first, want in re.findall(
        r"^\| (\d+) (?:elements )?of (\d) bytes?(?:, elements (\d+) \S+ \d+)? \| `([0-9a-f]{32})` \|$", page, re.M
    ):
        got = fingerprint(int(width), int(first or 0), data[: int(n) * int(width)])
        expect(text(got), want, f"{n} of {width} bytes")
    for family, n, want0, want1 in re.findall(r"^\| ([AB])\[([\d^]+)\] \| (\w{16}) \| (\w{16}) \|$", page, re.M):
        index = int(n.split("^")[0]) ** int((n.split("^") + ["1"])[1])
        for lane, want in enumerate((want0, want1)):
            expect(f"{s(f'godwit{family}{lane}', index):016x}", want, f"{family}[{n}]")
    a = words("a.weight", "BF16", [2, 4], fingerprint(2, 0, data[:16]))
    b = words("b.scale", "F32", [], fingerprint(4, 0, data[:4]))
    for got in (a, b, add(a, b)):
        if f"`{text(got)}`" not in page:
            sys.exit(f"the page has not got {text(got)}")
        seen += 1
    return seen


def check_facts(facts: list[str]) -> int:
    model = (0, 0)
    seen = 0
    for line in facts:
        kind, *rest = line.rstrip("\n").split(" ")
        if kind == "print":
            got, want = text(fingerprint(int(rest[0]), int(rest[1]), bytes.fromhex(rest[2]))), rest[3]
        elif kind == "tensor":
            name, dtype, f = rest[:3]
            lanes = (int(f[:16], 16), int(f[16:], 16))
            model = add(model, words(name, dtype, [int(d) for d in rest[3:]], lanes))
            continue
        elif kind == "model":
            got, want = text(model), rest[0]
        else:
            continue
        if got != want:
            sys.exit(f"C says {want}, reckoned {got}: {line[:100]}")
        seen += 1
    return seen


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as page, open(sys.argv[2], encoding="utf-8") as facts:
        in_page, in_facts = check_page(page.read()), check_facts(facts.readlines())
    if in_page < 17 or in_facts < 61:
        sys.exit(f"only {in_page} worked values and {in_facts} facts were found")
    print(f"fingerprints: {in_page} worked values and {in_facts} random ones agree")


if __name__ == "__main__":
    main()

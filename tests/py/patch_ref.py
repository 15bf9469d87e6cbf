#!/usr/bin/python3
"""Patch files, slowly and plainly: a second reader, written from proto/PATCH.md.

    patch_ref.py PATCH BASE EXPECTED     rebuild the version from BASE ("-": from nothing) and compare with EXPECTED
"""

from __future__ import annotations

import bisect
import hashlib
import json
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

# number: (name, bits, is it a float), as in src/weights/dtype.def
DTYPES = {
    1: ("BOOL", 8, False), 2: ("U8", 8, False), 3: ("I8", 8, False), 4: ("F8_E5M2", 8, True), 5: ("F8_E4M3", 8, True),
    6: ("F8_E8M0", 8, False), 7: ("F8_E4M3FNUZ", 8, True), 8: ("F8_E5M2FNUZ", 8, True), 9: ("I16", 16, False),
    10: ("U16", 16, False), 11: ("F16", 16, True), 12: ("BF16", 16, True), 13: ("I32", 32, False), 14: ("U32", 32, False),
    15: ("F32", 32, True), 16: ("C64", 64, False), 17: ("F64", 64, True), 18: ("I64", 64, False), 19: ("U64", 64, False),
    20: ("F4", 4, False),
}  # fmt: skip
CHUNK = 1 << 20
SINGLE = "model.safetensors"


class Refused(Exception):
    pass


def need(ok: bool, what: str) -> None:
    if not ok:
        raise Refused(what)


def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, n: int) -> bytes:
        need(n <= len(self.data) - self.at, "truncated")
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, n: int) -> int:
        return int.from_bytes(self.take(n), "little")

    def varint(self) -> int:
        value = 0
        for shift in range(0, 64, 7):
            b = self.number(1)
            need(not (shift == 63 and b > 1) and not (b == 0 and shift > 0), "no shortest varint")
            value |= (b & 127) << shift
            if b < 128:
                return value
        raise Refused("varint of more than 64 bits")


class Bits:
    """From the lowest bit of each byte of a reader."""

    def __init__(self, r: Reader) -> None:
        self.r = r
        self.value = self.left = 0

    def take(self, n: int) -> int:
        while self.left < n:
            self.value |= self.r.number(1) << self.left
            self.left += 8
        v = self.value & ((1 << n) - 1)
        self.value >>= n
        self.left -= n
        return v


ESCAPE, SLOTS = 255, 2048


class Table:
    """Which symbol has a slot, its first slot, and how many it has."""

    def __init__(self, b: Bits) -> None:
        slots = {ESCAPE: SLOTS}
        first = b.take(8)
        if first != ESCAPE:
            last, most = b.take(8), b.take(8)
            need(first <= most <= last < ESCAPE, "range of a table")
            slots = {ESCAPE: 1, most: 0}
            for symbol in range(first, last + 1):
                if symbol == most or not b.take(1):
                    continue
                length = b.take(4)
                need(length <= 10, "slots of a symbol")
                low = min(length, 3)
                slots[symbol] = ((1 << low) + b.take(low)) << (length - low)
            slots[most] = SLOTS - sum(slots.values())
            need(slots[most] > 0 and first in slots and last in slots, "slots of a table")
        self.slots = slots
        self.at = [(s, sum(slots[i] for i in slots if i < s)) for s in sorted(slots) for _ in range(slots[s])]


class Stack:
    def __init__(self, data: bytes) -> None:
        words = (len(data) - 5) // 4 if len(data) > 8 else 0
        top = len(data) - 4 * words
        need(top == 0 or data[top - 1] > 0, "highest byte of a stack")
        self.x = int.from_bytes(data[:top], "little")
        self.words = [int.from_bytes(data[top + 4 * i : top + 4 * i + 4], "little") for i in range(words)][::-1]

    def fill(self) -> None:
        if self.x < 1 << 32 and self.words:
            self.x = self.x << 32 | self.words.pop()

    def take(self, n: int) -> int:
        if n > 32:
            return self.take(32) | self.take(n - 32) << 32
        v = self.x & ((1 << n) - 1)
        self.x >>= n
        self.fill()
        return v

    def put(self, v: int, n: int) -> None:
        if n and self.x >> (64 - n):
            self.words.append(self.x & 0xFFFFFFFF)
            self.x >>= 32
        self.x = self.x << n | v

    def symbol(self, t: Table) -> int:
        slot = self.x % SLOTS
        s, first = t.at[slot]
        self.x = self.x // SLOTS * t.slots[s] + slot - first
        self.fill()
        if s == ESCAPE:
            s = self.take(8)
            need(s not in t.slots, "escaped a symbol that has slots")
        return s


SHIFT = {"BF16": 7, "F32": 7, "F16": 10, "F8_E5M2": 10, "F8_E5M2FNUZ": 10, "F8_E4M3": 11, "F8_E4M3FNUZ": 11, "F64": 4}


class Model:
    def __init__(self, dtype: int, r: Reader) -> None:
        name, bits, self.is_float = DTYPES[dtype]
        self.bits = max(8, bits)
        self.shift = SHIFT.get(name, 0)
        self.kind, self.edge = r.number(1), r.number(2)
        b = Bits(r)
        self.weights = [b.take(4) for _ in range(16)]
        need(max(self.weights) <= 10 and (self.is_float or not any(self.weights)), "weights")
        need(self.kind == 0 if self.is_float else self.kind in (0, 1), "kind of steps")
        need(self.edge <= ((0x7FFF >> self.shift) + 1 if self.is_float else 1), "edge")
        self.gaps, self.steps = Table(b), Table(b)
        self.listed = [Table(b) for _ in range(16)]
        need(b.value == 0, "bits behind the tables")

    def exponent(self, v: int) -> int:
        head = v << 8 if self.bits == 8 else v >> (self.bits - 16)
        return (head & 0x7FFF) >> self.shift if self.is_float else 0

    def extra(self, stack: Stack, symbol: int) -> int:
        if self.kind == 1:
            need(symbol <= 15 * self.bits // 4 or symbol == 254, "symbol of a step")
            return stack.take(self.bits) if symbol == 254 else 0
        c = (symbol - 17) // 2 + 3
        need(symbol < 17 or c < self.bits - 1, "symbol of a step")
        return 0 if symbol < 17 else stack.take(c)

    def apply(self, symbol: int, extra: int, old: int) -> int:
        """The new bits."""
        mask, sign = (1 << self.bits) - 1, 1 << (self.bits - 1)
        if self.kind == 1:
            if symbol == 254:
                need(sum(extra >> 4 * i & 15 > 0 for i in range(self.bits // 4)) > 1, "a single nibble")
                return old ^ extra
            nibble, step = divmod(symbol - 1, 15)
            now = (old >> 4 * nibble) + step + 1 & 15
            return old & ~(15 << 4 * nibble) | now << 4 * nibble
        if symbol < 17:
            m, down = divmod(symbol - 1, 2)
            m += 1
        else:
            c, down = divmod(symbol - 17, 2)
            m = (1 << c + 3) + extra + 1
            need(m < sign or down == 1, "half of all steps, upwards")
        order = old if not self.is_float else old ^ mask if old & sign else old | sign
        order = order + (-m if down else m) & mask
        return order if not self.is_float else order ^ sign if order & sign else order ^ mask

    def decode(self, payload: bytes, old: list[int], hot: set[int] = frozenset()) -> dict[int, int]:
        """Place in the tile -> new bits."""
        r = Reader(payload)
        left = r.varint()
        stack = Stack(payload[r.at :])
        begins: list[int] = []
        timed: list[tuple[int, int]] = []  # element, weight
        listed: list[tuple[int, int]] = []  # element, class
        time = 0
        for i, v in enumerate(old):
            e = self.exponent(v)
            if i in hot:
                listed.append((i, 15))
                timed.append((-1, 0))
                begins.append(time)
                time += 1
                continue
            if e < self.edge:
                listed.append((i, min(self.edge - 1 - e, 15)))
                continue
            timed.append((i, self.weights[min(e - self.edge, 15)]))
            begins.append(time)
            time += 1 << timed[-1][1]
        out: dict[int, int] = {}
        last, base = -1, 0
        while left:
            batch: list[tuple[int, int, int]] = []  # time, step's symbol and extra bits
            size = min(32, (left + 1) // 2)
            left -= size
            for _ in range(size):
                s = stack.symbol(self.gaps)
                need(s <= 223, "symbol of a gap")
                k = s // 8
                if s % 2 == 0:
                    need(self.kind == 0, "a near step of nibbles")
                    v = stack.take(k + 1)
                    symbol, v, extra = 1 + v % 2, v // 2, 0
                else:
                    v = stack.take(k)
                    symbol = stack.symbol(self.steps)
                    need(symbol > (2 if self.kind == 0 else 0), "a step that is none, or near")
                    extra = self.extra(stack, symbol)
                t = base + ((4 + s // 2 % 4) << k) + v - 4
                need(t < time, "behind the end of time")
                base = t + 1
                batch.append((t, symbol, extra))
            for t, symbol, extra in batch:
                i = bisect.bisect_right(begins, t) - 1
                at, weight = timed[i]
                need(at > last, "two changes of an element, or a hot one's")
                last = at
                out[at] = self.apply(symbol, extra, old[at])
                stack.put(t - begins[i], weight)
                base = begins[i] + (1 << weight)
        for at, c in listed:
            symbol = stack.symbol(self.listed[c])
            if symbol:
                out[at] = self.apply(symbol, self.extra(stack, symbol), old[at])
        need(stack.x == 0 and not stack.words, "more in a stack than is needed")
        return out


@dataclass
class Body:
    at: int
    size: int


@dataclass
class Blob:
    size: int
    bodies: list[Body]


@dataclass
class Tensor:
    name: str
    kind: int
    dtype: int
    shape: list[int]
    axis: int
    companion: int = 0
    changed: int = 0
    old: tuple[int, int] = (0, 0)
    new: tuple[int, int] = (0, 0)
    tiles: list[Body] = field(default_factory=list)
    blob: Blob | None = None

    @property
    def width(self) -> int:
        return max(1, DTYPES[self.dtype][1] // 8)

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype][1] // 8


@dataclass
class Carried:
    name: str
    fresh: bool
    size: int
    digest16: bytes
    blob: Blob | None


@dataclass
class File:
    name: str
    kind: int
    fresh: bool = False
    size: int = 0
    digest16: bytes = b""
    blob: Blob | None = None
    data: int = 0
    carried: list[Carried] = field(default_factory=list)


Rect = tuple[range, range]
Served = dict[str, tuple[str, list[int], bytes]]
RULES = {1: ("_packed", "_scale"), 2: ("_blocks", "_scales"), 3: ("", "_scale")}


def tiles(shape: list[int], axis: int, bits: int) -> tuple[int, list[Rect]]:
    """Columns of the matrix, and each tile's rows and columns."""
    s = list(shape)
    if bits == 4:
        if s and s[-1] % 2 == 0:
            s[-1] //= 2
        else:
            s, axis = [math.prod(s) // 2], 0
    n = math.prod(s)
    rows, cols = math.prod(s[:axis]), math.prod(s[axis:])
    extent, inner = (s[axis], math.prod(s[axis + 1 :])) if s else (1, 1)
    if n == 0:
        return cols, []
    g = math.gcd(extent, 16) if n >= 524288 else 1
    w = cols // g
    out: list[Rect] = []
    for j in range(g):
        if w <= 262144:
            m = 262144 // w
            p = -(-rows // m)
            for k in range(p):
                out.append((range(k * rows // p, (k + 1) * rows // p), range(j * w, (j + 1) * w)))
            continue
        u = inner if inner <= 262144 else 1
        units = w // u
        m = 262144 // u
        p = -(-units // m)
        for r in range(rows):
            for k in range(p):
                a, b = k * units // p * u, (k + 1) * units // p * u
                out.append((range(r, r + 1), range(j * w + a, j * w + b)))
    return cols, out


class Patch:
    def __init__(self, data: bytes) -> None:
        self.data = data
        h = Reader(data[:128])
        need(h.take(8) == b"GWPATCH\0" and h.number(2) == 1, "no patch of version 1")
        flags, tensors, files, models = h.number(2), h.number(4), h.number(4), h.number(4)
        need(h.number(8) == len(data), "another size than the header says")
        tables = h.number(8)
        self.before = (h.number(8), h.number(8))
        self.after = (h.number(8), h.number(8))
        changed = h.number(8)
        self.elements, self.bytes = h.number(8), h.number(8)
        need(flags in (0, 1) and 128 <= tables <= len(data), "odd header")
        need(digest(data[:96] + data[tables:]) == h.take(32), "digest of header and tables")
        self.nothing = flags == 1
        self.body_at = 128
        self.r = Reader(data[tables:])
        self.models: dict[int, Model] = {}
        for _ in range(models):
            dtype = self.r.number(1)
            need(dtype in DTYPES and all(dtype > d for d in self.models), "order of models")
            self.models[dtype] = Model(dtype, self.r)
        self.tensors: dict[str, Tensor] = {}
        last = ""
        for _ in range(tensors):
            t = self.read_tensor(last)
            self.tensors[t.name] = t
            last = t.name
        self.files: dict[str, File] = {}
        last = ""
        for _ in range(files):
            f = self.read_file(last)
            self.files[f.name] = f
            last = f.name
        need(self.r.at == len(self.r.data), "bytes behind the tables")
        need(self.body_at == tables, "bodies that no table names")
        need(sum(t.changed for t in self.tensors.values()) == changed, "another sum of changes")

    def read_name(self, last: str) -> str:
        shared, more = self.r.varint(), self.r.varint()
        old = last.encode()
        need(shared <= len(old), "shared part of a name")
        name = old[:shared] + self.r.take(more)
        need(shared == len(old) or name[shared] != old[shared], "a name that shares less than it could")
        need(old < name and 0 not in name, "order of names")
        return name.decode()

    def read_body(self) -> Body:
        b = Body(self.body_at, self.r.varint())
        self.body_at += b.size
        return b

    def read_blob(self, size: int) -> Blob:
        return Blob(size, [self.read_body() for _ in range(-(-size // CHUNK))])

    def read_tensor(self, last: str) -> Tensor:
        r = self.r
        name = self.read_name(last)
        kind, dtype, rank, axis = r.number(1), r.number(1), r.number(1), r.number(1)
        kind, companion = kind & 15, kind >> 4
        need(kind in (1, 2, 3) and dtype in DTYPES and rank <= 32 and axis < max(rank, 1), f"row of {name}")
        need(companion in (0, 1, 2, 3) and (kind == 1 or companion == 0), f"companion of {name}")
        t = Tensor(name, kind, dtype, [r.varint() for _ in range(rank)], axis, companion)
        if kind != 2:
            t.old = (r.number(8), r.number(8))
        if kind != 3:
            t.new = (r.number(8), r.number(8))
        if kind == 1:
            t.changed = r.varint()
            t.tiles = [self.read_body() for _ in tiles(t.shape, axis, DTYPES[dtype][1])[1]]
        if kind == 2:
            t.changed = t.bytes // t.width
            t.blob = self.read_blob(t.bytes)
        return t

    def read_file(self, last: str) -> File:
        r = self.r
        f = File(self.read_name(last), r.number(1))
        need(f.kind in (1, 2, 3) and "/" not in f.name, f"row of file {f.name}")
        if f.kind == 3:
            return f
        f.fresh, f.size, f.digest16 = bool(r.number(1)), r.varint(), r.take(16)
        f.blob = self.read_blob(f.size) if f.fresh else None
        if f.kind == 2:
            return f
        f.data = r.varint()
        for _ in range(r.varint()):
            name = r.take(r.varint()).decode()
            fresh, size, d = bool(r.number(1)), r.varint(), r.take(16)
            f.carried.append(Carried(name, fresh, size, d, self.read_blob(size) if fresh else None))
        return f

    def open_body(self, b: Body) -> tuple[int, bytes]:
        body = self.data[b.at : b.at + b.size]
        need(len(body) > 5 and digest(body[:-4])[:4] == body[-4:], "check word of a body")
        return body[0], body[1:-4]

    def raw(self, mode: int, payload: bytes, n: int, width: int) -> bytes:
        if mode == 2:
            out = payload
        else:
            need(mode in (3, 4), "mode of a body")
            out = zstandard.ZstdDecompressor().decompress(payload)
            if mode == 4:
                planes, elements = out, n // width
                out = bytes(planes[b * elements + i] for i in range(elements) for b in range(width))
        need(len(out) == n, "size of a body")
        return out

    def blob(self, b: Blob | None, width: int) -> bytes:
        assert b is not None
        out = b""
        for i, body in enumerate(b.bodies):
            out += self.raw(*self.open_body(body), min(CHUNK, b.size - i * CHUNK), width)
        return out

    def companion(self, t: Tensor) -> Tensor | None:
        if not t.companion:
            return None
        end, other = RULES[t.companion]
        need(t.name.endswith(end), f"companion of {t.name}")
        c = self.tensors.get(t.name[: len(t.name) - len(end)] + other)
        need(c is not None and c.kind == 1 and c.companion == 0 and not DTYPES[t.dtype][2], f"companion of {t.name}")
        assert c is not None
        need(c.bytes > 0 and (t.bytes // t.width) % (c.bytes // c.width) == 0, f"companion of {t.name}")
        return c

    def change(self, t: Tensor, base: bytes, served: Served) -> bytes:
        """The tensor's new bytes."""
        w, new, hot_groups, group = t.width, bytearray(base), set[int](), 1
        c = self.companion(t)
        if c:
            old_scales = served[c.name][2]
            new_scales = self.change(c, old_scales, served)
            size = c.bytes // c.width
            hot_groups = {i for i in range(size) if old_scales[c.width * i :][: c.width] != new_scales[c.width * i :][: c.width]}
            group = t.bytes // w // size
        cols, rects = tiles(t.shape, t.axis, DTYPES[t.dtype][1])
        changed = 0
        for body, (rows, columns) in zip(t.tiles, rects):
            if not body.size:
                continue
            at = [w * (r * cols + c) for r in rows for c in columns]
            old = [int.from_bytes(base[a : a + w], "little") for a in at]
            mode, payload = self.open_body(body)
            if mode == 1:
                need(t.dtype in self.models, f"model of {t.name}")
                hot = {i for i, a in enumerate(at) if a // w // group in hot_groups}
                changes = self.models[t.dtype].decode(payload, old, hot)
            else:
                raw = self.raw(mode, payload, w * len(at), w)
                values = [int.from_bytes(raw[w * i : w * i + w], "little") for i in range(len(at))]
                changes = {i: v for i, v in enumerate(values) if v != old[i]}
            need(len(changes) > 0 and all(old[i] != v for i, v in changes.items()), "a change that is none")
            for i, v in changes.items():
                new[at[i] : at[i] + w] = v.to_bytes(w, "little")
            changed += len(changes)
        need(changed == t.changed, f"count of changes of {t.name}")
        return bytes(new)


@dataclass
class Folder:
    """A checkpoint, as far as a patch needs it: shards' tensors by file, the served ones, other files."""

    shards: dict[str, tuple[bytes, list[tuple[str, str, list[int], bytes]]]]
    served: Served
    others: dict[str, bytes]


def header_rows(header: bytes) -> list[tuple[str, str, list[int], int, int]]:
    doc = json.loads(header[8:])
    rows = [(n, e["dtype"], e["shape"], *e["data_offsets"]) for n, e in doc.items() if n != "__metadata__"]
    return sorted(rows, key=lambda r: (r[3], r[4]))


def read_folder(path: Path) -> Folder:
    files = {SINGLE: path.read_bytes()} if path.is_file() else {p.name: p.read_bytes() for p in sorted(path.iterdir())}
    f = Folder({}, {}, {})
    index: dict[str, str] | None = None
    for name, data in files.items():
        if name == "model.safetensors.index.json":
            index = json.loads(data)["weight_map"]
        if not name.endswith(".safetensors"):
            f.others[name] = data
            continue
        end = 8 + int.from_bytes(data[:8], "little")
        rows = [(n, d, s, data[end + a : end + b]) for n, d, s, a, b in header_rows(data[:end])]
        f.shards[name] = (data[:end], rows)
    for name, (_, rows) in f.shards.items():
        for n, d, s, data in rows:
            if index is None or index.get(n) == name:
                f.served[n] = (d, s, data)
    return f


def rebuild(p: Patch, base: Folder) -> dict[str, bytes]:
    """All files of the new version."""
    out: dict[str, bytes] = {}
    for f in p.files.values():
        if f.kind == 3:
            continue
        if f.fresh:
            head = p.blob(f.blob, 1)
        else:
            head = base.shards[f.name][0] if f.kind == 1 else base.others[f.name]
        need(len(head) == f.size and digest(head)[:16] == f.digest16, f"bytes of {f.name}")
        out[f.name] = head
        if f.kind == 2:
            continue
        carried = {c.name: c for c in f.carried}
        for name, dtype, shape, begin, end in header_rows(head):
            c, t = carried.pop(name, None), p.tensors.get(name)
            if c:
                old = {n: d for n, _, _, d in base.shards[f.name][1]} if f.name in base.shards else {}
                data = p.blob(c.blob, 1) if c.fresh else old[name]
                need(digest(data)[:16] == c.digest16, f"bytes of carried {name}")
            elif t and t.kind == 2:
                data = p.blob(t.blob, t.width)
            else:
                d, s, data = base.served[name]
                need((d, s) == (dtype, shape), f"form of {name}")
                data = p.change(t, data, base.served) if t else data
            need(len(data) == end - begin, f"size of {name}")
            out[f.name] += data
        need(not carried and len(out[f.name]) == f.size + f.data, f"size of {f.name}")
    return out


def main() -> None:
    patch, base, expected = (Path(a) for a in sys.argv[1:4])
    p = Patch(patch.read_bytes())
    files = rebuild(p, Folder({}, {}, {}) if str(base) == "-" else read_folder(base))
    if expected.is_file():
        want = {SINGLE: expected.read_bytes()}
    else:
        want = {e.name: e.read_bytes() for e in sorted(expected.iterdir())}
    need(files.keys() == want.keys(), f"files: {sorted(files)} for {sorted(want)}")
    for name, data in want.items():
        need(files[name] == data, f"{name} differs")
    print(f"{patch}: {len(files)} files, {sum(len(d) for d in files.values())} bytes, as expected")


if __name__ == "__main__":
    try:
        main()
    except Refused as e:
        sys.exit(f"patch_ref: {e}")

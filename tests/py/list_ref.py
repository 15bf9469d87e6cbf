#!/usr/bin/python3
"""A second reader of proto/LIST.md: slow, obvious, from the page alone.

list_ref.py PAGE FACTS    reads the page's worked bytes, then the lists that the C code printed (tests/apply/dump.c)
"""

import re
import struct
import sys
from typing import NamedTuple

MASK = 2**64 - 1


class Record(NamedTuple):
    segment: int
    width: int
    at: int
    old: bytes
    new: bytes


def key(lane: int, unit: int) -> int:
    """proto/FINGERPRINT.md"""
    k = 1
    for family, n in (("A", unit // 1024), ("B", unit % 1024)):
        z = (int.from_bytes(f"godwit{family}{lane}".encode(), "little") + (n + 1) * 0x9E3779B97F4A7C15) & MASK
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
        k = k * ((z ^ (z >> 31)) | 1) & MASK
    return k


def check_sum(b: bytes) -> tuple[int, int]:
    f = [0, 0]
    for unit in range(len(b) // 4):
        if unit != 2 and not 20 <= unit <= 23:
            for lane in range(2):
                f[lane] += key(lane, unit) * int.from_bytes(b[4 * unit : 4 * unit + 4], "little")
    return f[0] & MASK, f[1] & MASK


def padded(n: int) -> int:
    return (n + 7) // 8 * 8


def read(b: bytes) -> tuple[tuple[int, int, int], list[Record]]:
    """(state, from, to) and the records, in list order."""
    magic, state, flags, _run, v_from, v_to, size, count, runs, segments, runs_at, check0, check1 = struct.unpack_from(
        "<8sII16sQQQQIIQQQ", b
    )
    assert magic == b"GWLIST1\0" and flags == 0 and size == len(b)
    assert (check0, check1) == check_sum(b)
    assert runs_at + 24 * runs == size
    records: list[Record] = []
    taken: set[tuple[int, int]] = set()
    expected = 96
    for i in range(runs):
        base, at, segment, n, width, zero = struct.unpack_from("<QQIHBB", b, runs_at + 24 * i)
        assert at == expected and 1 <= n <= 4096 and width in (1, 2, 4, 8) and zero == 0 and segment < segments
        gaps = struct.unpack_from(f"<{n}H", b, at)
        old_at = at + padded(2 * n)
        new_at = old_at + padded(n * width)
        expected = new_at + padded(n * width)
        place = base
        for k, gap in enumerate(gaps):
            assert gap > 0 or k == 0
            place += gap * width
            old, new = (b[c + k * width : c + (k + 1) * width] for c in (old_at, new_at))
            records.append(Record(segment, width, place, old, new))
            for byte in range(place, place + width):
                assert (segment, byte) not in taken
                taken.add((segment, byte))
    assert expected == runs_at and len(records) == count
    assert segments == max((r.segment for r in records), default=-1) + 1
    return (state, v_from, v_to), records


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as f:
        rows = re.findall(r"^    [0-9a-f]{2}  ((?:[0-9a-f]{2} ?){16})$", f.read(), re.M)
    head, records = read(bytes.fromhex("".join(rows)))
    assert head == (1, 41, 42)
    assert records == [
        Record(0, 2, 0x1000, b"\x80\x3f", b"\x81\x3f"),
        Record(0, 2, 0x1002, b"\x81\x3f", b"\x80\x3f"),
        Record(0, 2, 0x3000, b"\x80\xbf", b"\x7f\xbf"),
        Record(2, 1, 7, b"\x38", b"\x39"),
    ]
    lists: list[tuple[list[Record], list[Record]]] = []
    with open(sys.argv[2], encoding="utf-8") as f:
        for line in f:
            kind, *rest = line.split()
            if kind == "list":
                lists.append((read(bytes.fromhex(rest[0]))[1], []))
            elif kind == "record":
                segment, width, at = (int(x) for x in rest[:3])
                lists[-1][1].append(Record(segment, width, at, bytes.fromhex(rest[3]), bytes.fromhex(rest[4])))
    assert len(lists) == 3 and all(got == want and want for got, want in lists)
    print(f"lists: the worked bytes and {len(lists)} random lists read alike")


main()

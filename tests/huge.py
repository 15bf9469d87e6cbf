#!/usr/bin/python3
"""Tensors of more than 2^31 elements and of more than 2^32, in sparse files: diff, apply, in place and into a new folder, give
every byte; and the patch is small. Needs 9 GB of disk in $TMPDIR, which apply writes. make check-huge; not in make check."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BUILD = Path(os.environ.get("top_builddir", "."))
TOP = Path(os.environ.get("top_srcdir", "."))
LIMIT_MIB = 256
# name, dtype, bytes an element, elements
TENSORS = [("a.bf16", "BF16", 2, (1 << 31) + 12345), ("b.u8", "U8", 1, (1 << 32) + 77)]


def header(sizes: list[tuple[str, str, int, int]]) -> tuple[bytes, dict[str, int]]:
    rows, begin, at = {}, {}, 0
    for name, dtype, width, n in sizes:
        rows[name] = {"dtype": dtype, "shape": [n], "data_offsets": [at, at + width * n]}
        begin[name] = at
        at += width * n
    text = json.dumps(rows).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, {k: v + 8 + len(text) for k, v in begin.items()}


def places(n: int) -> list[int]:
    """Both ends, and both sides of each line where 32 bits, signed or not, of elements or of bytes, end."""
    lines = [0, 1 << 30, 1 << 31, 1 << 32, n]
    return sorted({i + d for i in lines for d in (-2, -1, 0, 1) if 0 <= i + d < n})


def write(path: Path, new: bool) -> int:
    head, begin = header(TENSORS)
    changed = 0
    with path.open("wb") as f:
        f.write(head)
        for name, _, width, n in TENSORS:
            for i in places(n):
                f.seek(begin[name] + i * width)
                f.write(((0x3F80 + i % 7 if width == 2 else i % 251) + new).to_bytes(width, "little"))
                changed += 1
        f.truncate(max(begin[name] + width * n for name, _, width, n in TENSORS))
    return changed


def godwit(*args: str | Path) -> None:
    began = time.monotonic()
    command = [sys.executable, str(TOP / "tests/py/peak_private.py"), str(LIMIT_MIB), str(BUILD / "tools/godwit")]
    subprocess.run([*command, *map(str, args)], check=True)
    print(f"RESULT huge.{args[0]} {time.monotonic() - began:.1f} s", flush=True)


def same(a: Path, b: Path) -> None:
    subprocess.run(["cmp", str(a), str(b)], check=True)


def main() -> None:
    work = Path(tempfile.mkdtemp())
    try:
        changed = write(work / "old", False)
        assert write(work / "new", True) == changed
        godwit("diff", work / "old", work / "new", "-o", work / "p")
        size = (work / "p").stat().st_size
        print(f"{changed} changes in {size} bytes")
        # A tile has a byte in the table, where nothing changed.
        assert size < 100_000, size
        godwit("apply", work / "p", work / "old", "-o", work / "made")
        same(work / "new", work / "made")
        (work / "made").unlink()
        godwit("apply", work / "p", work / "old", "--in-place")
        same(work / "new", work / "old")
        print("huge: every byte is right")
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()

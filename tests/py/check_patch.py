#!/usr/bin/python3
"""patch_ref.py, written from proto/PATCH.md alone, rebuilds what `godwit diff` made: real series, synthetic checkpoints,
patches from nothing, the page's own example; and it cuts tiles as the page's table says."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
try:
    import patch_ref as ref
except ModuleNotFoundError as e:
    print(f"SKIP: {e} (Debian: python3-zstandard)")
    sys.exit(77)

TOP = Path(os.environ.get("top_srcdir", "."))
BUILD = Path(os.environ.get("top_builddir", "."))
DATA = TOP / "tests/data"
PAIRS = [(DATA / s / "v0", DATA / s / "v1") for s in ("lr1e-6/bf16", "lr1e-6/fp8", "lr1e-5/nvfp4", "lr1e-5/mxfp4", "lr1e-5/int4")]


def godwit(*args: str | Path) -> None:
    subprocess.run([BUILD / "tools/godwit", *args], check=True, stdout=subprocess.DEVNULL)


def same(got: dict[str, bytes], folder: Path) -> None:
    want = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert got == want, f"{folder}: {sorted(got)}, {sorted(n for n in want if got.get(n) != want[n])} differ"


def check_pairs(work: Path, pairs: list[tuple[Path, Path]]) -> None:
    for old, new in pairs:
        godwit("diff", old, new, "-o", work / "p", "--force")
        p = ref.Patch((work / "p").read_bytes())
        same(ref.rebuild(p, ref.read_folder(old)), new)
        print(f"{new}: {sum(t.changed for t in p.tensors.values())} changes in {len(p.data)} bytes")
    godwit("diff", "--from-nothing", pairs[-1][1], "-o", work / "p", "--force")
    same(ref.rebuild(ref.Patch((work / "p").read_bytes()), ref.Folder({}, {}, {})), pairs[-1][1])


def check_page() -> None:
    text = (TOP / "proto/vectors/patch.txt").read_text()
    vectors = {k: bytes.fromhex(v) for k, v in (line.split() for line in text.splitlines() if line[:1] not in "#")}
    with tempfile.TemporaryDirectory() as tmp:
        (Path(tmp) / "old").write_bytes(vectors["old"])
        base = ref.read_folder(Path(tmp) / "old")
    p = ref.Patch(vectors["patch"])
    assert ref.rebuild(p, base) == {ref.SINGLE: vectors["new"]}
    page = (TOP / "proto/PATCH.md").read_text()
    rows = [line.split("|") for line in page.split("## Worked bytes")[1].splitlines() if line.startswith("|")]
    shown = "".join(row[2] for row in rows if row[1].strip().isdigit())
    assert bytes.fromhex(shown) == vectors["patch"], "the page shows other bytes"
    # first row, first column, rows, columns of a tile
    for shape, axis, count, tile, want in [
        ([4096, 4096], 0, 64, 5, (0, 1310720, 1, 262144)),
        ([4096, 4096], 1, 64, 5, (1024, 256, 1024, 256)),
        ([1000, 600], 0, 8, 7, (0, 525000, 1, 75000)),
        ([300, 1500], 1, 2, 1, (150, 0, 150, 1500)),
        ([151936, 896], 0, 528, 1, (0, 257152, 1, 258048)),
        ([2, 600000], 0, 6, 5, (0, 1000000, 1, 200000)),
        ([], 0, 1, 0, (0, 0, 1, 1)),
        ([0, 5], 0, 0, 0, None),
    ]:
        cut = ref.tiles(shape, axis, 16)[1]
        assert len(cut) == count, (shape, axis, len(cut))
        if want:
            rows, cols = cut[tile]
            assert (rows.start, cols.start, len(rows), len(cols)) == want, (shape, axis, rows, cols)


def main() -> None:
    check_page()
    with tempfile.TemporaryDirectory() as tmp:
        work = Path(tmp)
        check_pairs(work, PAIRS)
        options = ["--params", "1500K", "--steps", "2", "--density", "0.0035", "--seed", "11", "--shards", "2"]
        subprocess.run([BUILD / "tools/lab/synth", work / "s", *options], check=True, stdout=subprocess.DEVNULL)
        versions = sorted((work / "s").iterdir())
        check_pairs(work, list(zip(versions, versions[1:])))


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""Checkpoint folders: the C reader and checkpoint_ref.py list the same, for the real series and for synthetic ones; and
tools/lab/synth keeps what it promises: the same bytes for a seed, the density asked for, the shape of real changes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
import checkpoint_ref as ref  # noqa: E402
import safetensors_ref  # noqa: E402

TOP = Path(os.environ.get("top_srcdir", "."))
BUILD = Path(os.environ.get("top_builddir", "."))
Bits = np.ndarray[Any, np.dtype[np.int64]]

# BLAKE2b-128 over names and bytes of all files that SMALL makes: the same on every machine.
SMALL = ["--params", "400K", "--steps", "3", "--density", "0.0035", "--seed", "7", "--shards", "3"]
SMALL_DIGEST = "678daff7399064be3f8c2fdf068002ef"


def synth(out: Path, *options: str) -> None:
    subprocess.run([BUILD / "tools/lab/synth", out, *options], check=True, stdout=subprocess.DEVNULL)


def digest(folder: Path) -> str:
    total = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            total.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return total.hexdigest()


def probed(folders: list[Path]) -> list[list[str]]:
    command = [BUILD / "tests/probe/checkpoint", *folders]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [part.splitlines()[1:] for part in out.split("checkpoint ") if part]


def check_listings(folders: list[Path]) -> None:
    for folder, found in zip(folders, probed(folders), strict=True):
        assert found == ref.listing(folder), f"{folder} is listed differently"
        assert any(line.startswith("tensor ") for line in found), f"{folder} serves nothing"


def bf16(folder: Path) -> dict[str, Bits]:
    """Each tensor as signed magnitudes, so that neighbours differ by one."""
    tensors: dict[str, Bits] = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        for t in safetensors_ref.read(data)[0]:
            bits = np.frombuffer(data[start + t.begin : start + t.end], "<u2").astype(np.int64)
            tensors[t.name] = np.where(bits & 0x8000, -(bits & 0x7FFF), bits)
    return tensors


def check_step(old: dict[str, Bits], new: dict[str, Bits], density: float) -> None:
    assert old.keys() == new.keys()
    for name in old:
        assert "norm" not in name or np.array_equal(old[name], new[name]), f"{name} changed"
    before, after = np.concatenate(list(old.values())), np.concatenate(list(new.values()))
    changed = before != after
    found = changed.mean()
    assert abs(found / density - 1) < 0.1, f"density {found:.5f}, not {density}"
    distance = np.abs(after - before)[changed]
    ones, up = (distance == 1).mean(), (after > before)[changed].mean()
    assert 0.80 < ones < 0.96, f"{ones:.3f} of the changes are one ulp"
    assert 0.45 < up < 0.55, f"{up:.3f} of the changes go up"
    if changed.sum() >= 10000:  # fewer tell nothing about single exponents
        check_law(np.abs(before) >> 7, changed)


def check_law(exponent: Bits, changed: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
    """Each exponent step down doubles the chance of a change, where it is not near one."""
    count = np.bincount(exponent)
    hits = np.bincount(exponent[changed], minlength=len(count))
    enough = [e for e in range(1, len(count)) if min(hits[e], hits[e - 1]) >= 200]
    pairs = [e for e in enough if hits[e - 1] < count[e - 1] / 8]
    assert len(pairs) >= 4, "too few exponents to tell"
    ratios = [(hits[e - 1] / count[e - 1]) / (hits[e] / count[e]) for e in pairs]
    assert all(1.6 < ratio < 2.5 for ratio in ratios), f"ratios between exponents: {ratios}"


def check_density(folder: Path, density: str) -> None:
    synth(folder, "--params", "4M", "--steps", "2", "--density", density)
    versions = [bf16(folder / f"v{v}") for v in range(3)]
    for old, new in zip(versions, versions[1:]):
        check_step(old, new, float(density))


def main() -> int:
    check_listings([path for path in sorted((TOP / "tests/data").glob("*/*/v*"))])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        synth(folder / "one", *SMALL, "--jobs", "1")
        synth(folder / "many", *SMALL, "--jobs", "3")
        assert digest(folder / "one") == digest(folder / "many"), "the number of threads changes the bytes"
        assert digest(folder / "one") == SMALL_DIGEST, f"digest {digest(folder / 'one')}"
        again = subprocess.run([BUILD / "tools/lab/synth", folder / "one", *SMALL], capture_output=True, text=True)
        assert again.returncode == 1 and "v0 exists already" in again.stderr, again.stderr
        check_listings([folder / "one" / f"v{v}" for v in range(4)])
        for density in ("0.0005", "0.0035", "0.02"):
            check_density(folder / density, density)
    print("checkpoints: the listings agree, and synthetic versions change as asked")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/python3
"""The C reader and the one in safetensors_ref.py agree: on the real series, on the fuzz corpus, and on headers with
random damage. SEED=N replays."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
import safetensors_ref as ref  # noqa: E402

TOP = Path(os.environ.get("top_srcdir", "."))
PROBE = Path(os.environ.get("top_builddir", ".")) / "tests/probe/safetensors"
DAMAGED = 600
STRUCTURE = b'{}[]",:0123456789-.e\\u \n\t\xc3\xa4aF'


def corpus() -> list[bytes]:
    lines = (TOP / "tests/fuzz/safetensors.hex").read_text().splitlines()
    return [bytes.fromhex(line) for line in lines if line and not line.startswith("#")]


def damage(rng: random.Random, data: bytes) -> bytes:
    """A few bytes replaced, inserted or taken out behind the length, which is set right again."""
    body = bytearray(data[8:])
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(body) + 1)
        with_what = bytes([rng.choice(STRUCTURE)]) if rng.random() < 0.8 else b""
        body[at : at + rng.randint(0, 1)] = with_what
    size = int.from_bytes(data[:8], "little") + len(body) - (len(data) - 8)
    return max(size, 0).to_bytes(8, "little") + body


def wanted(path: Path) -> list[str]:
    try:
        return ref.listing(path.read_bytes())
    except ref.Refused:
        return ["refused"]


def probed(paths: list[Path]) -> dict[str, list[str]]:
    out = subprocess.run([PROBE, *paths], check=True, capture_output=True, text=True).stdout
    found: dict[str, list[str]] = {}
    for line in out.splitlines():
        if line.startswith("file "):
            current = found[line[5:]] = []
        else:
            current.append(line)
    return found


def main() -> int:
    seed = int(os.environ.get("SEED", "7"), 0)
    rng = random.Random(seed)
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        paths = sorted((TOP / "tests/data").rglob("*.safetensors"))
        inputs = corpus()
        small = [data for data in inputs if len(data) > 16]
        inputs += [damage(rng, rng.choice(small)) for _ in range(DAMAGED)]
        for number, data in enumerate(inputs):
            paths.append(Path(folder) / f"{number:04d}")
            paths[-1].write_bytes(data)
        found = probed(paths)
        want = {str(path): wanted(path) for path in paths}
        wrong = [path for path in want if found.get(path) != want[path]]
        for path in wrong[:5]:
            print(f"{path}: {Path(path).read_bytes()[:400]!r}\n  C      {found.get(path)}\n  Python {want[path]}")
    taken = sum(lines != ["refused"] for lines in want.values())
    print(f"{len(want)} files, {taken} taken by both, {len(wrong)} read differently")
    return 1 if wrong or taken < 20 else 0


if __name__ == "__main__":
    sys.exit(main())

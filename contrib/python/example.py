#!/usr/bin/python3
"""The smallest engine: loads the checkpoint that the daemon wrote, attaches, and follows the versions in memory.

    PYTHONPATH=contrib/python python3 contrib/python/example.py RUN/godwitd.sock STATE/checkpoints/POLICY/CURRENT [LAST]

It computes nothing; it prints a digest of its weights for each version, and ends with version LAST where that is given.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

import godwit


def checkpoint(folder: Path) -> Iterator[tuple[str, str, list[int], npt.NDArray[np.uint8]]]:
    """Name, dtype, shape and bytes of each tensor; with an index, only those that it names, from where it says."""
    index = folder / "model.safetensors.index.json"
    where = json.loads(index.read_text())["weight_map"] if index.exists() else None
    for path in sorted(folder.glob("*.safetensors")):
        data = np.memmap(path, np.uint8, "r")
        size = struct.unpack("<Q", data[:8].tobytes())[0]
        for name, row in json.loads(data[8:8 + size].tobytes()).items():
            if name != "__metadata__" and (where is None or where.get(name) == path.name):
                start, end = row["data_offsets"]
                yield name, row["dtype"], row["shape"], data[8 + size + start:8 + size + end]


def load(engine: godwit.Engine, folder: Path) -> godwit.Segment:
    """All tensors in one piece of memory that is shared with the daemon, each from a multiple of 64 bytes on."""
    tensors = list(checkpoint(folder))
    weights = engine.segment(sum((len(bits) + 63) // 64 * 64 for _, _, _, bits in tensors))
    at = 0
    for name, dtype, shape, bits in tensors:
        engine.tensor(name, dtype, shape, weights, at)
        weights.bytes[at:at + len(bits)] = bits
        at += (len(bits) + 63) // 64 * 64
    return weights


def main() -> None:
    socket, folder, last = sys.argv[1], Path(sys.argv[2]).resolve(), sys.argv[3:]
    with godwit.Engine(socket, name="example", name_version="1") as engine:
        weights = load(engine, folder)

        def say() -> None:
            digest = hashlib.blake2b(weights.bytes, digest_size=8).hexdigest()
            print(f"version {engine.version}, digest {digest}", flush=True)

        engine.attach(timeout=60)  # returns when every bit is proven
        say()
        paused = time.monotonic()
        while not last or engine.version != int(last[0]):
            # An engine that has work to do asks between two steps, without waiting: engine.events().
            for event in engine.events(timeout=None):
                if event.kind is godwit.Kind.PAUSE:
                    paused = time.monotonic()
                    engine.paused()
                elif event.kind is godwit.Kind.RESUME:
                    engine.resumed()  # the weights are event.version now
                    print(f"paused for {1000 * (time.monotonic() - paused):.1f} ms")
                    say()
                else:
                    print(" ".join(filter(None, [event.kind.name, event.text])), flush=True)


if __name__ == "__main__":
    main()

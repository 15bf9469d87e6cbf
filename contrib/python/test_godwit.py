#!/usr/bin/python3
"""The Python binding against a real daemon: arrays see the new version in place."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("top_builddir", ".")).resolve()
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests/e2e")]
sys.dont_write_bytecode = True
os.environ.setdefault("GODWIT_LIBRARY", str(BUILD / ".libs/libgodwit.so"))

import numpy as np  # noqa: E402

import godwit  # noqa: E402
from host import SERIES, Host, godwit as command  # noqa: E402


def read(version: int) -> dict[str, tuple[str, list[int], bytes]]:
    data = (SERIES / f"v{version}/model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    rows = json.loads(data[8:8 + size])
    return {name: (row["dtype"], row["shape"], data[8 + size + row["data_offsets"][0]:8 + size + row["data_offsets"][1]])
            for name, row in rows.items() if name != "__metadata__"}


def one_engine(host: Host, patch: Path) -> None:
    old, new = read(0), read(1)
    with godwit.Engine(str(host.dir / "run/godwitd.sock"), name="test", name_version="1") as engine:
        segment = engine.segment(sum(len(bits) + 64 for _, _, bits in old.values()))
        arrays, at = {}, 0
        for i, (name, (dtype, shape, bits)) in enumerate(old.items()):
            if len(shape) == 2 and i % 2:  # as two windows, to try them
                half = shape[1] // 2
                width = len(bits) // (shape[0] * shape[1])
                number = engine.declare(name, dtype, shape)
                for c0, c1 in ((0, half), (half, shape[1])):
                    engine.window(number, segment, base=at + c0 * width, row_pitch=shape[1] * width, col_pitch=width,
                                  rows=shape[0], cols=c1 - c0, row0=0, col0=c0, tensor_cols=shape[1])
                arrays[name] = engine.array(dtype, shape, segment, at)
            else:
                arrays[name] = engine.tensor(name, dtype, shape, segment, at)
            arrays[name].reshape(-1).view(np.uint8)[:] = np.frombuffer(bits, np.uint8)
            at += (len(bits) + 63) // 64 * 64
        assert engine.version == godwit.UNKNOWN
        assert engine.attach(timeout=60) == 0
        asking = threading.Thread(target=host.apply, args=(patch, 0, 1))
        asking.start()
        kinds = []
        while engine.version != 1:
            for event in engine.events(timeout=60):
                kinds.append(event.kind)
                if event.kind is godwit.Kind.PAUSE:
                    assert all(arrays[n].tobytes() == old[n][2] for n in old)
                    engine.paused()
                elif event.kind is godwit.Kind.RESUME:
                    assert event.version == 1
                    engine.resumed()
        asking.join()
        assert kinds == [godwit.Kind.PAUSE, godwit.Kind.RESUME], kinds
        assert all(arrays[n].tobytes() == new[n][2] for n in new)
        try:
            engine.opaque("late", godwit.Opaque.UNUSED)
            raise AssertionError("something was added after attach")
        except godwit.GodwitError as e:
            assert "after attach" in str(e)


def what_fails(host: Host) -> None:
    with godwit.Engine(str(host.dir / "run/none.sock")) as engine:
        for bad in (lambda: engine.segment(0), lambda: engine.declare("x", "F99", [1]), lambda: engine.attach(timeout=0.1)):
            try:
                bad()
                raise AssertionError("it should have failed")
            except godwit.GodwitError as e:
                assert e.code < 0 and str(e)


def ranks(host: Host) -> None:
    """Two ranks with slices and a memfd of their own, attached together."""
    old = read(0)
    instance = os.urandom(16)
    engines = []
    for rank in range(2):
        engine = godwit.Engine(str(host.dir / "run/godwitd.sock"), rank=rank, ranks=2, instance=instance, version=0)
        size = sum(len(bits) + 64 for _, _, bits in old.values())
        fd = os.memfd_create("weights", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        segment = engine.segment(size, fd)
        os.close(fd)
        at = 0
        for i, (name, (dtype, shape, bits)) in enumerate(old.items()):
            axis = i % len(shape)
            n = shape[axis] // 2
            start, stop = (0, n) if rank == 0 else (n, shape[axis])
            array = engine.tensor_slice(name, dtype, shape, segment, at, axis, start, stop)
            whole = np.frombuffer(bits, array.dtype).reshape(shape)
            array[...] = np.take(whole, range(start, stop), axis)
            at += len(bits) + 8
        engines.append(engine)
    threads = [threading.Thread(target=e.attach, args=(60,)) for e in engines]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [e.version for e in engines] == [0, 0]
    for e in engines:
        e.close()


def example(host: Host, patch: Path) -> None:
    """example.py, as the README has it run: from the checkpoint folder, through one version."""
    argv = [sys.executable, str(HERE / "example.py"), str(host.dir / "run/godwitd.sock"), str(SERIES / "v0"), "1"]
    with subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(HERE)}, stdout=subprocess.PIPE, text=True) as run:
        host.serving(0)
        host.apply(patch, 0, 1)
        said, _ = run.communicate(timeout=60)
    assert run.returncode == 0, said
    lines = said.splitlines()
    assert lines[0].startswith("version 0, digest ") and lines[2].startswith("version 1, digest "), said


def main() -> None:
    with tempfile.TemporaryDirectory() as work, Host() as host:
        patch = Path(work) / "patch"
        command("diff", SERIES / "v0", SERIES / "v1", "-o", patch)
        host.start()
        what_fails(host)
        ranks(host)
        one_engine(host, patch)
        example(host, patch)
    print("ok")


if __name__ == "__main__":
    main()

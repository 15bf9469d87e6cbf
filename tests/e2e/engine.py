#!/usr/bin/python3
"""One host: real patches into the memory of a running engine, and everything that can go wrong on the way. SEED=N replays
the moments of the kills, KILLS=N sets how many."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
from host import SERIES, Engine, Host, digest, godwit, pack, until  # noqa: E402

SEED = int(os.environ.get("SEED", str(random.randrange(1 << 32))))
KILLS = int(os.environ.get("KILLS", "50"))
PATCHES: dict[tuple[int, int], Path] = {}
DIGESTS: dict[tuple[int, int], str] = {}
INSTANCE = "0123456789abcdef0123456789abcdef"


def patch(old: int, new: int) -> Path:
    """The patch between two versions of the series; old -1 is nothing."""
    if (old, new) not in PATCHES:
        out = WORK / f"p{old}-{new}"
        godwit("diff", SERIES / f"v{old}" if old >= 0 else "--from-nothing", SERIES / f"v{new}", "-o", out)
        PATCHES[old, new] = out
    return PATCHES[old, new]


def fresh(version: int, ranks: int) -> str:
    if (version, ranks) not in DIGESTS:
        DIGESTS[version, ranks] = digest(SERIES / f"v{version}", ranks)
    return DIGESTS[version, ranks]


def computes(engine: Engine, version: int, ranks: int) -> None:
    got = engine.ask("gen 1")
    assert got.get("version") == version and got["digest"] == fresh(version, ranks), (version, got)


def versions_follow(ranks: int, in_process: bool) -> None:
    with Host() as host:
        host.start()
        engine = Engine(host, SERIES / "v0", ranks, in_process=in_process).ready()
        for v in range(1, 4):
            computes(engine, v - 1, ranks)
            host.apply(patch(v - 1, v), v - 1, v)
            computes(engine, v, ranks)
        s = host.status()
        assert s["served"] == 3 and s["proven"] == 9 and s["last_pause_ms"] > 0, s
        print(f"    pause {s['last_pause_ms']:.2f} ms, apply {s['last_apply_ms']:.2f} ms, {s['last_records']} places")
        godwit("engine", "scrub", "--run", host.dir / "run")
        host.apply(patch(3, 0), 3, 0)
        computes(engine, 0, ranks)
        assert engine.process.end() == 0
        until("detach", lambda: host.status()["state"] == "detached")
        assert host.daemon and host.daemon.end() == 0


def processes_as_ranks() -> None:
    with Host() as host:
        host.start()
        engines = [Engine(host, SERIES / "v0", 2, r, INSTANCE, 0) for r in (0, 1)]
        for e in engines:
            e.ready()
        for v in range(1, 4):
            host.apply(patch(v - 1, v), v - 1, v)
        whole = [e.ask("gen 1")["digest"] for e in engines]
        assert all(e.ask("state")["version"] == 3 for e in engines)
        for e in engines:
            e.process.kill()
        engines = [Engine(host, SERIES / "v3", 2, r, INSTANCE[::-1]) for r in (0, 1)]
        assert whole == [e.ready().ask("gen 1")["digest"] for e in engines]
        assert host.serving(3)["ranks"] == 2
        # One rank's end is the engine's: the other is let go, and both come back.
        engines[0].process.kill()
        until("detach", lambda: host.status()["ranks"] < 2)
        Engine(host, SERIES / "v3", 2, 0, INSTANCE[::-1]).ready()
        host.serving(3)
        host.apply(patch(3, 0), 3, 0)
        assert engines[1].ask("state")["version"] == 0


def staged_over_each_other() -> None:
    with Host() as host:
        host.start()
        engine = Engine(host, SERIES / "v0", 2).ready()
        host.apply(patch(0, 1), 0, 1, "--stage-only")
        host.apply(patch(1, 2), 1, 2, "--stage-only")
        assert host.status()["staged"] == 2
        computes(engine, 0, 2)
        host.apply(patch(2, 3), 2, 3)
        computes(engine, 3, 2)
        assert engine.ask("state")["pauses"] == 1


def what_is_refused() -> None:
    with Host() as host:
        host.start()
        # Weights that are not what they are said to be, with the tensor and the first element.
        wrong = Engine(host, SERIES / "v1", version=0)
        assert wrong.process.popen.wait(60) == 6
        assert "tensor model." in wrong.process.text() and "first at element" in wrong.process.text(), wrong.process.text()
        assert host.apply(patch(0, 1), 0, 1, ok=(1, 3, 5, 8)).count("no engine")
        engine = Engine(host, SERIES / "v0").ready()
        # Patches from elsewhere, by number and by bits; broken ones, at some places.
        assert "version 1" in host.apply(patch(1, 2), 1, 2, ok=(6,))
        assert "tensor " in host.apply(patch(1, 2), 0, 2, ok=(6,))
        whole = patch(0, 1).read_bytes()
        for at in (0, 9, len(whole) // 3, len(whole) // 2, len(whole) - 3):
            bad = host.dir / "bad"
            bad.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1:])
            host.apply(bad, 0, 1, ok=(1, 6))
            bad.write_bytes(whole[:at])
            host.apply(bad, 0, 1, ok=(1, 6))
        godwit("engine", "apply", host.dir / "none", "--from", "0", "--to", "1", "--run", host.dir / "run", ok=(1, 2))
        # A second engine while the first is there.
        second = Engine(host, SERIES / "v0")
        assert second.process.popen.wait(60) != 0 and "another engine" in second.process.text()
        computes(engine, 0, 1)
        assert engine.ask("state")["pauses"] == 0
        host.apply(patch(0, 1), 0, 1)
        computes(engine, 1, 1)


def damage(engine: Engine, at: int) -> None:
    fd = os.open(engine.memory()[0], os.O_RDWR)
    byte = os.pread(fd, 1, at)[0]
    os.pwrite(fd, bytes([byte ^ 1]), at)
    os.close(fd)


def poison_and_cure(in_process: bool) -> None:
    with Host() as host:
        host.start()
        engine = Engine(host, SERIES / "v0", 2, in_process=in_process).ready()
        damage(engine, 4096)
        godwit("engine", "scrub", "--run", host.dir / "run", ok=(4, 6))
        assert engine.ask("gen 1") == {"error": "poisoned"}
        assert host.status()["state"] == "poisoned"
        assert "anchor" in host.apply(patch(0, 1), 0, 1, ok=(1, 4, 6))
        host.apply(patch(-1, 2), 0, 2)
        computes(engine, 2, 2)
        # A bit that changes under a commit: whether a list names it or not, it is found before anybody computes with it.
        damage(engine, 4096)
        godwit("engine", "scrub", "--run", host.dir / "run", ok=(4, 6))
        # Put right by hand: the proof that runs anyway, or the next attach, finds that out.
        damage(engine, 4096)
        assert host.daemon
        host.daemon.kill()
        host.start()
        host.serving(2)
        computes(engine, 2, 2)


def unknown_weights() -> None:
    """An engine that does not say what it holds, and holds what this daemon does not know, waits for an anchor."""
    with Host() as host:
        host.start()
        engine = Engine(host, SERIES / "v1", 2)
        until("poison", lambda: host.status()["state"] == "poisoned")
        assert engine.process.alive() and not engine.listen.exists()
        host.apply(patch(-1, 2), 0, 2)
        computes(engine.ready(), 2, 2)
        host.apply(patch(2, 3), 2, 3)
        computes(engine, 3, 2)


def kills(in_process: bool, count: int, rng: random.Random) -> None:
    """The daemon dies at random moments; half of them right after the engine was seen to pause."""
    cycle = [0, 1, 2, 3]
    moved = paused = 0
    with Host() as host:
        host.start()
        engine = Engine(host, SERIES / "v0", 2, in_process=in_process).ready()
        version = 0
        for n in range(count):
            to = cycle[(version + 1) % 4]
            patch(version, to)
            pauses = engine.process.text().count(": pause")
            asking = host.apply_in_background(patch(version, to), version, to)
            if n % 2:
                until("a pause", lambda: engine.process.text().count(": pause") > pauses)
                time.sleep(rng.random() * 0.001)
            else:
                time.sleep(rng.random() * 0.03)
            assert host.daemon
            host.daemon.kill()
            asking.wait(60)
            got = engine.ask("gen 1")
            assert got.get("version") in (version, to), (n, version, to, got)
            assert got["digest"] == fresh(int(got["version"]), 2), (n, version, to, got)
            paused += engine.process.text().count(": pause") > pauses
            moved += got["version"] == to
            host.start()
            host.serving(int(got["version"]))
            version = int(got["version"])
        host.apply(patch(version, cycle[(version + 1) % 4]), version, cycle[(version + 1) % 4])
        computes(engine, cycle[(version + 1) % 4], 2)
    print(f"    {count} daemons killed, {paused} after a pause began, {moved} with the new version decided")


def engine_kills(count: int, rng: random.Random) -> None:
    with Host() as host:
        host.start()
        for _ in range(count):
            engine = Engine(host, SERIES / "v0", 2, version=0).ready()
            host.serving(0)
            asking = host.apply_in_background(patch(0, 1), 0, 1)
            time.sleep(rng.random() * 0.03)
            engine.process.kill()
            asking.wait(60)
            until("detach", lambda: host.status()["state"] == "detached")
        engine = Engine(host, SERIES / "v0", 2, version=0).ready()
        host.apply(patch(0, 1), 0, 1)
        computes(engine, 1, 2)


def memfd(size: int, seals: int) -> int:
    fd = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def hostile_peers(rng: random.Random) -> None:
    """Whatever local processes send, the daemon refuses or drops it, and goes on."""
    hello = [192, 1, "evil", "", "", "cpu", 1, 1, bytes(16), 0, 1, 1, bytes(16), 0]
    sealed, loose = memfd(4096, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW), memfd(4096, 0)
    with open(os.devnull) as null:
        cases: list[list[tuple[object, list[int]]]] = [
            [([193, 0, 1, 4096], [sealed])],                                    # before hello
            [(hello, []), (hello, [])],
            [([192, 9, *hello[2:]], [])],                                       # another protocol
            [([*hello[:9], 5, 2, *hello[11:]], [])],                            # rank 5 of 2
            [(hello, []), ([193, 0, 1, 4096], [])],                             # no descriptor
            [(hello, []), ([193, 0, 1, 4096], [loose])],                        # can be cut
            [(hello, []), ([193, 0, 1, 8192], [sealed])],                       # shorter than said
            [(hello, []), ([193, 0, 1, 4096], [null.fileno()])],                # no memory
            [(hello, []), ([193, 1, 1, 4096], [sealed])],                       # out of order
            [(hello, []), ([193, 0, 1, 4096], [sealed, sealed])],               # too many
            [(hello, []), ([193, 0, 1, 4096], [sealed]), ([195, [[0, 0] + [1] * 8]], [])],  # a map of no tensor
            [(hello, []), ([194, [["t", 12, (2**63).to_bytes(8, "little") * 2]]], [])],
            [(hello, []), ([197, 1, 0, 0, 0], [])],                             # counts
            [(hello, []), ([200, bytes(16), 0, 1, 0, 0, bytes(32)], [sealed, sealed])],  # a daemon's message
            [([204, 0], []), ([208, 0], []), ([206, 0, 1, 0, 0, 0, 0, 0, 0], [])],
        ]
        with Host() as host:
            host.start()
            engine = Engine(host, SERIES / "v0", 2).ready()

            def talk(name: str, frames: list[tuple[bytes, list[int]]]) -> None:
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                    s.settimeout(3)
                    s.connect(str(host.dir / "run" / name))
                    try:
                        for frame, fds in frames:
                            socket.send_fds(s, [frame], fds)
                        if name == "godwitd.sock":
                            s.recv(1 << 17)  # an answer, or the end
                    except (BrokenPipeError, ConnectionResetError, TimeoutError):
                        pass

            for case in cases:
                talk("godwitd.sock", [(pack(frame), fds) for frame, fds in case])
            for _ in range(300):
                size = rng.choice((1, 2, 5, 40, 400, 60000))
                junk = bytearray(rng.randbytes(size))
                if rng.random() < 0.7:
                    junk[:0] = b"\xdd\x00\x00\x00" + bytes([rng.randrange(20)]) + b"\xcc" + bytes([rng.randrange(160, 213)])
                talk(rng.choice(("godwitd.sock", "control.sock")), [(bytes(junk), [])] + [(bytes(junk[::-1]), [])])
            assert host.daemon and host.daemon.alive()
            computes(engine, 0, 2)
            host.apply(patch(0, 1), 0, 1)
            computes(engine, 1, 2)
    os.close(sealed)
    os.close(loose)


def main() -> None:
    rng = random.Random(SEED)
    print(f"SEED={SEED}")
    stories: list[tuple[str, Callable[[], None]]] = [
        ("versions follow, one rank", lambda: versions_follow(1, False)),
        ("versions follow, two ranks", lambda: versions_follow(2, False)),
        ("versions follow, two ranks, in-process", lambda: versions_follow(2, True)),
        ("processes as ranks", processes_as_ranks),
        ("staged over each other", staged_over_each_other),
        ("what is refused", what_is_refused),
        ("hostile peers", lambda: hostile_peers(rng)),
        ("poison and cure", lambda: poison_and_cure(False)),
        ("poison and cure, in-process", lambda: poison_and_cure(True)),
        ("unknown weights", unknown_weights),
        ("daemon kills", lambda: kills(False, KILLS * 2 // 5, rng)),
        ("daemon kills, in-process", lambda: kills(True, KILLS * 2 // 5, rng)),
        ("engine kills", lambda: engine_kills(KILLS // 5, rng)),
    ]
    for name, story in stories:
        start = time.monotonic()
        print(name, flush=True)
        story()
        print(f"    ok, {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(prefix="gw-e2e-") as work:
        WORK = Path(work)
        main()

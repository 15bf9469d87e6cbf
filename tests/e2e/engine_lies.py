#!/usr/bin/python3
"""An engine that attaches as it should and then lies, dies or sends noise, at each step of a commit; and tools that ask
for odd things. The daemon lets go of it, says why, and serves the next engine, which is honest. SEED=N repeats the choices, ROUNDS=N makes more."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
from host import GODWIT, SERIES, Engine, Host, digest, godwit, pack, until  # noqa: E402

SEED = int(os.environ.get("SEED", str(random.randrange(1 << 32))))
ROUNDS = int(os.environ.get("ROUNDS", "16"))
DTYPES = {"BF16": 12, "F32": 15}
ALL_ONES = 2**64 - 1
STAGE, PAUSE, APPLY, RESUME = 200, 203, 205, 207
EXTREMES = (0, 1, 2, 255, 256, 2**31, 2**32 - 1, 2**63, ALL_ONES)


def kind_of(frame: bytes) -> int:
    """The number of a message: the first entry of its array."""
    at = {0xDC: 3, 0xDD: 5}.get(frame[0], 1)
    return frame[at + 1] if frame[at] == 0xCC else frame[at]


class Liar:
    """One rank that holds a whole checkpoint, and no code of ours."""

    def __init__(self, host: Host, rng: random.Random, in_process: bool) -> None:
        self.rng, self.in_process = rng, in_process
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(20)
        self.sock.connect(str(host.dir / "run/godwitd.sock"))
        self.attach()
        self.sock.settimeout(1)

    def send(self, *frame: Any, fds: tuple[int, ...] = ()) -> None:
        socket.send_fds(self.sock, [pack(list(frame))], fds)

    def attach(self) -> None:
        file = (SERIES / "v0/model.safetensors").read_bytes()
        n = int.from_bytes(file[:8], "little")
        header = json.loads(file[8:8 + n])
        header.pop("__metadata__", None)
        data = file[8 + n:]
        fd = os.memfd_create("x", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, (len(data) + 4095) // 4096 * 4096)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        with mmap.mmap(fd, 0) as memory:
            memory[:len(data)] = data
            self.send(192, 1, "liar", "", "", "cpu", os.getpid(), 0, self.rng.randbytes(16), 0, 1, 1 + self.in_process, bytes(16), 0)
            self.send(193, 0, 1, len(memory), fds=(fd,))
        os.close(fd)
        tensors, maps = [], []
        for name, t in header.items():
            elements, width = 1, {"BF16": 2, "F32": 4}[t["dtype"]]
            for d in t["shape"]:
                elements *= d
            maps.append([len(tensors), 0, t["data_offsets"][0], elements * width, width, 1, elements, 0, 0, elements])
            tensors.append([name, DTYPES[t["dtype"]], b"".join(d.to_bytes(8, "little") for d in t["shape"])])
        self.send(194, tensors)
        self.send(195, maps)
        self.send(197, 1, len(tensors), len(maps), 0)
        assert self.hear() == 198, "an honest declaration was refused"

    def hear(self) -> int:
        """The number of the next message, 0 at the end. Descriptors that come along are closed."""
        frame, fds, _, _ = socket.recv_fds(self.sock, 1 << 17, 4)
        for fd in fds:
            os.close(fd)
        return kind_of(frame) if frame else 0

    def truth(self, kind: int, to: int) -> None:
        if kind == STAGE:
            self.send(201, to, 0)
        elif kind == PAUSE:
            self.send(204, to)
        elif kind == RESUME:
            self.send(208, to)

    def lie(self, to: int) -> None:
        x = lambda: self.rng.choice(EXTREMES)  # noqa: E731
        answers = [(201, x(), -x() // 2), (201, to, -5), (204, x()), (206, x(), x() % 256, 0, x(), x(), x(), x() % 2**32, x()),
                   (206, to, self.rng.randrange(5), -2, x(), x(), x(), 0, 0), (208, x()), (210, x()), (212, "bye"), (193, 1, 1, 1),
                   (192, 1, "again", "", "", "cpu", 1, 1, bytes(16), 0, 1, 1, bytes(16), 0), (197, 1, 1, 1, 0), (198, bytes(32), bytes(16), 0)]
        self.send(*self.rng.choice(answers))

    def misbehave(self, at: int, how: str, to: int) -> str:
        """Goes along until the message `at` comes, then does its worst; what it heard."""
        heard = []
        try:
            while kind := self.hear():
                heard.append(str(kind))
                if kind in (at, APPLY):
                    if how == "die":
                        break
                    for _ in range(self.rng.randrange(1, 6)):
                        self.lie(to)
                    if how == "lie and go on":
                        self.truth(kind, to)
                    else:
                        time.sleep(0.1)
                        break
                else:
                    self.truth(kind, to)
        except (BrokenPipeError, ConnectionResetError):
            heard.append("cut off")
        except TimeoutError:
            heard.append("no more")
        self.sock.close()
        return " ".join(heard)


def story(host: Host, patch: Path, rng: random.Random) -> None:
    for n in range(ROUNDS):
        at = rng.choice((STAGE, PAUSE, APPLY, RESUME))
        in_process = at == APPLY or rng.random() < 0.5
        how = rng.choice(("die", "lie", "lie and go on"))
        until("the last engine is let go", lambda: host.status()["state"] == "detached")
        liar = Liar(host, rng, in_process)
        until("it is served", lambda: host.status()["state"] == "serving")
        asking = subprocess.Popen([str(GODWIT), "engine", "apply", str(patch), "--from", "0", "--to", "1", "--run",
                                   str(host.dir / "run"), "--timeout", "20s"], stderr=subprocess.PIPE, text=True)
        heard = liar.misbehave(at, how, 1)
        _, said = asking.communicate(timeout=60)
        print(f"  {n}: {how} at {at}{', in-process' if in_process else ''}; heard {heard}; {asking.returncode} {said.strip()}")
        assert host.daemon and host.daemon.alive(), "the daemon is gone"
        assert asking.returncode == 0 or said, "a failure without a word"


def control(host: Host, rng: random.Random) -> None:
    """Requests of tools with odd fields: each is answered or cut off, and none holds the daemon up."""
    os.mkfifo(host.dir / "fifo")
    (host.dir / "folder").mkdir()
    os.mkfifo(host.dir / "folder/model.safetensors")
    with (host.dir / "sparse").open("wb") as f:
        f.truncate(1 << 40)
    texts = ["", "x", "../..", "x" * 64, "\u0416" * 32, "x" * 65]
    paths = ["", "relative", "/", "/dev/zero", "/dev/null", "/proc/self/mem", "/" + "x" * 1023, str(host.dir / "state"),
             str(host.dir / "fifo"), str(host.dir / "folder"), str(host.dir / "sparse"), str(host.dir / "run/control.sock")]
    x = lambda: rng.choice(EXTREMES)  # noqa: E731
    for n in range(200):
        policy, path, flag = rng.choice(texts), paths[n % len(paths)], rng.random() < 0.5
        kind = (163, 165)[n // len(paths)] if n < 2 * len(paths) else rng.randrange(158, 176)
        frame = {163: [path, x(), x(), flag], 165: [policy, path, flag, x(), flag], 160: [-x() // 2, policy]}.get(kind, [policy])
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(10)
            s.connect(str(host.dir / "run/control.sock"))
            s.send(pack([kind, *frame]))
            try:
                s.recv(1 << 17)  # empty where the frame was malformed
            except ConnectionResetError:
                pass
            except TimeoutError as e:
                raise AssertionError(f"no answer to {kind} {frame}") from e
    assert host.status()["state"] == "detached"


def main() -> None:
    rng = random.Random(SEED)
    print(f"SEED={SEED}", flush=True)
    with Host() as host:
        patch = host.dir / "patch"
        godwit("diff", SERIES / "v0", SERIES / "v1", "-o", patch)
        host.start()
        control(host, rng)
        story(host, patch, rng)
        until("the last liar is let go", lambda: host.status()["state"] == "detached")
        engine = Engine(host, SERIES / "v0").ready()
        host.apply(patch, 0, 1)
        got = engine.ask("gen 1")
        assert got["version"] == 1 and got["digest"] == digest(SERIES / "v1", 1), got


if __name__ == "__main__":
    main()

"""Real processes for end-to-end tests: a daemon, demonstration engines, the godwit command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("top_builddir", ".")).resolve()
SERIES = TOP / "tests/data/lr1e-6/bf16"
GODWIT = BUILD / "tools/godwit"
WAIT_S = 60.0


def until(what: str, check: Any, seconds: float = WAIT_S) -> Any:
    """The first true value of check(); asserts that one comes."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = check()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f"waited {seconds} s for {what}")


def godwit(*args: str | Path, ok: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
    """Runs the command; its exit code must be one of ok."""
    done = subprocess.run([str(GODWIT), *map(str, args)], capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode in ok, f"godwit {args}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def digest(checkpoint: Path, ranks: int) -> str:
    """What a fresh load of the checkpoint computes with."""
    done = subprocess.run(
        [str(BUILD / "tools/demo_engine"), "--digest", "--checkpoint", str(checkpoint), "--ranks", str(ranks)],
        capture_output=True, text=True, check=True, timeout=WAIT_S)
    return str(json.loads(done.stdout)["digest"])


def pack(value: Any) -> bytes:
    """The msgpack that frames are made of (proto/MESSAGES.md), in its longest forms."""
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return b"\xd3" + value.to_bytes(8, "big", signed=True) if value < 0 else b"\xcf" + value.to_bytes(8, "big")
    if isinstance(value, str):
        return b"\xdb" + len(value.encode()).to_bytes(4, "big") + value.encode()
    if isinstance(value, bytes):
        return b"\xc6" + len(value).to_bytes(4, "big") + value
    return b"\xdd" + len(value).to_bytes(4, "big") + b"".join(pack(v) for v in value)


class Process:
    """A child with its output in a file; killed at the end of the test whatever happens."""

    def __init__(self, log: Path, argv: list[str]) -> None:
        self.log = log
        with log.open("ab") as out:
            self.popen = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def alive(self) -> bool:
        return self.popen.poll() is None

    def kill(self) -> None:
        if self.alive():
            self.popen.send_signal(signal.SIGKILL)
        self.popen.wait(WAIT_S)

    def end(self) -> int:
        """Asks it to end, and gives its exit code."""
        if self.alive():
            self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(WAIT_S)

    def text(self) -> str:
        return self.log.read_text(errors="replace")


class Host:
    """One host: a folder for state and sockets, a daemon, and the engines attached to it."""

    def __init__(self, base: Path = SERIES / "v0", base_version: int = 0) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="gw-e2e-"))
        (self.dir / "state").mkdir()
        (self.dir / "run").mkdir()
        self.base, self.base_version = base, base_version
        self.daemon: Process | None = None
        self.engines: list[Engine] = []

    def __enter__(self) -> Host:
        return self

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        for engine in self.engines:
            engine.process.kill()
        if self.daemon:
            self.daemon.kill()
        if kind:
            for log in sorted(self.dir.glob("*.log")):
                print(f"=== {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-60:]))
        shutil.rmtree(self.dir)

    def start(self) -> None:
        self.daemon = Process(self.dir / "daemon.log", [
            str(BUILD / "src/daemon/godwitd"), "--state", str(self.dir / "state"), "--run", str(self.dir / "run"),
            "--base", str(self.base), "--base-version", str(self.base_version)])
        daemon = self.daemon
        until("the daemon", lambda: not daemon.alive() or
              godwit("engine", "status", "--run", self.dir / "run", ok=(0, 3)).returncode == 0)
        assert daemon.alive(), daemon.text()

    def status(self) -> dict[str, Any]:
        return dict(json.loads(godwit("engine", "status", "--run", self.dir / "run", "--json").stdout))

    def serving(self, version: int | None = None) -> dict[str, Any]:
        """Waits until the engine serves (that version)."""
        def check() -> dict[str, Any] | None:
            s = self.status()
            return s if s["state"] == "serving" and version in (None, s["served"]) else None
        return dict(until(f"version {version} served", check))

    def apply(self, patch: Path, old: int, new: int, *more: str, ok: tuple[int, ...] = (0,)) -> str:
        done = godwit("engine", "apply", patch, "--from", str(old), "--to", str(new), "--run", self.dir / "run",
                      "--timeout", "60s", *more, ok=ok)
        return done.stdout + done.stderr

    def apply_in_background(self, patch: Path, old: int, new: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(GODWIT), "engine", "apply", str(patch), "--from", str(old), "--to", str(new), "--run",
             str(self.dir / "run"), "--timeout", "60s"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Engine:
    """A demonstration engine of the host: all its ranks in one process, or (rank given) one of several."""

    def __init__(self, host: Host, checkpoint: Path, ranks: int = 1, rank: int | None = None, instance: str = "",
                 version: int | None = None, in_process: bool = False) -> None:
        self.number = len(host.engines)
        self.listen = host.dir / f"engine{self.number}.sock"
        argv = [str(BUILD / "tools/demo_engine"), "--checkpoint", str(checkpoint), "--socket",
                str(host.dir / "run/godwitd.sock"), "--listen", str(self.listen), "--ranks", str(ranks)]
        if rank is not None:
            argv += ["--rank", str(rank), "--instance", instance]
        if version is not None:
            argv += ["--version", str(version)]
        if in_process:
            argv.append("--in-process")
        self.process = Process(host.dir / f"engine{self.number}.log", argv)
        host.engines.append(self)

    def ready(self) -> Engine:
        until("the engine", lambda: self.listen.exists() or not self.process.alive())
        assert self.process.alive(), self.process.text()
        return self

    def ask(self, line: str) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(WAIT_S)
            until("the engine's socket", lambda: s.connect_ex(str(self.listen)) == 0)
            s.sendall(line.encode() + b"\n")
            return dict(json.loads(s.makefile().readline()))

    def memory(self) -> list[Path]:
        """Its shared segments, as files that can be written: for damage."""
        found = []
        for fd in Path(f"/proc/{self.process.popen.pid}/fd").iterdir():
            try:
                if "godwit-weights" in os.readlink(fd):
                    found.append(fd)
            except FileNotFoundError:
                pass  # closed meanwhile
        return sorted(found, key=lambda f: int(f.name))

"""Processes of a laboratory: each logs into a file of its own, and none outlives this one.

Everything that waits has a deadline, and says at its end what it waited for and what the processes last logged.
"""
import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, TypeVar

T = TypeVar("T")
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """A step did not do what it must; the text is for people."""


def _die_with_parent() -> None:
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def tail(path: Path, lines: int = 25) -> str:
    if not path.exists():
        return ""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


class Process:
    """A program that runs until it is told to end. Started again it appends to the same log."""

    def __init__(self, name: str, log: Path) -> None:
        self.name, self.log = name, log
        self.popen: Optional["subprocess.Popen[bytes]"] = None

    def start(self, argv: Sequence[str], stdin: Optional[int] = None, stdout: Optional[int] = None) -> "subprocess.Popen[bytes]":
        assert not self.running(), f"{self.name} runs already"
        with open(self.log, "ab") as log:
            self.popen = subprocess.Popen(list(argv), stdin=subprocess.DEVNULL if stdin is None else stdin,
                                          stdout=log if stdout is None else stdout, stderr=log,
                                          preexec_fn=_die_with_parent)
        return self.popen

    def running(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    def check(self) -> None:
        """Failed where it ended without having been told to."""
        if self.popen is not None and self.popen.poll() is not None:
            raise Failed(f"{self.name} ended with status {self.popen.returncode}; its last words:\n{tail(self.log)}")

    def send(self, signo: int) -> None:
        if self.running():
            assert self.popen
            self.popen.send_signal(signo)

    def kill(self) -> None:
        """At once, as by the kernel."""
        self._end(signal.SIGKILL, 10)

    def stop(self, seconds: float = 10) -> int:
        """Asks it to end; its exit status. Failed where it had to be killed."""
        if not self._end(signal.SIGTERM, seconds):
            raise Failed(f"{self.name} did not end within {seconds} s after SIGTERM; its last words:\n{tail(self.log)}")
        assert self.popen is None
        return self.status

    status = 0

    def _end(self, signo: int, seconds: float) -> bool:
        popen, in_time = self.popen, True
        if popen is None:
            return True
        if popen.poll() is None:
            popen.send_signal(signo)
        try:
            popen.wait(seconds)
        except subprocess.TimeoutExpired:
            in_time = False
            popen.kill()
            popen.wait()
        for stream in (popen.stdin, popen.stdout):
            if stream:
                stream.close()
        self.status, self.popen = popen.returncode, None
        return in_time


def run(argv: Sequence[str], timeout: float = 120, env: Optional[Dict[str, str]] = None) -> "subprocess.CompletedProcess[str]":
    """A program that ends by itself, whatever its exit status."""
    try:
        return subprocess.run(list(argv), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, env=env,
                              preexec_fn=_die_with_parent)
    except subprocess.TimeoutExpired as e:
        raise Failed(f"{' '.join(argv)}: not done after {timeout} s") from e


def wait_for(what: str, seconds: float, condition: Callable[[], Optional[T]], alive: Sequence[Process] = (),
             every: float = 0.05) -> T:
    """The condition's value as soon as it is neither None nor False. Failed when the time is over, or as soon as one
    of `alive` is not."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value is not None and value is not False:
            return value
        for p in alive:
            p.check()
        if time.monotonic() > end:
            logs: List[str] = [f"--- {p.name}\n{tail(p.log)}" for p in alive]
            raise Failed(f"{what}: not within {seconds:g} s\n" + "\n".join(logs))
        time.sleep(every)


def end_on_signals() -> None:
    """SIGTERM and SIGHUP end this process the way Ctrl-C does, so that `finally` and `with` clean up."""
    def handler(signo: int, frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(signo).name)

    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGHUP, handler)


def short_temp_dir() -> str:
    """Where sockets fit: a Unix socket's path has 107 bytes at most."""
    place = os.environ.get("TMPDIR", "/tmp")
    return place if len(place) <= 30 else "/tmp"

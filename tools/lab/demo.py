"""A demonstration engine (tools/demo_engine.c) attached to a host: real weights in memory, computed with on request."""
import json
import socket
from pathlib import Path
from typing import Optional

from mesh import Host, Json, Tools
from procs import Failed, Process, run, tail, wait_for


class Engine:
    """One engine of a host, started from a checkpoint folder. It outlives its daemon, as engines do."""

    def __init__(self, host: Host, checkpoint: Path, name: str = "engine", ranks: int = 1) -> None:
        self.host, self.checkpoint, self.ranks = host, checkpoint, ranks
        self.address = host.lab.root / f"{host.name}.{name}"
        self.process = Process(f"{host.name} {name}", host.lab.logs / f"{host.name}.{name}.log")

    def start(self) -> None:
        """Returns before it is attached."""
        self.process.start([self.host.lab.tools.engine, "--checkpoint", str(self.checkpoint.resolve()), "--socket",
                            str(self.host.sockets / "godwitd.sock"), "--listen", str(self.address), *shape(self.ranks)])

    def kill(self) -> None:
        self.process.kill()

    def ask(self, request: str = "gen 0", seconds: float = 30) -> Json:
        """What it computed: version and digest of all weights that went in. A paused engine answers when it resumes."""
        wait_for(f"{self.process.name} listens", 30, self.address.exists, [self.process])
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(seconds)
            try:
                s.connect(str(self.address))
                s.sendall(request.encode() + b"\n")
                line = s.makefile("rb").readline()
            except OSError as e:
                raise Failed(f"{self.process.name} does not answer: {e}\n{tail(self.process.log)}") from e
        doc: Json = json.loads(line or b"{}")
        if "error" in doc or not doc:
            raise Failed(f"{self.process.name} answers {doc}:\n{tail(self.process.log)}")
        return doc

    def refused(self) -> Optional[str]:
        """What it said when it ended because its daemon would not have it; None while it runs."""
        if self.process.running():
            return None
        said = tail(self.process.log, 1)
        if not self.process.popen or not self.process.popen.returncode:
            raise Failed(f"{self.process.name} ended without an error: {said}")
        return said


def shape(ranks: int) -> "list[str]":
    """Several ranks hold the tensors in tensor-parallel slices, all in one process here."""
    return ["--ranks", str(ranks), "--instance", f"{ranks:032x}"] if ranks > 1 else []


def fresh_digest(tools: Tools, folder: Path, ranks: int = 1) -> str:
    """What an engine computes with that loads the folder anew."""
    done = run([tools.engine, "--checkpoint", str(folder), "--digest", *shape(ranks)])
    if done.returncode:
        raise Failed(f"demo_engine --digest {folder}: {done.stderr}")
    digest: str = json.loads(done.stdout)["digest"]
    return digest

"""A mesh of real daemons on this machine: hosts in regions on loopback addresses, borders through the forwarder.

A laboratory holds a block 127.B.0.0/16 to itself. Host h of region number r listens on 127.B.r.h and connects from
there; hosts of its region know that address, all others one of the forwarder, which counts what passes by region and
channel. The key ceremony is the user's own: godwit keygen, mesh init, mesh invite, godwitd --join.
"""
import json
import os
import random
import shutil
import signal
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Type

from procs import Failed, Process, run, short_temp_dir, tail, wait_for

CONTROL, BULK, JOIN, LOCK = 17601, 17602, 17603, 17600
FORWARD_FIRST = 20000
Json = Dict[str, Any]
Border = Tuple[str, str]  # from, to


class Tools:
    """The programs of a build."""

    def __init__(self, build: Path) -> None:
        self.build = build.resolve()
        self.godwit, self.godwitd = str(self.build / "tools/godwit"), str(self.build / "src/daemon/godwitd")
        self.forward, self.synth = str(self.build / "tools/lab/forward"), str(self.build / "tools/lab/synth")
        self.engine = str(self.build / "tools/demo_engine")
        for path in (self.godwit, self.godwitd, self.forward, self.engine, self.synth):
            if not os.access(path, os.X_OK):
                raise Failed(f"{path} is not there: run make in {build} first")

    def call(self, *args: str, ok: Sequence[int] = (0,), timeout: float = 120) -> str:
        """Standard output of `godwit ARGS`."""
        done = run([self.godwit, *args], timeout)
        if done.returncode not in ok:
            raise Failed(f"godwit {' '.join(args)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def refused(self, code: int, named: str, *args: str) -> str:
        """`godwit ARGS` must end with that exit status and name the trouble; its message."""
        done = run([self.godwit, *args])
        if done.returncode != code or named not in done.stderr:
            raise Failed(f"godwit {' '.join(args)}: must be refused with status {code} and name '{named}', but got "
                         f"{done.returncode}: {done.stdout}{done.stderr}")
        return done.stderr.strip()

    def json(self, *args: str, ok: Sequence[int] = (0,)) -> Json:
        doc: Json = json.loads(self.call(*args, "--json", ok=ok))
        return doc


def hold_block() -> Tuple[int, socket.socket]:
    """A block of loopback addresses that no other laboratory on this machine uses as long as the socket is open."""
    blocks = list(range(1, 255))
    random.SystemRandom().shuffle(blocks)
    for block in blocks:
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            s.bind((f"127.{block}.0.1", LOCK))
            s.listen(1)
            return block, s
        except OSError:
            s.close()
    raise Failed("no free block of loopback addresses")


class Host:
    """One godwitd with its state, its configuration, and the verbs of `godwit` against it."""

    def __init__(self, lab: "Lab", name: str, region: str, island: str, publishes: Sequence[str], serves: str) -> None:
        self.lab, self.name, self.region, self.island = lab, name, region, island
        self.publishes, self.serves = list(publishes), serves
        self.number = 1 + sum(h.region == region for h in lab.hosts)
        self.address = f"127.{lab.block}.{lab.regions.index(region) + 1}.{self.number}"
        self.dir = lab.root / name
        self.state, self.sockets = self.dir / "state", lab.root / f"{name}.run"
        self.conf, self.token = self.dir / "godwit.conf", self.dir / "token"
        self.process = Process(name, lab.logs / f"{name}.log")
        self.outside: Dict[str, str] = {}  # channel → the forwarder's address for it
        self.settings: Dict[str, Dict[str, str]] = {}
        self.curve = ""

    def make(self) -> None:
        self.state.mkdir(parents=True)
        self.sockets.mkdir(mode=0o700)
        self.curve = self.lab.tools.json("keygen", "-o", str(self.state / "host.key"))["curve"]

    def write_conf(self) -> None:
        conf: Dict[str, Dict[str, str]] = {
            "host": {"name": self.name, "region": self.region, "island": self.island, "state": str(self.state),
                     "run": str(self.sockets)},
            "network": {"control": f"{self.address}:{CONTROL}", "bulk": f"{self.address}:{BULK}", "source": self.address,
                        "control_any": self.outside["control"], "bulk_any": self.outside["bulk"]},
            "limits": {"eager_max": "0", "workers": "2"},
        }
        if self.serves:
            conf["serve"] = {"policy": self.serves}
        if self.publishes:
            conf["network"]["join"] = f"{self.address}:{JOIN}"
            conf["publish"] = {"policy": ", ".join(self.publishes), "release_key": str(self.lab.release_key)}
        for section, keys in self.settings.items():
            conf.setdefault(section, {}).update(keys)
        self.conf.write_text("".join(
            f"[{section}]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items() if v) + "\n" for section, keys in conf.items()))

    def set(self, section: str, **keys: str) -> None:
        self.settings.setdefault(section, {}).update(keys)

    def start(self, token: Optional[Path] = None) -> None:
        """Starts the daemon, joining with that token, and waits until it answers."""
        self.write_conf()
        argv = [self.lab.tools.godwitd, "--config", str(self.conf)]
        self.process.start(argv + (["--join", str(token)] if token else []))
        self.wait_up()

    def wait_up(self) -> None:
        wait_for(f"{self.name} answers", 20, lambda: self.status() is not None, [self.process])

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        status = self.process.stop(15)
        if status:
            raise Failed(f"{self.name} ended with status {status} after SIGTERM:\n{tail(self.process.log)}")

    # What it says.

    def status(self) -> Optional[Json]:
        done = run([self.lab.tools.godwit, "status", "--json", "--run", str(self.sockets)], 20)
        if done.returncode not in (0, 4):
            return None
        doc: Json = json.loads(done.stdout)
        return doc

    def must_status(self) -> Json:
        doc = self.status()
        if doc is None:
            self.process.check()
            raise Failed(f"{self.name} does not answer:\n{tail(self.process.log)}")
        return doc

    def served(self) -> Optional[int]:
        doc = self.status()
        version = doc["engine"]["served"] if doc and doc["engine"]["state"] == "serving" else None
        return version if isinstance(version, int) else None

    def objects(self, policy: str) -> List[Json]:
        return [o for o in self.must_status()["objects"] if o["policy"] == policy]

    def holds(self, policy: str, to: int) -> bool:
        """Whether some object that ends in that version is here whole."""
        doc = self.status()
        return doc is not None and any(
            o["policy"] == policy and o["to"] == to and o["have"] == o["pieces"] for o in doc["objects"])

    def health(self, policy: str) -> Json:
        return self.lab.tools.json("health", "--policy", policy, "--run", str(self.sockets), ok=(0, 4))

    def publish(self, policy: str, folder: Path, anchor: bool = False) -> Json:
        args = ["seed", "publish", str(folder), "--policy", policy, "--run", str(self.sockets)]
        return self.lab.tools.json(*args, *(["--anchor"] if anchor else []))

    def log_has(self, *words: str) -> Optional[str]:
        """The last line of the log that has all these words."""
        for line in reversed(self.process.log.read_text(errors="replace").splitlines()):
            if all(w in line for w in words):
                return line
        return None


class Forwarder:
    """The only way between regions; counts bytes by (from, to, channel)."""

    def __init__(self, lab: "Lab") -> None:
        self.lab = lab
        self.process = Process("forwarder", lab.logs / "forwarder.log")
        self.file = lab.root / "counts.json"
        self.address = f"127.{lab.block}.0.1"

    def plan(self, hosts: Iterable[Host]) -> List[str]:
        argv = [self.lab.tools.forward, "--count", str(self.file)]
        for i, region in enumerate(self.lab.regions):
            argv += ["--region", f"{region}=127.{self.lab.block}.{i + 1}."]
        port = FORWARD_FIRST
        for h in hosts:
            for channel, target in (("control", CONTROL), ("bulk", BULK)):
                h.outside[channel] = f"{self.address}:{port}"
                argv += ["--port", f"{self.address}:{port}={h.address}:{target},{channel}"]
                port += 1
        return argv

    def start(self, hosts: Iterable[Host], *options: str) -> None:
        self.process.start(self.plan(hosts) + list(options))

    def counts(self, channel: str = "bulk") -> Dict[Border, int]:
        """What passed so far, from region to region."""
        before = self.file.stat().st_ino if self.file.exists() else 0
        self.process.send(signal.SIGUSR1)
        wait_for("the forwarder's counts", 10, lambda: self.file.exists() and self.file.stat().st_ino != before,
                 [self.process], every=0.005)
        return {(c["from"], c["to"]): c["bytes"] for c in json.loads(self.file.read_text()) if c["channel"] == channel}

    def settled(self) -> Dict[Border, int]:
        """Counts of the bulk channel once nothing but keep-alives passes any more."""
        last: List[Dict[Border, int]] = [self.counts()]

        def still() -> bool:
            now = self.counts()
            moved = sum(now.values()) - sum(last[0].values())
            last[0] = now
            return moved < 4096

        wait_for("the borders become quiet", 30, still, [self.process], every=0.3)
        return last[0]


def grown(now: Dict[Border, int], before: Dict[Border, int]) -> Dict[Border, int]:
    return {b: n - before.get(b, 0) for b, n in now.items() if n - before.get(b, 0) >= 4096}


class Lab:
    """Keys, regions, hosts and the forwarder, in one temporary folder. Use it with `with`: all ends with it."""

    def __init__(self, build: Path, regions: Sequence[str], policies: Sequence[str], keep: bool = False) -> None:
        self.tools = Tools(build)
        self.regions, self.policies, self.keep = list(regions), list(policies), keep
        self.hosts: List[Host] = []
        self.at_end = ExitStack()
        self.others: List[Process] = []  # that must not end by themselves
        self.root = Path(tempfile.mkdtemp(prefix="godwit-", dir=short_temp_dir()))
        self.logs = self.root / "logs"
        self.logs.mkdir()
        self.block, self.lock = hold_block()
        self.forwarder = Forwarder(self)
        self.mesh = self.root / "mesh"
        self.release_key = self.mesh / f"release-{policies[0]}.key"

    def __enter__(self) -> "Lab":
        self.tools.call("mesh", "init", str(self.mesh), "--policy", ",".join(self.policies))
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.at_end.close()
        for h in self.hosts:
            h.process.kill()
        self.forwarder.process.kill()
        self.lock.close()
        if self.keep:
            print(f"kept: {self.root}")
        else:
            shutil.rmtree(self.root, ignore_errors=True)

    def add_host(self, name: str, region: str, island: str = "", serves: str = "", publishes: Sequence[str] = ()) -> Host:
        h = Host(self, name, region, island, publishes, serves)
        self.hosts.append(h)
        h.make()
        return h

    def start_forwarder(self, *options: str) -> None:
        """After all hosts are added, also those that start later."""
        self.forwarder.start(self.hosts, *options)

    def start_first(self, h: Host) -> None:
        """The first host of the mesh: nobody is there whom it could ask, so it has the root record from the start."""
        shutil.copy(self.mesh / "root.v1", h.state / "root")
        self.tools.call("mesh", "invite", "--dir", str(self.mesh), "--region", h.region, "--roles", "island,seed,join", "-o",
                        str(h.token))
        h.start(h.token)

    def join(self, h: Host, through: Host) -> None:
        """By a token that names one member to ask."""
        self.tools.call("mesh", "invite", "--dir", str(self.mesh), "--region", h.region, "--bootstrap",
                        f"{through.address}:{JOIN}={through.curve}", "-o", str(h.token))
        h.start(h.token)

    def processes(self) -> List[Process]:
        return [h.process for h in self.hosts if h.process.popen] + [self.forwarder.process] + self.others

    def wait(self, what: str, seconds: float, condition: Callable[[], Any], every: float = 0.05) -> Any:
        return wait_for(what, seconds, condition, self.processes(), every)

#!/usr/bin/python3
"""Two daemons and no engine: what an operator does with them, and what they say.

A host joins, fetches, is stopped and killed, and is a member still when it starts again. A trainer host that is gone makes
the others stale as soon as its head expires, and its return ends that. Readiness and the watchdog are told to the service
manager. What is wrong, in a configuration, on a state folder in use, in a request, is refused with the promised exit status
and changes nothing.
"""
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Dict, List, Optional

from common import BUILD, KEEP, main, series

from mesh import JOIN, Host, Json, Lab
from procs import Failed, run

POLICY = "tiny-rl"
VERSIONS = series("lr1e-6/bf16", 4)


def expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise Failed(f"{what}: {got!r}, expected {wanted!r}")


class Manager:
    """What a service manager hears from a daemon that is started while it listens (sd_notify)."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.lines: List[str] = []
        threading.Thread(target=self.listen, daemon=True).start()
        self.env = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "100000"}

    def __enter__(self) -> "Manager":
        os.environ.update(self.env)
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.env:
            del os.environ[name]

    def listen(self) -> None:
        while True:
            self.lines += self.socket.recv(4096).decode().splitlines()

    def heard(self, line: str) -> bool:
        return line in self.lines


class Story:
    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.trainer = lab.add_host("trainer", "eu", publishes=[POLICY])
        self.island = lab.add_host("island", "us", "one", POLICY)
        self.manager = Manager(lab.root / "notify")  # of the trainer's first life

    def wait_held(self, version: int) -> None:
        self.lab.wait(f"the island holds version {version}", 20, lambda: self.island.holds(POLICY, version))

    def record(self, of: str, seen_by: Host) -> Optional[Json]:
        """What a host's health says of another; None where it is not there."""
        for region in seen_by.health(POLICY)["regions"]:
            for island in region["islands"]:
                for h in island["hosts"]:
                    if h["name"] == of:
                        found: Json = h
                        return found
        return None

    def state(self, of: str, seen_by: Host) -> Optional[str]:
        found = self.record(of, seen_by)
        return str(found["state"]) if found else None

    def health_status(self, h: Host) -> int:
        return run([self.lab.tools.godwit, "health", "--policy", POLICY, "--run", str(h.sockets)]).returncode

    # What happens.

    def join_and_fetch(self) -> None:
        self.lab.start_forwarder()
        with self.manager:
            self.lab.start_first(self.trainer)
        self.lab.wait("the service manager hears that the trainer is ready", 5, lambda: self.manager.heard("READY=1"))
        self.lab.wait("… and alive", 5, lambda: self.manager.heard("WATCHDOG=1"))
        self.lab.join(self.island, self.trainer)
        self.trainer.kill()  # at once: it knows whom it let in when it starts
        with self.manager:
            self.trainer.start()
        self.trainer.publish(POLICY, VERSIONS[0])
        self.wait_held(0)
        current = self.island.state / "checkpoints" / POLICY / "CURRENT"
        self.lab.wait("the island has a checkpoint", 10, current.exists)
        for file in VERSIONS[0].iterdir():
            expect(f"{file.name} of the checkpoint", (current / file.name).read_bytes() == file.read_bytes(), True)
        again = self.trainer.publish(POLICY, VERSIONS[0])
        expect("publishing the same again", (again["already"], again["version"]), (True, 0))

    def strangers(self) -> None:
        """Tokens of another mesh, and of another region, make nobody a member, and leave nothing behind."""
        call, other = self.lab.tools.call, self.lab.root / "other"
        call("mesh", "init", str(other), "--policy", POLICY)
        bootstrap = f"{self.trainer.address}:{JOIN}={self.trainer.curve}"
        for mesh, region in ((other, "us"), (self.lab.mesh, "eu")):
            stranger = self.lab.root / f"stranger-{region}"
            stranger.mkdir()
            call("mesh", "invite", "--dir", str(mesh), "--region", region, "--bootstrap", bootstrap, "-o", str(stranger / "token"))
            conf = stranger / "conf"
            conf.write_text(f"[host]\nname = stranger\nregion = us\nstate = {stranger}/state\nrun = {stranger}/run\n"
                            "[network]\ncontrol = 127.0.0.1:1\nbulk = 127.0.0.1:2\n")
            done = run([self.lab.tools.godwitd, "--config", str(conf), "--join", str(stranger / "token")])
            if done.returncode == 0 or "joining" not in done.stderr:
                raise Failed(f"a stranger's token: exit status {done.returncode}\n{done.stderr}")
            expect("what it left", [n for n in ("member", "root") if (stranger / "state" / n).exists()], [])

    def away(self) -> None:
        """Stopped, and killed: in both cases it is a member when it starts, and takes what it missed."""
        self.island.stop()
        self.lab.wait("the trainer has heard its good-bye", 5, lambda: self.state("island", self.trainer) in (None, "unreachable"))
        self.trainer.publish(POLICY, VERSIONS[1])
        self.island.start()
        self.wait_held(1)
        self.island.kill()
        self.trainer.publish(POLICY, VERSIONS[2])
        self.island.start()
        self.wait_held(2)
        expect("what came before it was killed", self.island.holds(POLICY, 0) and self.island.holds(POLICY, 1), True)
        self.lab.wait("the trainer sees it", 20, lambda: self.state("island", self.trainer) == "idle")

    def refusals(self) -> None:
        godwitd = self.lab.tools.godwitd
        second = run([godwitd, "--config", str(self.island.conf)])
        expect("a second daemon on the same state", (second.returncode, "is in use by another process" in second.stderr), (1, True))
        expect("the first one answers", self.island.status() is not None, True)
        bad = self.lab.root / "bad.conf"
        bad.write_text("[publish]\nhead_expiry = 5s\nhead_renew = 4s\n")
        checked = run([godwitd, "--config", str(bad), "--check"])
        expect("a bad configuration", (checked.returncode, "publish.head_renew" in checked.stderr), (7, True))
        self.lab.tools.refused(1, "nowhere", "seed", "publish", str(self.lab.root / "nowhere"), "--policy", POLICY, "--run",
                               str(self.trainer.sockets))
        self.lab.tools.refused(3, "", "status", "--run", str(self.lab.root / "nobody"))

    def reload(self, name: str, settings: Dict[str, str], section: str) -> None:
        self.trainer.set(section, **settings)
        self.trainer.write_conf()
        before = self.trainer.process.log.read_text(errors="replace").count(name)
        self.trainer.process.send(signal.SIGHUP)
        self.lab.wait(f"the trainer says: {name}", 5,
                      lambda: self.trainer.process.log.read_text(errors="replace").count(name) > before)

    def reloads(self) -> None:
        """All or nothing: a level that came with a change which is refused does not hold either."""
        self.trainer.set("log", level="error")
        self.reload("not reloaded", {"region": "elsewhere"}, "host")
        self.trainer.set("host", region="eu")
        self.trainer.set("log", level="info")
        self.reload("configuration reloaded", {"head_expiry": "2s", "head_renew": "1s"}, "publish")

    def silence(self) -> None:
        """Nobody renews the head: what is known stays, and is called what it is."""
        self.trainer.publish(POLICY, VERSIONS[3])
        self.wait_held(3)
        expect("health while the head is fresh", self.health_status(self.island), 0)
        self.trainer.stop()
        self.lab.wait("the service manager hears the end", 5, lambda: self.manager.heard("STOPPING=1"))
        self.lab.wait("the island calls itself stale", 10, lambda: self.state("island", self.island) == "stale")
        expect("health of a mesh with an expired head", self.health_status(self.island), 4)
        expect("the newest version known", self.island.health(POLICY)["head"]["version"], 3)
        expect("what it holds", self.island.holds(POLICY, 3), True)
        self.trainer.start()
        self.lab.wait("the trainer is a member again", 20, lambda: self.island.log_has("member is back", "host=trainer"))
        self.lab.wait("the head is fresh again", 20, lambda: self.health_status(self.island) == 0)
        expect("its version", self.island.health(POLICY)["head"]["version"], 3)

    def play(self) -> None:
        for step in (self.join_and_fetch, self.strangers, self.away, self.refusals, self.reloads, self.silence):
            step()
            print(f"- {step.__name__.replace('_', ' ')}")
        self.island.stop()
        self.trainer.stop()


def test() -> None:
    with Lab(BUILD, ["eu", "us"], [POLICY], KEEP) as lab:
        Story(lab).play()


main(test)

#!/usr/bin/python3
"""Damage and lies that real processes meet: each is refused by name, and the engines go on serving what was verified.

Flipped bits: in a relay's store, in its manifest, on the wire between regions, in patch and checkpoint files, in the
weights that an engine brings. A wrong base. A trainer that falls silent until its head expires. Replayed heads and
manifests: tests/unit and tests/sim, where time is ours.
"""
import signal
import time
from pathlib import Path

from common import BUILD, KEEP, main, series

from demo import Engine
from fleet import POLICY, Fleet
from mesh import Host, Lab
from procs import Failed, run
from story import BIG

VERSIONS = series("lr1e-6/bf16", 4)


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ 0x04]))


def store(h: Host, policy: str, to: int, file: str) -> Path:
    """That file of the object in the host's store that ends in that version."""
    for o in h.objects(policy):
        if o["to"] == to:
            return h.state / "objects" / str(o["manifest"]) / file
    raise Failed(f"{h.name} has no object of {policy} that ends in {to}")


def durable(h: Host, policy: str, to: int) -> bool:
    """Whether the store claims every piece (proto/STORE.md); what it does not claim it would verify again at start."""
    path = store(h, policy, to, "have")
    file = path.read_bytes() if path.exists() else bytes(76)
    return path.exists() and sum(bin(b).count("1") for b in file[44:-32]) == int.from_bytes(file[40:44], "little")


class Hostile(Fleet):
    def __init__(self, lab: Lab) -> None:
        super().__init__(lab, {"eu": 1, "us": 2})
        self.eu, self.us, self.us2 = self.islands
        self.islands.remove(self.us2)  # joins later
        self.trainer.set("publish", head_expiry="6s", head_renew="1s")

    def say(self, text: str) -> None:
        print(f"- {text}")

    def begin(self) -> None:
        self.start_mesh("--corrupt", "bulk=1500")
        self.publish(VERSIONS[0])
        for h in self.there:
            self.start_engine(h)
        self.wait_served(0)
        self.prove(0)

    def on_the_wire(self) -> None:
        self.lab.forwarder.process.send(signal.SIGUSR2)
        self.publish(VERSIONS[1])
        self.lab.wait("the region of the trainer serves version 1", 30, lambda: self.eu.served() == 1)
        time.sleep(2)
        if self.us.served() != 0 or self.check_answer(self.engines[self.us.name]) != 0:
            raise Failed(f"{self.us.name} serves another version than 0 although every block to it was damaged")
        self.lab.forwarder.process.send(signal.SIGUSR2)
        self.wait_served(1, 90)
        self.prove(1)
        self.say("bits flipped on the wire: nothing came through but bits that are right; then it caught up")

    def in_a_relay(self) -> None:
        run([self.lab.tools.synth, str(self.lab.root / "large"), "--bytes", "12M", "--steps", "0", "--density", "0.01"])
        self.trainer.publish(BIG, self.lab.root / "large" / "v0")
        for h in self.there:
            self.lab.wait(f"{h.name} holds the large anchor", 60, lambda: h.holds(BIG, 0))
        self.lab.wait(f"{self.us.name} synced it", 30, lambda: durable(self.us, BIG, 0))
        good = store(self.eu, BIG, 0, "data").read_bytes()
        self.us.stop()
        flip(self.us.state / "objects" / store(self.eu, BIG, 0, "data").parent.name / "data", len(good) // 2)
        self.us.start()
        self.join(self.us2)
        self.lab.wait(f"{self.us2.name} holds the large anchor", 60, lambda: self.us2.holds(BIG, 0))
        self.us2.stop()
        self.us2.start()
        if store(self.us2, BIG, 0, "data").read_bytes() != good:
            raise Failed(f"{self.us2.name} took damaged bytes from {self.us.name}")
        named = self.us2.log_has(f"host={self.us.name}", "digest")
        if not named:
            raise Failed(f"{self.us2.name} did not name {self.us.name}, which sent a damaged piece")
        self.say(f"a bit flipped in the store of {self.us.name}: {named}")

    def in_a_manifest(self) -> None:
        path = store(self.us, BIG, 0, "manifest")
        self.us.stop()
        flip(path, 100)
        self.us.start()
        self.lab.wait("the damaged manifest is named", 10, lambda: self.us.log_has("manifest", path.parent.name))
        self.lab.wait(f"{self.us.name} holds the large anchor again", 60, lambda: self.us.holds(BIG, 0))
        self.wait_served_again(self.us, 1)
        self.say("a bit flipped in a stored manifest: named, dropped, fetched again")

    def wait_served_again(self, h: Host, version: int) -> None:
        self.lab.wait(f"{h.name} serves version {version} again", 30, lambda: h.served() == version)
        self.check_answer(self.engines[h.name])

    def in_files(self) -> None:
        godwit, d = self.lab.tools, self.lab.root / "files"
        d.mkdir()
        patch, copy = str(d / "patch"), d / "copy"
        godwit.call("diff", str(VERSIONS[0]), str(VERSIONS[1]), "-o", patch)
        self.say("a wrong base: " + godwit.refused(6, "has other bits", "apply", patch, str(VERSIONS[2]), "-o", str(d / "new")))
        run(["cp", "-r", str(VERSIONS[0]), str(copy)])
        run(["chmod", "-R", "u+w", str(copy)])
        flip(copy / "model.safetensors", (copy / "model.safetensors").stat().st_size - 9)
        self.say("a bit flipped in a checkpoint: " + godwit.refused(6, "has other bits", "apply", patch, str(copy), "-o", str(d / "new")))
        flip(Path(patch), Path(patch).stat().st_size // 2)
        done = run([godwit.godwit, "apply", patch, str(VERSIONS[0]), "-o", str(d / "new")])
        if done.returncode not in (1, 6) or "patch" not in done.stderr:
            raise Failed(f"a damaged patch: status {done.returncode}, {done.stderr}")
        self.say(f"a bit flipped in a patch: {done.stderr.strip()}")
        if (d / "new").exists():
            raise Failed("a refused patch left a checkpoint")

    def in_an_engine(self) -> None:
        """An engine that brings other weights than any version has serves nothing until an anchor cured it."""
        e = self.engines[self.us2.name] = Engine(self.us2, self.lab.root / "files" / "copy")
        self.lab.at_end.callback(e.kill)
        self.lab.others.append(e.process)
        e.start()
        said = self.lab.wait("the engine's weights are named", 30, lambda: self.us2.log_has("poisoned", "down_proj"))
        self.wait_served_again(self.us2, 1)
        self.say(f"a bit flipped in an engine's weights: {said}; then cured by an anchor")

    def silence(self) -> None:
        self.trainer.kill()

        def stale(h: Host) -> bool:
            doc = h.health(POLICY)
            return bool(doc["summary"]["stale"] >= 3 and doc["head"]["expires_in_s"] < 0)

        self.lab.wait("the head expires", 30, lambda: stale(self.us), every=0.3)
        self.prove(1)
        self.trainer.start()
        self.lab.wait("the head is fresh again", 30, lambda: self.us.health(POLICY)["summary"]["stale"] == 0, every=0.3)
        self.publish(VERSIONS[2])
        self.wait_served(2)
        self.prove(2)
        self.say("a silent trainer: the head expired, all hosts said stale and served on; fresh again with the trainer")

    def run(self) -> None:
        self.begin()
        self.in_files()
        self.on_the_wire()
        self.in_a_relay()
        self.in_an_engine()
        self.in_a_manifest()
        self.silence()


def test() -> None:
    with Lab(BUILD, ["eu", "us"], [POLICY, BIG], KEEP) as lab:
        Hostile(lab).run()


if __name__ == "__main__":
    main(test)

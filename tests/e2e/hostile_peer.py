#!/usr/bin/python3
"""An admitted member turns on the others (hostile_peer.c, with the keys of a host that joined): noise, lies about pieces,
floods, forgeries, replays. Its victims go on fetching and serving, stay small, and name it. SEED=N repeats the noise,
SECONDS=N makes the noise longer."""
import base64
import os
import random
from pathlib import Path
from typing import List, Tuple

from common import BUILD, main

from mesh import BULK, CONTROL, Host, Json, Lab
from procs import Failed, Process, run

SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))
SECONDS = int(os.environ.get("SECONDS", "5"))
POLICY = "tiny-rl"
LONGEST = "noise" if "SECONDS" in os.environ else ""  # as long as it was told; else until it has been carried
GROWTH_MAX = 96 << 20  # bytes of memory that a victim may take on: its budget for pieces, and what sockets hold

# What it does, and what its victims must say of it. In an order in which one does not silence the next: who sends what
# does not verify is muted for a minute, who sends wrong bytes is not asked again.
ROUNDS: List[Tuple[str, List[str]]] = [
    ("refuse,flood", ["does not send what it was asked for"]),
    ("silent,replay,forge", ["does not send what it was asked for", "did not verify"]),
    ("garbage", ["does not match its digest"]),
    ("noise", []),
    ("mangle", ["does not decode"]),
]


def memory(h: Host) -> int:
    """Resident bytes of its daemon."""
    assert h.process.popen
    for line in Path(f"/proc/{h.process.popen.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise Failed(f"{h.name}: no VmRSS")


def stored_head(h: Host) -> bytes:
    """The signed head in its slot "board" (proto/BOARD.md)."""
    slot = next(p for p in (h.state / "slots").iterdir() if p.name.startswith("board")).read_bytes()
    at = slot.index(b"GWBOARD1") + 12
    at += 1 + slot[at] + 88
    n = int.from_bytes(slot[at:at + 4], "little")
    return slot[at + 4:at + 4 + n]


class Story:
    def __init__(self, lab: Lab) -> None:
        self.lab, self.rng = lab, random.Random(SEED)
        self.trainer = lab.add_host("trainer", "eu", publishes=[POLICY])
        self.victims = [lab.add_host(f"us-{i}", "us") for i in (1, 2)]
        self.mallory = lab.add_host("mallory", "us")
        self.trainer.set("limits", rate="1M")  # long enough on the way to be disturbed
        self.trainer.set("publish", head_renew="1s")

    def begin(self) -> None:
        done = run([self.lab.tools.synth, str(self.lab.root / "series"), "--bytes", "1M", "--steps", "1", "--density", "0.5"])
        if done.returncode:
            raise Failed(done.stderr)
        self.lab.start_forwarder()
        self.lab.start_first(self.trainer)
        for h in (*self.victims, self.mallory):
            self.lab.join(h, self.trainer)
        first = self.publish(0)
        for h in (*self.victims, self.mallory):
            self.lab.wait(f"{h.name} holds version 0", 60, lambda: h.holds(POLICY, first["version"]))
        self.mallory.kill()
        self.head = self.lab.root / "head"
        self.head.write_bytes(stored_head(self.mallory))
        self.before = {h.name: memory(h) for h in self.victims}

    def publish(self, n: int) -> Json:
        return self.trainer.publish(POLICY, self.lab.root / "series" / f"v{n % 2}", anchor=True)

    def identity(self, h: Host) -> str:
        line = next(n for n in (h.state / "host.key.pub").read_text().splitlines() if n.startswith("ed25519: "))
        return base64.b64decode(line.split()[1]).hex()

    def attack(self, mode: str, p: Json) -> Process:
        a = Process(mode, self.lab.logs / f"{mode}.log")
        argv = [str(BUILD / "tests/e2e/hostile_peer"), "--key", str(self.mallory.state / "host.key"), "--source",
                self.mallory.address, "--seed", str(self.rng.randrange(1 << 32)), "--seconds", str(SECONDS), "--mode", mode,
                "--object", p["manifest"], "--pieces", str(p["pieces"]), "--file", str(self.head)]
        for h in (self.trainer, *self.victims):
            argv += ["--identity", self.identity(h)]
        for h in self.victims:
            argv += ["--victim", f"{h.curve},{h.address}:{CONTROL},{h.address}:{BULK}"]
        a.start(argv)
        return a

    def said(self, h: Host, since: int, words: str) -> bool:
        lines = h.process.log.read_text(errors="replace")[since:].splitlines()
        return any(words in line and "host=mallory" in line for line in lines)

    def round(self, mode: str, says: List[str], number: int) -> None:
        since = {h.name: len(h.process.log.read_text(errors="replace")) for h in self.victims}
        p = self.publish(number)
        a = self.attack(mode, p)
        for h in self.victims:
            self.lab.wait(f"{h.name} holds version {p['version']} although a member is up to '{mode}'", 60,
                          lambda: h.holds(POLICY, p["version"]))

        assert a.popen

        def named() -> bool:
            return all(any(self.said(h, since[h.name], words) for h in self.victims) for words in says)

        self.lab.wait(f"the victims say of mallory, which is up to '{mode}': {says}", SECONDS + 10, named)
        if mode == LONGEST:
            a.popen.wait(SECONDS + 30)
        a.kill()
        for h in self.victims:
            grown = memory(h) - self.before[h.name]
            if grown > GROWTH_MAX:
                raise Failed(f"{h.name} took on {grown >> 20} MiB through '{mode}'")
        print(f"- {mode}: carried all the same, and named")

    def run(self) -> None:
        self.begin()
        for number, (mode, says) in enumerate(ROUNDS, 1):
            self.round(mode, says, number)
        print("- memory taken on: " + ", ".join(f"{h.name} {(memory(h) - self.before[h.name]) >> 20} MiB" for h in self.victims))


def test() -> None:
    print(f"SEED={SEED}")
    with Lab(BUILD, ["eu", "us"], [POLICY], bool(os.environ.get("KEEP"))) as lab:
        Story(lab).run()


if __name__ == "__main__":
    main(test)

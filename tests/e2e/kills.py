#!/usr/bin/python3
"""SIGKILLs of hosts at any moment of transfer, stage and commit.

Each round publishes a version and kills one host at a random moment of its way, or a random moment after it began to
stage, or to commit, which last too short to be hit by chance. The host starts again at once. The round ends when every
island serves the version and computes bit for bit what its files say; in between nothing but whole versions may answer.
Every fourth round is about the transfer alone: a large anchor, and what was verified before the kill must not be fetched
again. HOST_KILLS is their number (20), SEED repeats a run's choices.
"""
import os
import random
import re
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import List

from common import BUILD, KEEP, main

from fleet import POLICY, Fleet
from mesh import Host, Json, Lab
from procs import Failed, run
from story import BIG

KILLS = int(os.environ.get("HOST_KILLS", "20"))
SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))
MIB = 1 << 20


@dataclass
class Moment:
    """What a host was at just before it was killed."""
    phase: str
    have: int = 0


def moment(h: Host, policy: str, version: int) -> Moment:
    doc = h.status()
    if doc is None:
        return Moment("not answering")
    for o in doc["objects"]:
        if o["policy"] == policy and o["to"] == version:
            if o["have"] < o["pieces"]:
                return Moment(f"transfer, {o['have']} of {o['pieces']} pieces", o["have"])
            if h.publishes:
                return Moment("published", o["have"])
            if policy == POLICY and doc["engine"]["served"] != version:
                return Moment("whole, not yet served", o["have"])
            return Moment("all done", o["have"])
    return Moment("publishing" if h.publishes else "before the manifest")


class Kills(Fleet):
    def __init__(self, lab: Lab, rng: random.Random) -> None:
        super().__init__(lab, {"eu": 1, "us": 2})
        self.rng = rng
        self.versions: List[Path] = []
        self.at = 0                 # number of publications
        self.usual = 0.5            # seconds from publish to everywhere
        self.seen: "Counter[str]" = Counter()
        for h in self.lab.hosts:
            h.set("limits", rate="3M")  # long enough on the way to be hit there

    def make_versions(self) -> None:
        for name, what in (("series", ["--bytes", "8M", "--steps", "3", "--density", "0.05"]),
                           ("large", ["--bytes", "6M", "--steps", "1", "--density", "0.5"])):
            done = run([self.lab.tools.synth, str(self.lab.root / name), *what, "--seed", "7"])
            if done.returncode:
                raise Failed(f"synth: {done.stderr}")
        # There and back for ever: an older state is published as a new version.
        self.versions = [self.lab.root / "series" / f"v{i}" for i in (0, 1, 2, 3, 2, 1)]

    def begin(self) -> None:
        self.make_versions()
        self.start_mesh()
        self.publish_next()
        for h in self.there:
            self.start_engine(h)
        self.wait_served(0)
        self.prove(0)
        start = time.monotonic()
        self.publish_next()
        self.wait_served(1)
        self.usual = time.monotonic() - start

    def next_folder(self) -> Path:
        self.at += 1
        return self.versions[(self.at - 1) % len(self.versions)]

    def publish_next(self) -> Json:
        return self.publish(self.next_folder())

    def start_publish(self, folder: Path, policy: str, *more: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([self.lab.tools.godwit, "seed", "publish", str(folder), "--policy", policy, "--run",
                                 str(self.trainer.sockets), *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    # --- rounds ---

    def strike(self, victim: Host, policy: str, version: int, after: float) -> Moment:
        time.sleep(after)
        m = moment(victim, policy, version)
        victim.kill()
        victim.start()
        return m

    def strike_at(self, victim: Host, phase: str) -> Moment:
        """As soon as it keeps the version's table, which is the last of staging, or the engine is told to pause."""
        log = self.engines[victim.name].process.log

        def seen() -> object:
            if phase == "commit":
                return log.read_bytes().count(b": pause")
            return {p.name for p in (victim.state / "versions").iterdir() if not p.name.startswith(".")}

        before = seen()
        self.lab.wait(f"{victim.name} comes to {phase}", 30, lambda: seen() != before, every=0.0002)
        time.sleep(self.rng.uniform(0, 0.002))
        victim.kill()
        victim.start()
        return Moment(phase)

    def round(self, number: int) -> None:
        version, folder = max(self.folders) + 1, self.next_folder()
        victim = self.trainer if self.rng.random() < 0.15 else self.rng.choice(self.there)
        phase = "any" if victim is self.trainer else self.rng.choice(["any", "any", "stage", "commit"])
        after = self.rng.uniform(0, 1.1 * self.usual) if phase == "any" else 0
        self.folders[version] = folder
        start = time.monotonic()
        publishing = self.start_publish(folder, POLICY)
        if phase == "any":
            m = self.strike(victim, POLICY, version, after)
        else:
            m = self.strike_at(victim, phase)
        publishing.wait(60)
        self.answers()
        if victim is self.trainer:
            self.publish_again(folder, version)
        self.wait_served(version)
        self.prove(version)
        self.never_back()
        self.report(number, victim, m, time.monotonic() - start)

    def publish_again(self, folder: Path, version: int) -> None:
        """A trainer that was killed may have published or not; publishing again is safe either way."""
        p = self.trainer.publish(POLICY, folder)
        if p["version"] != version:
            raise Failed(f"published again after a kill, version {version} became {p['version']}")

    def answers(self) -> None:
        """Each engine answers, with a version that was published, whole."""
        for e in self.engines.values():
            self.check_answer(e)

    def never_back(self) -> None:
        """No engine was ever led back to an older version."""
        for e in self.engines.values():
            came = [int(n) for n in re.findall(r"resume version (\d+)", e.process.log.read_text())]
            if came != sorted(came):
                raise Failed(f"{e.process.name} went back: {came[-5:]}")

    def large_round(self, number: int, version: int) -> None:
        victim = self.rng.choice(self.there)
        start = time.monotonic()
        p = self.trainer.publish(BIG, self.lab.root / "large" / f"v{version % 2}", anchor=True)
        m = self.strike(victim, BIG, p["version"], self.rng.uniform(0, 1.6))
        for h in self.there:
            self.lab.wait(f"{h.name} holds large version {p['version']}", 60, lambda: h.holds(BIG, p["version"]))
        self.check_refetched(victim, p, m)
        self.report(number, victim, m, time.monotonic() - start)

    def check_refetched(self, victim: Host, p: Json, m: Moment) -> None:
        """Since its start the victim fetched no more than what it had not verified before."""
        o = next(o for o in victim.objects(BIG) if o["to"] == p["version"])
        piece = 64 << 10
        while piece * o["pieces"] < o["bytes"]:
            piece *= 2
        most = (o["pieces"] - m.have) * piece + o["duplicate_bytes"]
        if o["rx_bytes"] > most:
            raise Failed(f"{victim.name} had {m.have} of {o['pieces']} pieces when it was killed and fetched {o['rx_bytes']} "
                         f"bytes after: at most {most} were missing")

    def report(self, number: int, victim: Host, m: Moment, seconds: float) -> None:
        self.seen[m.phase.split(",")[0]] += 1
        print(f"kill {number:3d}: {victim.name:8s} at: {m.phase}; right everywhere after {seconds:.2f} s")

    def run(self) -> None:
        self.begin()
        large = 0
        for i in range(1, KILLS + 1):
            if i % 4 == 0:
                self.large_round(i, large)
                large += 1
            else:
                self.round(i)
        print(f"{KILLS} kills, by what the host was at: " + ", ".join(f"{k} {n}" for k, n in self.seen.most_common()))


def test() -> None:
    print(f"SEED={SEED} HOST_KILLS={KILLS}")
    with Lab(BUILD, ["eu", "us"], [POLICY, BIG], KEEP) as lab:
        Kills(lab, random.Random(SEED)).run()


if __name__ == "__main__":
    main(test)

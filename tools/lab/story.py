"""The story of the main job, for the quickstart and for tests: a trainer host and islands in several regions; versions
of a real series go from a checkpoint folder into the memory of engines; one island joins late; a large anchor is carried
once over each border. Every figure was measured in this run; every engine is compared with the version's own files.
"""
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from fleet import POLICY, Fleet
from mesh import Border, Json, Lab, grown
from procs import Failed, run

MIB = 1 << 20
BLOCK = 128 << 10
BIG = "big"


@dataclass
class Plan:
    regions: Dict[str, int]       # islands there from the start; the trainer host is in the first
    late: str                     # region of the island that joins after all but the last version
    versions: Sequence[Path]      # checkpoint folders, v0 first
    big_bytes: int                # size of the synthetic checkpoint; 0: none
    big_least: int = 0            # what its object must have at least, in bytes


@dataclass
class Carried:
    """A version and what carrying it cost."""
    name: str
    published: Json
    seconds: float                # from the start of `seed publish` until the last host was there
    pause_ms: Optional[float]
    border: Dict[Border, int] = field(default_factory=dict)

    def row(self) -> List[str]:
        p = self.published
        borders = ", ".join(f"{a}>{b} {size(n)}" for (a, b), n in sorted(self.border.items())) or "-"
        return [self.name, size(p["object_bytes"]), "-" if p["anchor"] else f"{p['bits_per_change']:.2f}",
                f"{p['patch_bytes'] / p['full_bytes']:.4f}", str(p["pieces"]), f"{p['took_s']:.2f}", f"{self.seconds:.2f}",
                "-" if self.pause_ms is None else f"{self.pause_ms:.2f}", borders]


HEADER = ["version", "bytes", "bits/change", "of full", "pieces", "encode s", "to last s", "pause ms", "over borders (bulk, on the wire)"]


def size(n: float) -> str:
    for unit in ("B", "kB", "MB"):
        if n < 1000:
            return f"{n:.0f} B" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.2f} GB"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in [header, *rows])


class MainJob(Fleet):
    """The steps in their order; Failed where one does not hold."""

    def __init__(self, lab: Lab, plan: Plan) -> None:
        super().__init__(lab, plan.regions)
        self.plan = plan
        self.carried: List[Carried] = []
        self.late = self.add_island(f"{plan.late}-late", plan.late)
        self.begun = time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.begun:6.1f} s] {text}", flush=True)

    def carry(self, folder: Path) -> None:
        """Publishes, and measures until the last island serves it."""
        before, start = self.lab.forwarder.settled(), time.monotonic()
        published = self.publish(folder)
        if not self.engines:
            for h in self.there:
                self.start_engine(h)
        version = published["version"]
        self.wait_served(version)
        seconds = time.monotonic() - start
        pause = max(h.must_status()["engine"]["last_pause_ms"] for h in self.there)
        self.take(Carried(f"v{version}", published, seconds, None if published["anchor"] else pause), before)
        self.prove(version)

    def take(self, c: Carried, before: Dict[Border, int]) -> None:
        c.border = grown(self.lab.forwarder.settled(), before)
        self.carried.append(c)
        p = c.published
        kind = "an anchor" if p["anchor"] else f"{p['changed']} of {p['elements']} elements changed"
        self.say(f"{c.name}: {kind}, {size(p['object_bytes'])} for {size(p['full_bytes'])}; everywhere after {c.seconds:.2f} s")

    def join_late(self) -> None:
        before, start = self.lab.forwarder.settled(), time.monotonic()
        self.join(self.late)
        self.start_engine(self.late)
        newest = self.carried[-1].published["version"]
        self.wait_served(newest)
        seconds = time.monotonic() - start
        crossed = sum(grown(self.lab.forwarder.settled(), before).values())
        self.say(f"{self.late.name} joined by a token and serves version {newest} after {seconds:.2f} s; {size(crossed)} "
                 f"crossed borders for it")

    # --- the large anchor ---

    def publish_big(self) -> None:
        folder = self.lab.root / "synthetic"
        done = run([self.lab.tools.synth, str(folder), "--bytes", str(self.plan.big_bytes), "--steps", "0", "--density", "0.003"])
        if done.returncode:
            raise Failed(f"synth: {done.stderr}")
        before, start = self.lab.forwarder.settled(), time.monotonic()
        published = self.trainer.publish(BIG, folder / "v0")
        if published["object_bytes"] < self.plan.big_least or published["pieces"] < 128:
            raise Failed(f"the large anchor has {published['object_bytes']} bytes in {published['pieces']} pieces only")
        for h in self.there:
            self.lab.wait(f"{h.name} holds the large anchor", 120, lambda: h.holds(BIG, 0))
        self.take(Carried("big v0", published, time.monotonic() - start, None), before)
        self.check_borders(self.carried[-1])

    def check_borders(self, c: Carried) -> None:
        """Once per border, and the forwarder and the hosts agree about it."""
        payload = c.published["object_bytes"]
        for region in self.lab.regions:
            told = sum(o["border_rx_bytes"] for h in self.there if h.region == region for o in h.objects(BIG))
            seen = sum(n for (_, to), n in c.border.items() if to == region)
            if region == self.lab.regions[0]:
                if told or seen > payload / 100:
                    raise Failed(f"{told} and {seen} bytes came back into {region}")
                continue
            if told > 1.05 * payload + BLOCK:
                raise Failed(f"{told} bytes entered {region} for an object of {payload}: over 1.05 times and a block")
            if abs(seen - told) > 0.02 * told:
                raise Failed(f"{region}: its hosts count {told} bytes over the border, the forwarder {seen}: over 2 % apart")
            self.say(f"{region}: {size(told)} of pieces over its border as its hosts count ({told / payload:.4f} of the object), "
                     f"{size(seen)} on the wire as the forwarder counts ({seen / told - 1:+.2%})")

    # --- all of it ---

    def prove_all(self, version: int) -> None:
        self.prove(version)
        self.say(f"v{version}: {len(self.engines)} engines compute bit for bit what a fresh load of its files computes "
                 f"(digest {self.fresh(version)[:16]})")

    def run(self) -> None:
        self.start_mesh()
        self.say(f"{1 + len(self.islands)} hosts in {len(self.lab.regions)} regions; all but the trainer's joined by a token")
        for folder in self.plan.versions[:-1]:
            self.carry(folder)
        self.join_late()
        self.prove_all(len(self.plan.versions) - 2)
        self.carry(self.plan.versions[-1])
        self.prove_all(len(self.plan.versions) - 1)
        if self.plan.big_bytes:
            self.publish_big()
            self.prove_all(len(self.plan.versions) - 1)

    def report(self) -> str:
        health = self.lab.tools.call("health", "--policy", POLICY, "--run", str(self.trainer.sockets))
        return f"{health}\n{table(HEADER, [c.row() for c in self.carried])}"

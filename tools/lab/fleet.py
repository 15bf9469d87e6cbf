"""A trainer host, islands with an engine each, and the versions that go from one to the others."""
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from demo import Engine, fresh_digest
from mesh import Host, Json, Lab
from procs import Failed

POLICY = "tiny-rl"  # what the islands serve


class Fleet:
    """Hosts of a laboratory in their parts. The trainer host is in the laboratory's first region."""

    def __init__(self, lab: Lab, islands: Dict[str, int]) -> None:
        self.lab = lab
        self.engines: Dict[str, Engine] = {}
        self.folders: Dict[int, Path] = {}  # the files of each version published
        self.digests: Dict[Tuple[Path, int], str] = {}  # of a fresh load of such files by so many ranks
        self.trainer = lab.add_host("trainer", lab.regions[0], publishes=lab.policies)
        self.islands = [self.add_island(f"{region}-{i + 1}", region) for region, n in islands.items() for i in range(n)]
        self.there: List[Host] = []         # islands that have joined

    def add_island(self, name: str, region: str) -> Host:
        return self.lab.add_host(name, region, f"island-{name}", POLICY)

    def start_mesh(self, *forwarder: str) -> None:
        self.lab.start_forwarder(*forwarder)
        self.lab.start_first(self.trainer)
        for h in self.islands:
            self.join(h)

    def join(self, h: Host) -> None:
        self.lab.join(h, self.trainer)
        self.there.append(h)

    def current(self, h: Host) -> Path:
        """The checkpoint that the host made of an anchor, as soon as it is there."""
        path: Path = h.state / "checkpoints" / POLICY / "CURRENT"
        self.lab.wait(f"{h.name} has a checkpoint", 60, path.exists)
        return path

    def start_engine(self, h: Host) -> None:
        """With two ranks on the first island, so that slices are shown as well."""
        e = self.engines[h.name] = Engine(h, self.current(h), ranks=2 if h is self.islands[0] else 1)
        self.lab.at_end.callback(e.kill)
        self.lab.others.append(e.process)
        e.start()

    def publish(self, folder: Path) -> Json:
        """The next version; the first one is an anchor."""
        p = self.trainer.publish(POLICY, folder)
        self.folders[p["version"]] = folder
        return p

    def wait_served(self, version: int, seconds: float = 60) -> None:
        for h in self.there:
            self.lab.wait(f"{h.name} serves version {version}", seconds, lambda: h.served() == version, every=0.02)

    def fresh(self, version: int, ranks: int = 1) -> str:
        key = self.folders[version], ranks
        if key not in self.digests:
            self.digests[key] = fresh_digest(self.lab.tools, *key)
        return self.digests[key]

    def check_answer(self, e: Engine) -> int:
        """What an engine computes must be what a fresh load of that version's files computes; the version."""
        answer = e.ask()
        version: int = answer["version"]
        want = self.fresh(version, e.ranks) if version in self.folders else None
        if answer["digest"] != want:
            raise Failed(f"{e.process.name} computes with weights of digest {answer['digest']} and says version {version}; "
                         f"a fresh load of {self.folders.get(version)} gives {want}")
        return version

    def prove(self, version: Optional[int] = None) -> None:
        """Every engine computes bit for bit what a fresh load of the version that it serves computes."""
        for e in self.engines.values():
            got = self.check_answer(e)
            if version is not None and got != version:
                raise Failed(f"{e.process.name} serves version {got}, expected {version}")

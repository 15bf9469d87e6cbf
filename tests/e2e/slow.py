#!/usr/bin/python3
"""A relay that is stopped in the middle of a transfer: for 8 s it stays a member, for 30 s it does not. The others finish
without it, and when it goes on it is the same process, comes back and catches up."""
import signal
import time
from typing import Callable, List

from common import BUILD, main

from mesh import Host, Lab
from procs import Failed, run

POLICY = "tiny-rl"


class Story:
    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.trainer = lab.add_host("trainer", "eu", publishes=[POLICY])
        self.relays = [lab.add_host(f"us-{i}", "us") for i in (1, 2, 3)]
        self.trainer.set("limits", rate="1M")  # long enough on the way to be stopped there

    def begin(self) -> None:
        done = run([self.lab.tools.synth, str(self.lab.root / "s"), "--bytes", "6M", "--steps", "1", "--density", "0.5"])
        if done.returncode:
            raise Failed(done.stderr)
        self.lab.start_forwarder()
        self.lab.start_first(self.trainer)
        for h in self.relays:
            self.lab.join(h, self.trainer)

    def all_hold(self, hosts: List[Host], version: int, seconds: float) -> None:
        for h in hosts:
            self.lab.wait(f"{h.name} holds version {version}", seconds, self.holding(h, version))

    def holding(self, h: Host, version: int) -> Callable[[], bool]:
        return lambda: h.holds(POLICY, version)

    def stop_for(self, seconds: float, number: int, removed: bool) -> None:
        stopped, others = self.relays[0], self.relays[1:]
        version = self.trainer.publish(POLICY, self.lab.root / "s" / f"v{number}", anchor=True)["version"]
        time.sleep(1)
        stopped.process.send(signal.SIGSTOP)
        start = time.monotonic()
        self.all_hold(others, version, 30)
        took = time.monotonic() - start
        time.sleep(max(0.0, seconds - took))
        dead = any(h.log_has("member is dead", f"host={stopped.name}") for h in others)
        stopped.process.send(signal.SIGCONT)
        if dead != removed:
            raise Failed(f"{stopped.name} was stopped for {seconds} s and is {'dead' if dead else 'a member'} for the others")
        self.all_hold(self.relays, version, 60)
        print(f"- stopped for {seconds} s: the others were done after {took:.1f} s; {'dead, then back' if dead else 'a member all along'}")

    def run(self) -> None:
        self.begin()
        self.stop_for(8, 0, False)
        self.stop_for(30, 1, True)


def test() -> None:
    with Lab(BUILD, ["eu", "us"], [POLICY]) as lab:
        Story(lab).run()


if __name__ == "__main__":
    main(test)

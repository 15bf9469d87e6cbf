#!/usr/bin/python3
"""The main job (tools/lab/story.py) with fewer hosts and a smaller large anchor."""
from common import BUILD, KEEP, main, series

from fleet import POLICY
from mesh import Lab
from story import BIG, MIB, MainJob, Plan


def test() -> None:
    plan = Plan({"eu": 1, "us": 2, "ap": 1}, "ap", series("lr1e-6/bf16", 4), 12 * MIB)
    with Lab(BUILD, list(plan.regions), [POLICY, BIG], KEEP) as lab:
        job = MainJob(lab, plan)
        job.run()
        print(job.report())


if __name__ == "__main__":
    main(test)

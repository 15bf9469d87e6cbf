"""The main job on loopback, with a build of Godwit: what tools/quickstart runs. The story itself: story.py."""
import argparse
import sys
from pathlib import Path
from typing import Optional, Sequence

from fleet import POLICY
from mesh import Lab
from procs import Failed, end_on_signals
from story import BIG, MIB, MainJob, Plan


def main(argv: Optional[Sequence[str]] = None) -> int:
    p = argparse.ArgumentParser(description="the main job on loopback, with a build of Godwit")
    p.add_argument("build", type=Path, help="build folder")
    p.add_argument("data", type=Path, help="tests/data")
    p.add_argument("--keep", action="store_true", help="keep the temporary folder: logs, configurations, states")
    args = p.parse_args(argv)
    series = args.data.resolve() / "lr1e-6" / "bf16"
    plan = Plan({"eu": 1, "us": 2, "ap": 2}, "ap", [series / f"v{i}" for i in range(4)], 92 * MIB, 64 * MIB)
    end_on_signals()
    try:
        with Lab(args.build, list(plan.regions), [POLICY, BIG], args.keep) as lab:
            job = MainJob(lab, plan)
            job.run()
            print(f"\n{job.report()}")
    except Failed as e:
        print(f"FAILED: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

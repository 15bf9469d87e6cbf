#!/usr/bin/python3
"""Runs a command and says the most private memory it had: Private_Dirty of /proc/PID/smaps_rollup (what mapped files
take is the page cache's), looked at every 10 ms.

    peak_private.py LIMIT_MIB COMMAND…
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path


def private_kib(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Private_Dirty:"):
                return int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def main() -> None:
    limit, command = int(sys.argv[1]), sys.argv[2:]
    child = subprocess.Popen(command)
    peak, looks = 0, 0
    while child.poll() is None:
        peak = max(peak, private_kib(child.pid))
        looks += 1
        time.sleep(0.01)
    name = " ".join(command[:1] + [c for c in command[1:] if not c.startswith("/")])
    print(f"RESULT memory.private.{Path(command[0]).name}.{command[1]} {peak / 1024:.1f} MiB limit={limit} looks={looks}", flush=True)
    if child.returncode:
        sys.exit(f"{name}: exit code {child.returncode}")
    if looks < 10:
        sys.exit(f"{name}: ran too short to be measured")
    if peak > limit * 1024:
        sys.exit(f"{name}: {peak} KiB of private memory, over the limit of {limit} MiB")


if __name__ == "__main__":
    main()

"""What the end-to-end tests share: where build and data are, and how a test ends."""
import os
import sys
import traceback
from pathlib import Path
from typing import Callable

TOP = Path(os.environ.get("top_srcdir", Path(__file__).parents[2])).resolve()
BUILD = Path(os.environ.get("top_builddir", TOP / "build")).resolve()
DATA = TOP / "tests" / "data"
KEEP = bool(os.environ.get("KEEP"))  # the temporary folder with all logs
sys.path.insert(0, str(TOP / "tools" / "lab"))

from procs import Failed, end_on_signals  # noqa: E402


def series(name: str, versions: int) -> "list[Path]":
    return [DATA / name / f"v{i}" for i in range(versions)]


def main(test: Callable[[], None]) -> None:
    """Exit status 0, or 1 with what failed; Ctrl-C and SIGTERM clean up as well."""
    end_on_signals()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        test()
    except Failed as e:
        print(f"FAILED: {e}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:  # a fault of the test itself: said as loudly
        traceback.print_exc()
        sys.exit(1)

#!/usr/bin/python3
"""Tables and a drawing from the lines of tests/bench/codec.sh.

bench_table.py LINES [--markdown FILE] [--svg FILE]

Prints every figure, a block a pair, and last what the codec promises beside what was measured. --markdown writes the
same in short, as tests/bench/RESULTS.md; --svg draws size against speed.
"""

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterable, Iterator, List, Optional, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bench_svg import Point, draw  # noqa: E402

NAMES = {
    "godwit": "Godwit",
    "int32_value": "int32 + value",
    "int32_value_zstd1": "int32 + value, zstd -1",
    "xor_zstd1": "XOR, zstd -1",
    "xor_zstd3": "XOR, zstd -3",
    "xor_planes_zstd1": "XOR planes, zstd -1",
    "xor_planes_zstd3": "XOR planes, zstd -3",
    "gaps_value_zstd1": "gaps + value, zstd -1",
    "gaps_steps_zstd1": "gaps + steps, zstd -1",
    "zstd3_patch_from": "zstd -3 --patch-from",
    "xdelta3_1": "xdelta3 -1",
    "xdelta3_9": "xdelta3 -9",
    "bsdiff": "bsdiff",
}
# So near their neighbours of level 1 that short tables and the drawing leave them out.
ALIKE = ("xor_zstd3", "xor_planes_zstd3")
SMALL = 64_000_000  # bytes; below, a model stays in the cache


@dataclass
class Line:
    figure: str
    value: float
    keys: dict[str, str]

    def number(self, key: str) -> float:
        return float(self.keys.get(key, "nan"))


@dataclass
class Block:
    """What was measured on one pair, or a part of it."""

    pair: str
    dtype: str
    part: str
    lines: dict[str, Line] = field(default_factory=dict)

    @property
    def synthetic(self) -> bool:
        return self.pair.startswith("synthetic/")

    @property
    def density(self) -> float:
        return self.lines["bound"].number("density")

    @property
    def model_bytes(self) -> float:
        return self.lines["bound"].number("model_bytes")

    @property
    def title(self) -> str:
        return f"{self.pair} {self.dtype}" + (", first 8 MiB" if self.part == "first" else "")

    def bits(self, codec: str) -> Optional[Line]:
        return self.lines.get("bits." + codec)

    def codecs(self) -> Iterator[str]:
        return (c for c in NAMES if self.bits(c) or "missing." + c in self.lines)

    def best_rival(self) -> str:
        return min((c for c in self.codecs() if c != "godwit" and self.bits(c)), key=lambda c: self.lines["bits." + c].value)

    def of_xor(self, codec: str) -> float:
        mine, xor = self.bits(codec), self.bits("xor_zstd1")
        return mine.value / xor.value if mine and xor else float("nan")


@dataclass
class Run:
    machine: dict[str, str] = field(default_factory=dict)
    missing: List[str] = field(default_factory=list)
    blocks: dict[Tuple[str, str, str], Block] = field(default_factory=dict)

    def whole(self) -> List[Block]:
        return [b for b in self.blocks.values() if b.part == "whole"]


def read(lines: Iterable[str]) -> Run:
    run = Run()
    for text in lines:
        words = text.split()
        if not words:
            continue
        if words[0] == "MACHINE":
            run.machine[words[1]] = " ".join(words[2:])
        elif words[0] == "MISSING":
            run.missing.append(words[1])
        elif words[0] == "RESULT" and words[1].startswith("codec."):
            keys = dict(w.split("=", 1) for w in words[4:])
            where = (keys.pop("pair"), keys.pop("dtype"), keys.pop("part"))
            block = run.blocks.setdefault(where, Block(*where))
            block.lines[words[1].removeprefix("codec.")] = Line(words[1], float(words[2]), keys)
    return run


# --- tables ---------------------------------------------------------------------------------------------------------

HEAD = ["", "bytes", "bits a change", "of bound", "of XOR", "encode GB/s", "of memcpy", "of read",
        "decode GB/s", "of memcpy", "of read"]


def ratio(v: float) -> str:
    """Two digits behind the point, or as many as tell something."""
    return f"{v:.0f}" if v >= 99.5 else f"{v:.2f}" if v >= 0.095 else f"{v:.2g}"


def speed(line: Optional[Line]) -> List[str]:
    if not line:
        return ["", "", ""]
    return [ratio(line.value), ratio(line.number("of_memcpy")), ratio(line.number("of_read"))]


def rows(block: Block) -> List[List[str]]:
    out = []
    for codec in block.codecs():
        bits = block.bits(codec)
        if not bits:
            out.append([NAMES[codec], "not installed"] + [""] * (len(HEAD) - 2))
            continue
        out.append([NAMES[codec], f"{int(bits.number('bytes')):,}", f"{bits.value:.2f}", ratio(bits.number("of_bound")),
                    ratio(block.of_xor(codec))]
                   + speed(block.lines.get("encode." + codec)) + speed(block.lines.get("decode." + codec)))
    return out


def about(block: Block) -> str:
    bound = block.lines["bound"]
    return (f"{bound.number('elements') / 1e6:.2f} M elements, {block.model_bytes / 1e6:.1f} MB, "
            f"{100 * block.density:.3f} % changed; bound {bound.value:.3f} bits a change: places "
            f"{bound.number('places'):.3f}, steps {bound.number('steps'):.3f}; parameters "
            f"{bound.number('parameters'):.3f} more")


def memory(block: Block) -> str:
    def gbs(name: str) -> str:
        return f"{block.lines['kernel.' + name].value:.1f}"

    def share(name: str) -> str:
        return f"{100 * block.lines['kernel.' + name].number('of_read'):.0f} %"

    cached = "; all of it in the cache" if block.model_bytes < SMALL else ""
    return (f"memcpy {gbs('memcpy')} GB/s, read {gbs('read')}, read both {gbs('read_both')}; scan {gbs('scan')} "
            f"({share('scan')} of read both), fingerprint {gbs('fingerprint')} ({share('fingerprint')} of read){cached}")


def more(block: Block) -> Optional[str]:
    lists, prints = block.lines.get("decode_list.godwit"), block.lines.get("decode_prints.godwit")
    if not lists or not prints:
        return None
    text = f"Godwit decodes to lists at {lists.value:.2f} GB/s, with fingerprints of what changed at {prints.value:.2f}"
    tiles = block.lines.get("encode_tiles.godwit")
    if tiles:
        text += f"; compares and codes tiles alone at {tiles.value:.2f}"
    for way in ("encode", "decode"):
        two = block.lines.get("two_threads." + way)
        if two:
            text += f"; {way} gains {two.value:.2f} × from a second thread (reading: {two.number('read_gains'):.2f} ×)"
    return text


def aligned(table: List[List[str]]) -> List[str]:
    widths = [max(len(r[i]) for r in table) for i in range(len(table[0]))]
    return ["  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))).rstrip()
            for r in table]


def marked(table: List[List[str]]) -> List[str]:
    lines = ["| " + " | ".join(r) + " |" for r in table]
    return [lines[0], "|" + "|".join("---" if i == 0 else "---:" for i in range(len(table[0]))) + "|"] + lines[1:]


# --- what is promised -------------------------------------------------------------------------------------------------

# Columns of the promises for bf16, by the share that changes: from, to; and what is promised in each.
COLUMNS = [(0.0004, 0.0015), (0.0015, 0.006), (0.006, 0.015), (0.015, 0.04)]
OF_BOUND = [1.12, 1.06, 1.05, 1.04]
OF_BOUND_REAL = [None, 1.20, None, 1.10]
OF_XOR = [0.40, 0.33, 0.33, 0.36]
DECODE = [5.0, 5.0, 3.0, 1.5]
ENCODE = [2.0, 2.0, 1.5, 0.8]
SCAN, PRINT, THREADS, FP8 = 0.95, 0.60, 0.90, 1.08


def promise(block: Block, what: str, value: float, target: Optional[float], most: bool) -> List[List[str]]:
    """A row, where something is promised. most: not more than the target; else not less."""
    if target is None or value != value:
        return []
    good = value <= target if most else value >= target
    return [[f"{block.pair} {block.dtype}", what, f"{value:.3f}", f"{'≤' if most else '≥'} {target:.2f}",
             "yes" if good else "no"]]


def promises(run: Run) -> List[List[str]]:
    out: List[List[str]] = []
    for b in run.whole():
        column = next((i for i, (low, high) in enumerate(COLUMNS) if low <= b.density < high), None)
        godwit = b.bits("godwit")
        if not godwit or column is None:
            continue
        of_bound = godwit.number("of_bound")
        bf16 = b.dtype == "BF16" and "/bf16/" in b.pair
        if bf16:
            out += promise(b, "of bound", of_bound, (OF_BOUND if b.synthetic else OF_BOUND_REAL)[column], True)
        if b.dtype.startswith("F8") and b.synthetic:
            out += promise(b, "of bound", of_bound, FP8, True)
        if not bf16 or not b.synthetic:
            continue
        out += promise(b, "of XOR, zstd -1", b.of_xor("godwit"), OF_XOR[column], True)
        out += promise(b, "decode in place, GB/s", b.lines["decode.godwit"].value, DECODE[column], False)
        out += promise(b, "diff and encode, GB/s", b.lines["encode.godwit"].value, ENCODE[column], False)
        out += promise(b, "scan, of reading both", b.lines["kernel.scan"].number("of_read"), SCAN, False)
        out += promise(b, "fingerprint, of reading", b.lines["kernel.fingerprint"].number("of_read"), PRINT, False)
        for way in ("encode", "decode"):
            two = b.lines.get("two_threads." + way)
            if two:
                out += promise(b, f"second thread: {way}, of reading", two.number("of_read"), THREADS, False)
    return out


PROMISE_HEAD = ["", "figure", "measured", "wanted", "met"]


def machine_text(run: Run) -> List[str]:
    m = run.machine
    out = [f"{m.get('cpu', 'unknown processor')}, {m.get('cores', '?')} cores, cache {m.get('cache', '?')}, memory "
           f"{m.get('memory', '?')}; {m.get('kernel', '')}; compiler {m.get('compiler', '?')}, libzstd "
           f"{m.get('libzstd', '?')}; {m.get('date', '')}"]
    if run.missing:
        names = " ".join(run.missing)
        out.append(f"Not installed, so their rows are empty: {names}. On Debian: apt-get install {names}")
    return out


def text(run: Run) -> Iterator[str]:
    yield from machine_text(run)
    for b in run.blocks.values():
        yield ""
        yield f"{b.title}: {about(b)}"
        yield memory(b)
        yield from aligned([HEAD] + rows(b))
        extra = more(b)
        if extra:
            yield extra
    found = promises(run)
    if found:
        yield ""
        yield from aligned([PROMISE_HEAD] + found)


# --- RESULTS.md -------------------------------------------------------------------------------------------------------

SIZES = [c for c in NAMES if c not in ALIKE]


def sizes(run: Run) -> List[List[str]]:
    out = [["", "changed", "bound"] + [NAMES[c] for c in SIZES] + ["Godwit of bound", "of best rival"]]
    for b in run.blocks.values():
        godwit = b.bits("godwit")
        if not godwit:
            continue
        cells = [b.bits(c) for c in SIZES]
        best = b.lines["bits." + b.best_rival()]
        out.append([b.title, f"{100 * b.density:.2f} %", f"{b.lines['bound'].value:.2f}"]
                   + [f"{c.value:.2f}" if c else "" for c in cells]
                   + [f"{godwit.number('of_bound'):.3f}", f"{godwit.value / best.value:.3f}"])
    return out


def markdown(run: Run) -> Iterator[str]:
    yield "# The codec, measured"
    yield ""
    yield "Written by `make bench-codec-results`; what each figure holds stands in `README` beside this file."
    yield ""
    yield from machine_text(run)
    yield ""
    yield "![Size against speed](codec.svg)"
    yield ""
    yield "## What was wanted"
    yield ""
    yield from marked([PROMISE_HEAD] + promises(run))
    yield ""
    yield "## Sizes: bits a change"
    yield ""
    yield "Whole files. xdelta3 and bsdiff took part where the model has at most 8 MiB."
    yield ""
    yield from marked(sizes(run))
    for b in run.whole():
        if not b.synthetic or b.dtype == "all":
            continue
        yield ""
        yield f"## {b.title}"
        yield ""
        yield about(b) + ". " + memory(b) + "."
        yield ""
        yield from marked([HEAD] + rows(b))
        extra = more(b)
        if extra:
            yield ""
            yield extra + "."


# --- the drawing --------------------------------------------------------------------------------------------------------

def drawn(run: Run) -> Optional[Block]:
    """The pair to draw: the largest, and of those the one nearest to what published runs change in a step."""
    blocks = [b for b in run.whole() if b.dtype == "BF16"]
    return min(blocks, key=lambda b: (-b.model_bytes, abs(b.density - 0.0035)), default=None)


def svg(block: Block) -> str:
    panels = []
    for way, ceiling in (("encode", "read_both"), ("decode", "read")):
        points = [Point(NAMES[c], block.lines[f"{way}.{c}"].value, block.lines["bits." + c].number("of_bound"),
                        c == "godwit") for c in block.codecs()
                  if f"{way}.{c}" in block.lines and c not in ALIKE]
        marks = [("memcpy", block.lines["kernel.memcpy"].value),
                 ("reads both versions" if way == "encode" else "reads", block.lines["kernel." + ceiling].value)]
        panels.append((way, points, marks))
    title = f"bf16, {block.lines['bound'].number('elements') / 1e6:.0f} M parameters, {100 * block.density:.2f} % changed"
    return draw(title, panels)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("lines", type=Path)
    p.add_argument("--markdown", type=Path)
    p.add_argument("--svg", type=Path)
    args = p.parse_args()
    run = read(args.lines.read_text(encoding="utf-8").splitlines())
    if not run.blocks:
        print(f"{args.lines}: no figures of the codec", file=sys.stderr)
        return 1
    print("\n".join(text(run)))
    if args.markdown:
        args.markdown.write_text("\n".join(markdown(run)) + "\n", encoding="utf-8")
    block = drawn(run)
    if args.svg and block:
        args.svg.write_text(svg(block), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

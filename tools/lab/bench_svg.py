"""Draws size against speed as SVG text: one panel a direction, logarithmic axes, labels that do not overlap."""

import math
from dataclasses import dataclass
from html import escape
from typing import Iterator, List, Tuple

WIDTH, HEIGHT = 1080, 500
PANEL, LEFT, GAP, TOP, BOTTOM = 455, 62, 80, 74, 62
PLOT = HEIGHT - TOP - BOTTOM
CHAR, BOLD, LINE = 6.4, 7.4, 15  # widths of a letter, at most; height of a line

STYLE = """
svg { font-family: system-ui, sans-serif; font-size: 12px }
.back { fill: #ffffff } .ink { fill: #1f2328 } .dim { fill: #59636e } .grid { stroke: #d1d9e0 } .axis { stroke: #59636e }
.dot { fill: #6e7781 } .ours { fill: #0969da } .oursink { fill: #0969da; font-weight: 600 } .mark { stroke: #9a6700 }
.markink { fill: #9a6700 } .lead { stroke: #8c959f }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117 } .ink { fill: #e6edf3 } .dim { fill: #9198a1 } .grid { stroke: #30363d } .axis { stroke: #9198a1 }
.dot { fill: #9198a1 } .ours { fill: #58a6ff } .oursink { fill: #58a6ff } .mark { stroke: #d29922 }
.markink { fill: #d29922 } .lead { stroke: #6e7681 } }
"""


@dataclass
class Point:
    name: str
    speed: float  # GB/s
    size: float  # times the bound
    ours: bool


@dataclass
class Box:
    x: float
    y: float
    w: float
    h: float

    def meets(self, o: "Box") -> bool:
        return self.x < o.x + o.w and o.x < self.x + self.w and self.y < o.y + o.h and o.y < self.y + self.h


@dataclass
class Axis:
    """Logarithmic, from low to high, on pixels from `at` on, `length` of them (negative: upwards)."""

    low: float
    high: float
    at: float
    length: float

    def place(self, v: float) -> float:
        return self.at + self.length * math.log(v / self.low) / math.log(self.high / self.low)

    def ticks(self) -> List[float]:
        steps = [m * 10.0**e for e in range(-4, 5) for m in (1, 2, 5)]
        return [v for v in steps if self.low <= v <= self.high]


def text(x: float, y: float, words: str, cls: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{cls}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, cls: str, dash: str = "") -> str:
    extra = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{cls}"{extra}/>'


def place_label(x: float, y: float, width: float, frame: Box, taken: List[Box]) -> Tuple[Box, bool]:
    """Beside the dot if there is room, else ever further above or below it; the flag says whether it needs a line."""
    reach = 9.0
    for away in range(16):
        for dy in ([0.0] if away == 0 else [-away * LINE / 2 - 2, away * LINE / 2 + 2]):
            for dx in (reach, -reach - width, -width / 2) if away > 1 else (reach, -reach - width):
                box = Box(x + dx, y + dy - LINE / 2, width, LINE)
                inside = (frame.x + 2 <= box.x and box.x + box.w <= frame.x + frame.w - 2
                          and frame.y + 2 <= box.y and box.y + box.h <= frame.y + frame.h - 2)
                if inside and not any(box.meets(t) for t in taken):
                    return box, away > 1
    return Box(x + reach, y - LINE / 2, width, LINE), False


def labels(points: List[Point], xs: Axis, ys: Axis, frame: Box, taken: List[Box]) -> Iterator[str]:
    taken = taken + [Box(xs.place(p.speed) - 6, ys.place(p.size) - 6, 12, 12) for p in points]
    for p in sorted(points, key=lambda p: (not p.ours, p.size)):
        x, y = xs.place(p.speed), ys.place(p.size)
        box, far = place_label(x, y, (BOLD if p.ours else CHAR) * len(p.name), frame, taken)
        taken.append(box)
        if far:
            end = min(max(x, box.x), box.x + box.w)
            yield line(x, y, end, box.y if box.y > y else box.y + box.h, "lead")
        left = box.x + box.w <= x
        yield text(box.x + box.w if left else box.x, box.y + LINE - 4, p.name, "oursink" if p.ours else "ink",
                   "end" if left else "start")


def panel(left: float, way: str, points: List[Point], marks: List[Tuple[str, float]], limits: Tuple[float, float],
          top_size: float, first: bool) -> Iterator[str]:
    xs = Axis(limits[0], limits[1], left, PANEL)
    ys = Axis(1.0, top_size, TOP + PLOT, -PLOT)
    frame = Box(left, TOP, PANEL, PLOT)
    taken: List[Box] = []
    for v in xs.ticks():
        x = xs.place(v)
        yield line(x, TOP, x, TOP + PLOT, "grid")
        yield text(x, TOP + PLOT + 17, f"{v:g}", "dim", "middle")
    for v in ys.ticks():
        y = ys.place(v)
        yield line(left, y, left + PANEL, y, "grid")
        yield text(left - 7, y + 4, f"{v:g} ×", "dim", "end")
    yield line(left, TOP + PLOT, left + PANEL, TOP + PLOT, "axis")
    yield line(left, TOP, left, TOP + PLOT, "axis")
    yield text(left + PANEL / 2, HEIGHT - 24, f"{way}, GB of model a second and core", "ink", "middle")
    if first:
        yield text(left - 44, TOP - 14, "size, times the entropy bound", "ink")
    for i, (name, v) in enumerate(sorted(marks, key=lambda m: m[1])):
        x, y, last = xs.place(v), TOP + 16, i == len(marks) - 1
        width = CHAR * len(name)
        taken += [Box(x + 5 if last else x - 5 - width, y - LINE + 4, width, LINE), Box(x - 2, TOP, 4, PLOT)]
        yield line(x, TOP, x, TOP + PLOT, "mark", "4 3")
        yield text(x + 5 if last else x - 5, y, name, "markink", "start" if last else "end")
    for p in points:
        cls, r = ("ours", 6) if p.ours else ("dot", 4)
        yield f'<circle cx="{xs.place(p.speed):.1f}" cy="{ys.place(p.size):.1f}" r="{r}" class="{cls}"/>'
    yield from labels(points, xs, ys, frame, taken)


def draw(title: str, panels: List[Tuple[str, List[Point], List[Tuple[str, float]]]]) -> str:
    sizes = [p.size for _, points, _ in panels for p in points]
    top = max(sizes) * 1.25
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
           f'role="img" aria-label="{escape(title)}">', f"<style>{STYLE}</style>",
           f'<rect width="{WIDTH}" height="{HEIGHT}" class="back"/>',
           text(18, 28, title + "; lower and further right is better", "ink")]
    for i, (way, points, marks) in enumerate(panels):
        speeds = [p.speed for p in points] + [v for _, v in marks]
        limits = (min(speeds) / 1.6, max(speeds) * 9)  # room for names on the right
        out += panel(LEFT + i * (PANEL + GAP), way, points, marks, limits, top, i == 0)
    out.append("</svg>")
    return "\n".join(out) + "\n"

"""A second reader of messages: slow, obvious, from proto/messages.def and proto/MESSAGES.md alone.

    messages_ref.py TABLE < LINES        each line: frame in hexadecimal, a blank, what it must read as
    messages_ref.py TABLE --page PAGE    every message has a comment in the table or a line in the page
"""
import re
import sys
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

ROW = re.compile(r"GW_(RECORD|MESSAGE|END|U8|U16|U32|U64|I64|FLAG|FIXED|BYTES|TEXT|LIST)\(([^)]*)\)")
UNSIGNED = {"U8": 8, "U16": 16, "U32": 32, "U64": 64}


class Refused(Exception):
    pass


@dataclass
class Field:
    name: str
    kind: str
    limit: int = 0
    record: str = ""


@dataclass
class Shape:
    name: str
    fields: List[Field]
    comment: bool


def read_table(text: str) -> Tuple[Dict[str, Shape], Dict[int, Shape]]:
    records: Dict[str, Shape] = {}
    messages: Dict[int, Shape] = {}
    fields: List[Field] = []
    commented = False  # a comment speaks for the rows behind it, to the end of its section
    body = text[text.index("*/") + 2 :]  # the head of the file explains the macros
    for piece in re.finditer(r"/\*.*?\*/|" + ROW.pattern, body, re.S):
        if piece.group().startswith("/*"):
            commented = not piece.group().startswith("/* ---")
            continue
        kind, args = piece.group(1), [a.strip() for a in piece.group(2).split(",")]
        if kind in ("RECORD", "MESSAGE"):
            fields = []
            shape = Shape(args[-1], fields, commented)
            if kind == "RECORD":
                records[args[0]] = shape
            else:
                number = int(args[0])
                if number in messages or not 0 < number < 256:
                    sys.exit(f"number {number} occurs twice or is out of range")
                messages[number] = shape
        elif kind == "LIST":
            fields.append(Field(args[1], kind, int(args[3]), args[2]))
        elif kind != "END":
            fields.append(Field(args[1], kind, int(args[2]) if len(args) > 2 else 0))
    return records, messages


def unpack(b: bytes, at: int) -> Tuple[Any, int]:
    """One msgpack value and where the next begins."""

    def take(n: int) -> bytes:
        if at + 1 + n > len(b):
            raise Refused("truncated")
        return b[at + 1 : at + 1 + n]

    def body(width: int) -> Tuple[bytes, int]:
        n = int.from_bytes(take(width), "big")
        take(width + n)
        return b[at + 1 + width : at + 1 + width + n], at + 1 + width + n

    def array(count: int, start: int) -> Tuple[List[Any], int]:
        out = []
        for _ in range(count):
            value, start = unpack(b, start)
            out.append(value)
        return out, start

    if at >= len(b):
        raise Refused("truncated")
    t = b[at]
    if t <= 0x7F:
        return t, at + 1
    if t >= 0xE0:
        return t - 256, at + 1
    if 0xA0 <= t <= 0xBF:
        n = t & 31
        return take(n).decode("utf-8"), at + 1 + n
    if 0x90 <= t <= 0x9F:
        return array(t & 15, at + 1)
    if t in (0xC2, 0xC3):
        return t == 0xC3, at + 1
    if t in (0xC4, 0xC5, 0xC6):
        return body(1 << (t - 0xC4))
    if t in (0xD9, 0xDA, 0xDB):
        raw, end = body(1 << (t - 0xD9))
        return raw.decode("utf-8"), end
    if 0xCC <= t <= 0xCF or 0xD0 <= t <= 0xD3:
        width = 1 << (t & 3)
        return int.from_bytes(take(width), "big", signed=t >= 0xD0), at + 1 + width
    if t in (0xDC, 0xDD):
        width = 2 << (t - 0xDC)
        return array(int.from_bytes(take(width), "big"), at + 1 + width)
    raise Refused(f"type {t:#x}")


def field_text(f: Field, value: Optional[Any], records: Dict[str, Shape]) -> str:
    """value: None where the frame ended before this field."""
    if f.kind in UNSIGNED or f.kind == "I64":
        low, high = (-(1 << 63), (1 << 63) - 1) if f.kind == "I64" else (0, (1 << UNSIGNED[f.kind]) - 1)
        value = 0 if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise Refused(f.name)
        return str(value)
    if f.kind == "FLAG":
        if value is not None and not isinstance(value, bool):
            raise Refused(f.name)
        return str(int(bool(value)))
    if f.kind == "FIXED":
        value = bytes(f.limit) if value is None else value
        if not isinstance(value, bytes) or len(value) != f.limit:
            raise Refused(f.name)
        return value.hex()
    if f.kind in ("BYTES", "TEXT"):
        wanted = bytes if f.kind == "BYTES" else str
        value = wanted() if value is None else value
        if not isinstance(value, wanted):
            raise Refused(f.name)
        raw = value if isinstance(value, bytes) else value.encode("utf-8")
        if len(raw) > f.limit or (f.kind == "TEXT" and 0 in raw):
            raise Refused(f.name)
        return raw.hex()
    value = [] if value is None else value
    if not isinstance(value, list) or len(value) > f.limit:
        raise Refused(f.name)
    return "[" + ",".join(shape_text(records[f.record], entry, records) for entry in value) + "]"


def shape_text(shape: Shape, values: Any, records: Dict[str, Shape]) -> str:
    if not isinstance(values, list):
        raise Refused(shape.name)
    parts = []
    for i, f in enumerate(shape.fields):
        parts.append(f"{f.name}=" + field_text(f, values[i] if i < len(values) else None, records))
    return shape.name + "{" + ",".join(parts) + "}"


def read_frame(frame: bytes, records: Dict[str, Shape], messages: Dict[int, Shape]) -> str:
    value, end = unpack(frame, 0)
    if end != len(frame) or not isinstance(value, list) or not value or value[0] not in messages:
        raise Refused("frame")
    return shape_text(messages[value[0]], value[1:], records)


def check_page(messages: Dict[int, Shape], page: str) -> int:
    silent = [m.name for m in messages.values() if not m.comment and f"`{m.name}`" not in page]
    for name in silent:
        print(f"message {name}: no comment above it in the table and no line in the page")
    return 1 if silent else 0


def main() -> int:
    records, messages = read_table(open(sys.argv[1], encoding="utf-8").read())
    if len(sys.argv) > 3 and sys.argv[2] == "--page":
        return check_page(messages, open(sys.argv[3], encoding="utf-8").read())
    seen = set()
    for line in sys.stdin:
        frame, _, expected = line.rstrip("\n").partition(" ")
        got = read_frame(bytes.fromhex(frame), records, messages)
        if got != expected:
            print(f"frame {frame[:80]}…\n  the C reader: {expected[:400]}\n  this reader:  {got[:400]}")
            return 1
        seen.add(got.partition("{")[0])
    missing = {m.name for m in messages.values()} - seen
    if missing:
        print("no frame was given for", *sorted(missing))
        return 1
    print(f"{len(seen)} messages read alike")
    return 0


if __name__ == "__main__":
    sys.exit(main())

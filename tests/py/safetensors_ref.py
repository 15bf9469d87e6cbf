"""A second safetensors reader: slow, obvious, written from the format's page and weights/safetensors.h alone.

listing(data) gives the lines that tests/probe/safetensors prints, or raises Refused. Run as a program it lists files.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

BITS: dict[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
    "U64": 64, "F4": 4,
}
HEADER_MAX = 100_000_000
TENSORS_MAX = 1 << 20
NAME_MAX = 4096
RANK_MAX = 32
U64 = 1 << 64


class Refused(Exception):
    """The file is not what it should be."""


class Tensor(NamedTuple):
    name: str
    dtype: str
    shape: list[int]
    begin: int
    end: int


def require(condition: bool, what: str) -> None:
    if not condition:
        raise Refused(what)


def pairs_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    require(len({key for key, _ in pairs}) == len(pairs), "a key occurs twice")
    return dict(pairs)


def plain_int(text: str) -> int:
    require(not text.startswith("-"), "a negative number")
    value = int(text)
    require(value < U64, "a number is too large")
    return value


def refuse_number(text: str) -> Any:
    raise Refused(f"not a whole number: {text}")


def parse_json(text: str) -> Any:
    decoder = json.JSONDecoder(
        object_pairs_hook=pairs_once, parse_int=plain_int, parse_float=refuse_number, parse_constant=refuse_number
    )
    try:
        value, end = decoder.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise Refused(str(error)) from error
    require(text[end:].strip(" ") == "", "only spaces may follow")
    return value


def check_text(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Refused("a lone surrogate") from error
    return text


def check_name(name: str) -> None:
    require(len(check_text(name).encode()) <= NAME_MAX, "a name is too long")
    require(not re.search("[\x00-\x1f\x7f-\x9f]", name), "a control character in a name")


def tensor_of(name: str, fields: Any) -> Tensor:
    check_name(name)
    require(isinstance(fields, dict) and set(fields) == {"dtype", "shape", "data_offsets"}, "other fields")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    require(isinstance(dtype, str) and dtype in BITS, "unknown dtype")
    require(isinstance(shape, list) and all(type(size) is int for size in shape), "shape is no list of numbers")
    require(len(shape) <= RANK_MAX, "too many dimensions")
    require(isinstance(offsets, list) and len(offsets) == 2, "data_offsets are not two")
    require(all(type(at) is int for at in offsets) and offsets[0] <= offsets[1], "odd data_offsets")
    bits = 1
    for size in [*shape, BITS[dtype]]:
        bits *= size
        require(bits < U64, "the size overflows")
    require(bits % 8 == 0 and bits // 8 == offsets[1] - offsets[0], "the size does not agree")
    return Tensor(name, dtype, shape, offsets[0], offsets[1])


def metadata_of(header: dict[str, Any]) -> dict[str, str]:
    metadata = header.pop("__metadata__", {})
    require(isinstance(metadata, dict), "metadata is no object")
    for key, value in metadata.items():
        check_text(key)
        require(isinstance(value, str), "metadata that is no text")
        check_text(value)
    return metadata


def read(data: bytes) -> tuple[list[Tensor], dict[str, str]]:
    """The tensors in data order, and the metadata."""
    require(len(data) >= 8, "no length")
    size = int.from_bytes(data[:8], "little")
    require(size <= HEADER_MAX and 8 + size <= len(data), "the length is wrong")
    raw = data[8 : 8 + size]
    require(raw[:1] == b"{", "does not begin with {")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("not UTF-8") from error
    header = parse_json(text)
    metadata = metadata_of(header)
    require(len(header) <= TENSORS_MAX, "too many tensors")
    # Sorting is stable: empty tensors at one place keep the header's order.
    tensors = sorted((tensor_of(name, fields) for name, fields in header.items()), key=lambda t: (t.begin, t.end))
    at = 0
    for tensor in tensors:
        require(tensor.begin == at, "a hole or an overlap")
        at = tensor.end
    require(8 + size + at == len(data), "the data's length is wrong")
    return tensors, metadata


def hexed(text: str) -> str:
    return text.encode().hex() or "-"


def listing(data: bytes) -> list[str]:
    tensors, metadata = read(data)
    lines = [f"metadata {hexed(key)} {hexed(value)}" for key, value in metadata.items()]
    for t in tensors:
        shape = "[" + ",".join(map(str, t.shape)) + "]"
        lines.append(f"tensor {hexed(t.name)} {t.dtype} {shape} {t.begin} {t.end}")
    return lines


def main() -> None:
    for name in sys.argv[1:]:
        print(f"file {name}")
        print("\n".join(listing(Path(name).read_bytes())))


if __name__ == "__main__":
    main()

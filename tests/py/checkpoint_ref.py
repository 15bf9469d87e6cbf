"""A second reader of checkpoint folders, written from weights/checkpoint.h: what is served, carried, and travels along.

listing(folder) gives the lines that tests/probe/checkpoint prints, or raises Refused.
"""

from __future__ import annotations

import json
from pathlib import Path

from safetensors_ref import Refused, Tensor, pairs_once, read, require

INDEX = "model.safetensors.index.json"
OTHER_MAX = 64 << 20


def index_of(folder: Path) -> dict[str, str] | None:
    path = folder / INDEX
    if not path.exists():
        return None
    try:
        index = json.loads(path.read_text("utf-8"), object_pairs_hook=pairs_once)
    except ValueError as error:
        raise Refused(str(error)) from error
    require(isinstance(index, dict) and isinstance(index.get("weight_map"), dict), "no weight_map")
    weight_map: dict[str, str] = index["weight_map"]
    for file in weight_map.values():
        require(isinstance(file, str) and file not in ("", ".", "..") and "/" not in file, "no plain name")
    return weight_map


def files_of(folder: Path) -> list[Path]:
    files = sorted(folder.iterdir(), key=lambda path: path.name.encode())
    for path in files:
        require(path.is_file() and not path.is_symlink(), f"{path} is no plain file")
    return files


def line(what: str, tensor: Tensor, shard: str, header_bytes: int) -> str:
    shape = "[" + ",".join(map(str, tensor.shape)) + "]"
    at = header_bytes + tensor.begin
    return f"{what} {tensor.name} {tensor.dtype} {shape} {shard} {at} {tensor.end - tensor.begin}"


def listing(folder: Path) -> list[str]:
    weight_map = index_of(folder)
    served: dict[str, str] = {}
    carried: list[str] = []
    others: list[str] = []
    for path in files_of(folder):
        if path.suffix != ".safetensors" and path.name not in (weight_map or {}).values():
            require(path.stat().st_size <= OTHER_MAX, f"{path} is too large")
            others.append(f"other {path.name} {path.stat().st_size}")
            continue
        data = path.read_bytes()
        header_bytes = 8 + int.from_bytes(data[:8], "little")
        for tensor in read(data)[0]:
            if weight_map is None or weight_map.get(tensor.name) == path.name:
                require(tensor.name not in served, f"{tensor.name} is there twice")
                served[tensor.name] = line("tensor", tensor, path.name, header_bytes)
            else:
                carried.append(line("carried", tensor, path.name, header_bytes))
    require(weight_map is None or set(weight_map) == set(served), "a tensor is not where the index puts it")
    return [served[name] for name in sorted(served, key=str.encode)] + carried + others

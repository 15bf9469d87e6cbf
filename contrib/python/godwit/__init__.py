"""The engine's side of Godwit, over libgodwit.so (ctypes). See contrib/python/README and godwit.h."""

from __future__ import annotations

import ctypes as c
import enum
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Engine", "Event", "GodwitError", "Kind", "Opaque", "Segment", "UNKNOWN"]

UNKNOWN = 2**64 - 1
"""A version that is not known."""

# Storage of safetensors dtypes that numpy lacks is shown as unsigned integers of the same width.
_NUMPY: dict[str, str] = {
    "BOOL": "u1", "U8": "u1", "I8": "i1", "F8_E5M2": "u1", "F8_E4M3": "u1", "F8_E8M0": "u1", "F8_E4M3FNUZ": "u1",
    "F8_E5M2FNUZ": "u1", "I16": "<i2", "U16": "<u2", "F16": "<f2", "BF16": "<u2", "I32": "<i4", "U32": "<u4",
    "F32": "<f4", "C64": "<c8", "F64": "<f8", "I64": "<i8", "U64": "<u8", "F4": "u1",
}


class Kind(enum.IntEnum):
    """What the daemon wants, or has done."""

    PAUSE = 1
    RESUME = 2
    LOST = 3
    ATTACHED = 4
    REFUSED = 5
    POISONED = 6


class Opaque(enum.IntEnum):
    """Why a tensor cannot be patched in place."""

    VALUES_CHANGE = 1
    UNKNOWN_OPERATION = 2
    MOVES = 3
    UNUSED = 4


class GodwitError(Exception):
    """A call of libgodwit failed; `code` is its error number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Event:
    """One of Engine.events()."""

    kind: Kind
    version: int
    run: bytes
    error: int
    text: str


class _Info(c.Structure):
    _fields_ = [
        ("size", c.c_size_t), ("engine", c.c_char_p), ("engine_version", c.c_char_p), ("quantisation", c.c_char_p),
        ("device", c.c_char_p), ("rank", c.c_uint32), ("ranks", c.c_uint32), ("in_process", c.c_int),
        ("instance", c.c_uint8 * 16), ("run", c.c_uint8 * 16), ("version", c.c_uint64),
    ]


class _Window(c.Structure):
    _fields_ = [("segment", c.c_uint32)] + [
        (name, c.c_uint64)
        for name in ("base", "row_pitch", "col_pitch", "rows", "cols", "row0", "col0", "tensor_cols")
    ]


class _Event(c.Structure):
    _fields_ = [("kind", c.c_int), ("err", c.c_int), ("version", c.c_uint64), ("run", c.c_uint8 * 16),
                ("text", c.c_char * 512)]


def _load() -> c.CDLL:
    lib = c.CDLL(os.environ.get("GODWIT_LIBRARY", "libgodwit.so.0"))
    handle, u32, u64 = c.c_void_p, c.c_uint32, c.c_uint64
    calls: dict[str, tuple[Any, list[Any]]] = {
        "new": (c.c_int, [c.POINTER(handle), c.c_char_p, c.POINTER(_Info)]),
        "free": (None, [handle]),
        "add_segment": (c.c_int, [handle, u64, c.POINTER(c.c_void_p), c.POINTER(u32)]),
        "take_segment": (c.c_int, [handle, c.c_int, u64, c.POINTER(c.c_void_p), c.POINTER(u32)]),
        "add_tensor": (c.c_int, [handle, c.c_char_p, c.c_char_p, c.c_uint, c.POINTER(u64), c.POINTER(u32)]),
        "add_window": (c.c_int, [handle, u32, c.POINTER(_Window)]),
        "add_whole": (c.c_int, [handle, u32, u32, u64]),
        "add_opaque": (c.c_int, [handle, c.c_char_p, c.c_int]),
        "attach": (c.c_int, [handle, c.c_int]),
        "next": (c.c_int, [handle, c.POINTER(_Event), c.c_int]),
        "fd": (c.c_int, [handle]),
        "paused": (c.c_int, [handle]),
        "resumed": (c.c_int, [handle]),
        "version": (u64, [handle]),
        "error": (c.c_char_p, [handle]),
    }
    for name, (result, arguments) in calls.items():
        function = getattr(lib, f"godwit_engine_{name}")
        function.restype, function.argtypes = result, arguments
    lib.godwit_strerror.restype, lib.godwit_strerror.argtypes = c.c_char_p, [c.c_int]
    return lib


class Segment:
    """Memory that the daemon can write. `bytes` is it, as a numpy array; it must not be used after the engine's close."""

    def __init__(self, number: int, memory: int, size: int) -> None:
        self.number = number
        self.bytes: npt.NDArray[np.uint8] = np.ctypeslib.as_array((c.c_uint8 * size).from_address(memory))


class Engine:
    """One rank of an inference engine."""

    def __init__(self, socket_path: str, *, name: str = "python", name_version: str = "", quantisation: str = "",
                 rank: int = 0, ranks: int = 1, instance: bytes = bytes(16), in_process: bool = False,
                 run: bytes = bytes(16), version: int = UNKNOWN) -> None:
        self._lib = _load()
        self._handle = c.c_void_p()
        info = _Info(size=c.sizeof(_Info), engine=name.encode(), engine_version=name_version.encode(),
                     quantisation=quantisation.encode(), rank=rank, ranks=ranks, in_process=in_process, version=version)
        info.instance[:] = instance
        info.run[:] = run
        err = self._lib.godwit_engine_new(c.byref(self._handle), os.fsencode(socket_path), c.byref(info))
        if err:
            raise GodwitError(err, self._lib.godwit_strerror(err).decode())

    def _check(self, result: int) -> int:
        if result < 0:
            text = self._lib.godwit_engine_error(self._handle).decode(errors="replace")
            raise GodwitError(result, text or self._lib.godwit_strerror(result).decode())
        return result

    def close(self) -> None:
        """Detaches and unmaps the segments: arrays over them are dead."""
        if self._handle:
            self._lib.godwit_engine_free(self._handle)
            self._handle = c.c_void_p()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    # --- declaring ---

    def segment(self, size: int, fd: int | None = None) -> Segment:
        """A new segment of zeros, or (fd) a memfd of the caller's own, whose size gets sealed."""
        memory, number = c.c_void_p(), c.c_uint32()
        if fd is None:
            self._check(self._lib.godwit_engine_add_segment(self._handle, size, c.byref(memory), c.byref(number)))
        else:
            self._check(self._lib.godwit_engine_take_segment(self._handle, fd, size, c.byref(memory), c.byref(number)))
        return Segment(number.value, int(memory.value or 0), size)

    def _tensor(self, name: str, dtype: str, shape: Sequence[int]) -> int:
        number = c.c_uint32()
        sizes = (c.c_uint64 * max(len(shape), 1))(*shape)
        self._check(self._lib.godwit_engine_add_tensor(self._handle, name.encode(), dtype.encode(), len(shape), sizes,
                                                       c.byref(number)))
        return number.value

    def array(self, dtype: str, shape: Sequence[int], segment: Segment, offset: int) -> npt.NDArray[Any]:
        """That part of the segment in C order, as numpy sees the dtype's storage."""
        kind = np.dtype(_NUMPY[dtype])
        if dtype == "F4":
            shape = [*shape[:-1], shape[-1] // 2]
        count = int(np.prod(shape, dtype=np.uint64)) if len(shape) else 1
        return segment.bytes[offset:offset + count * kind.itemsize].view(kind).reshape(shape)

    def tensor(self, name: str, dtype: str, shape: Sequence[int], segment: Segment, offset: int) -> npt.NDArray[Any]:
        """A whole tensor in C order at that byte of the segment; the array to load it into and compute with."""
        self._check(self._lib.godwit_engine_add_whole(self._handle, self._tensor(name, dtype, shape), segment.number,
                                                      offset))
        return self.array(dtype, shape, segment, offset)

    def tensor_slice(self, name: str, dtype: str, shape: Sequence[int], segment: Segment, offset: int, axis: int,
                     start: int, stop: int) -> npt.NDArray[Any]:
        """The slice [start, stop) of one axis, packed in C order. `shape` is the whole tensor's."""
        if dtype == "F4":
            raise ValueError("F4 tensors are mapped whole, or by window() in bytes")
        width = np.dtype(_NUMPY[dtype]).itemsize
        rows = int(np.prod(shape[:axis], dtype=np.uint64))
        inner = int(np.prod(shape[axis + 1:], dtype=np.uint64))
        cols = (stop - start) * inner
        self.window(self._tensor(name, dtype, shape), segment, base=offset, row_pitch=cols * width, col_pitch=width,
                    rows=rows, cols=cols, row0=0, col0=start * inner, tensor_cols=shape[axis] * inner)
        return self.array(dtype, [*shape[:axis], stop - start, *shape[axis + 1:]], segment, offset)

    def declare(self, name: str, dtype: str, shape: Sequence[int]) -> int:
        """A tensor whose windows follow, by window(); its number."""
        return self._tensor(name, dtype, shape)

    def window(self, tensor: int, segment: Segment, *, base: int, row_pitch: int, col_pitch: int, rows: int, cols: int,
               row0: int, col0: int, tensor_cols: int) -> None:
        """A rectangle of a tensor; godwit.h says what the numbers mean."""
        w = _Window(segment.number, base, row_pitch, col_pitch, rows, cols, row0, col0, tensor_cols)
        self._check(self._lib.godwit_engine_add_window(self._handle, tensor, c.byref(w)))

    def opaque(self, name: str, why: Opaque) -> None:
        """A checkpoint tensor that cannot be patched in place, or is not used."""
        self._check(self._lib.godwit_engine_add_opaque(self._handle, name.encode(), int(why)))

    # --- running ---

    def attach(self, timeout: float | None = None) -> int:
        """Waits until a daemon has proven the weights; the version that they are."""
        self._check(self._lib.godwit_engine_attach(self._handle, -1 if timeout is None else int(timeout * 1000)))
        return self.version

    def events(self, timeout: float | None = 0) -> Iterator[Event]:
        """What there is now; waits up to `timeout` for the first (None: until one comes)."""
        raw, wait = _Event(), -1 if timeout is None else int(timeout * 1000)
        while self._check(self._lib.godwit_engine_next(self._handle, c.byref(raw), wait)):
            yield Event(Kind(raw.kind), raw.version, bytes(raw.run), raw.err, raw.text.decode(errors="replace"))
            wait = 0

    def fileno(self) -> int:
        """Readable when events() has something; for select and event loops."""
        return int(self._lib.godwit_engine_fd(self._handle))

    def paused(self) -> None:
        """After PAUSE: nothing computes with the weights any more."""
        self._check(self._lib.godwit_engine_paused(self._handle))

    def resumed(self) -> None:
        """After RESUME."""
        self._check(self._lib.godwit_engine_resumed(self._handle))

    @property
    def version(self) -> int:
        """What the weights are; UNKNOWN before the first attach, inside a pause and while poisoned."""
        return int(self._lib.godwit_engine_version(self._handle))

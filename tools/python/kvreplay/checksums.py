"""Checksums of traces, by the rule of docs/trace-format.md: for programs that write traces with h5py."""

from __future__ import annotations

import hashlib

import h5py
import numpy

VECTORS = ("key", "value", "query", "query_ahead", "attention_input")
TYPES = {"u1": "8-bit unsigned integer", "u2": "16-bit unsigned integer", "i4": "32-bit integer",
         "u4": "32-bit unsigned integer", "i8": "64-bit integer", "u8": "64-bit unsigned integer",
         "f2": "16-bit float", "f4": "32-bit float", "f8": "64-bit float"}


def vectors_sha256(data: h5py.Dataset) -> str:
    """Of the checksums of its heads; of its rows, where it has none."""
    whole = hashlib.sha256()
    for head in (data if data.ndim == 3 else [data]):
        whole.update(hashlib.sha256(numpy.ascontiguousarray(head[...]).tobytes()).hexdigest().encode())
    return whole.hexdigest()


def _attribute(name: str, value) -> bytes:
    if isinstance(value, (str, bytes)):
        content = value.encode() if isinstance(value, str) else value
        kind, count = "text", len(content)
    else:
        array = numpy.atleast_1d(numpy.asarray(value))
        kind = "reals" if array.dtype.kind == "f" else "integers"
        array = array.astype("<f8" if kind == "reals" else "<i8")
        content, count = array.tobytes(), array.size
    return f"attribute {name} {kind} {count}\n".encode() + content + b"\n"


def content_sha256(file: h5py.File) -> str:
    """Of everything in the file but vectors and this checksum itself."""
    objects = {"/": file}
    file.visititems(lambda name, item: objects.update({f"/{name}": item}))
    digest = hashlib.sha256()
    for path in sorted(objects, key=str.encode):
        item = objects[path]
        if isinstance(item, h5py.Dataset):
            kind = TYPES[f"{item.dtype.kind}{item.dtype.itemsize}"]
            digest.update(" ".join(["data", path, kind, *map(str, item.shape)]).encode() + b"\n")
            if not (path.startswith("/layer/") and path.rpartition("/")[2] in VECTORS):
                digest.update(numpy.ascontiguousarray(item[...]).tobytes() + b"\n")
        else:
            digest.update(f"group {path}\n".encode())
        for name in sorted(item.attrs, key=str.encode):
            if (path, name) != ("/", "content_sha256"):
                digest.update(_attribute(name, item.attrs[name]))
    return digest.hexdigest()


def write_checksums(file: h5py.File) -> None:
    """The last step of writing a trace."""
    for layer in file["layer"].values():
        for name in VECTORS:
            if name in layer:
                layer[name].attrs["sha256"] = numpy.bytes_(vectors_sha256(layer[name]))
    file.attrs["content_sha256"] = numpy.bytes_(content_sha256(file))

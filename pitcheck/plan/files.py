"""Plan files: readable JSON (``.plan.json``), and MessagePack in a zstd frame (``.plan.zst``).

Both hold the same structs. Reading is bounded and never runs code. Every fault of a file is a
PlanError that names the place.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from pitcheck.base.formats import known_content
from pitcheck.base.nearest import shown
from pitcheck.base.struct_faults import with_allowed
from pitcheck.errors import PlanError, UsageError
from pitcheck.plan.collector import collector_off
from pitcheck.plan.model import FORMAT, Attribute, Number, Plan, Table
from pitcheck.plan.rules.size_rules import mesh_violations

MOST_UNTYPED = 1 << 24
"""The bytes up to which a file with a fault is read once more, for a message that fits better."""
JSON_SUFFIX = ".plan.json"
ZSTD_SUFFIX = ".plan.zst"
ZSTD_HEADER = b"\x28\xb5\x2f\xfd"
"""The first bytes of a zstd frame (RFC 8878)."""
SIZE_LIMIT = 1 << 30
_LOOKED_AT = 1000
_ANY_PLAN = "pitcheck.plan/"
_THINGS_LIMIT = 1 << 24
_ZSTD_LEVEL = 9
# zstd expands at most 2^15-fold, so that one piece adds at most 32 MiB before the limit is looked
# at again.
_PIECE = 1 << 10
_AT = re.compile(r" - at `\$\.?(.*?)`$")
_BYTE = re.compile(r" \(byte (\d+)\)$")


class _Header(msgspec.Struct):
    """The part of a file that names its format."""

    format: str = ""


def read_plan(path: str | os.PathLike[str], limit: int = SIZE_LIMIT) -> Plan:
    """Read a plan file, chosen by its suffix: ``.plan.json`` or ``.plan.zst``.

    ``limit`` bounds the (decompressed) size in bytes. The plan is well-formed, not yet valid: see
    :func:`pitcheck.plan.validate.validate`.

    Raises:
        UsageError: if the suffix is another one, or the file cannot be opened.
        PlanError: if it is not a plan of format ``pitcheck.plan/1``, with the place in the file.
    """
    file = Path(path)
    compressed = _is_compressed(file)
    data = _load(file, limit)
    if compressed:
        data = _decompress(data, limit, file)
    with collector_off():
        return decode_plan(data, str(file), "msgpack" if compressed else "json")


def decode_plan(data: bytes, origin: str = "plan", encoding: str = "json") -> Plan:
    """Return the plan in ``data``, "json" or "msgpack" (not compressed).

    ``origin`` names it in messages.

    Raises:
        PlanError: if the data is not a plan.
    """
    decode: Any = msgspec.json.decode if encoding == "json" else msgspec.msgpack.decode
    header: _Header = _guard(lambda: decode(data, type=_Header), data, origin)
    if header.format != FORMAT:
        known = known_content(data) if encoding == "json" else ""
        if known and not header.format.startswith(_ANY_PLAN):
            raise PlanError(f"this is {known}; a plan is expected (in {origin})", "format")
        said = (
            f"the format is {shown(header.format)}"
            if header.format
            else "the file does not name its format"
        )
        raise PlanError(f"{said}; this version reads {FORMAT!r} (in {origin})", "format")
    plan: Plan = _guard(lambda: decode(data, type=Plan), data, origin)
    if encoding == "json":
        _refuse_duplicate_keys(data, origin)
    _refuse_oversize(plan, origin)
    return plan


def write_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write a plan file, chosen by its suffix.

    The file appears whole or not at all. Equal plans give equal bytes.

    Raises:
        UsageError: if the suffix is another one, or the file cannot be written.
        PlanError: if the format cannot hold a value (a NaN or infinite attribute).
    """
    file = Path(path)
    if _is_compressed(file):
        import zstandard  # noqa: PLC0415  JSON needs no codec

        _refuse_special_floats(plan)
        with _writable(file):
            packed = msgspec.msgpack.encode(plan, order="deterministic")
        data = zstandard.ZstdCompressor(
            level=_ZSTD_LEVEL, write_checksum=True, write_content_size=True
        ).compress(packed)
    else:
        with _writable(file):
            data = encode_json(plan)
    _replace(file, data)


def well_formed(plan: Plan, origin: str) -> Plan:
    """Return the plan as it would be read from a file, which the types of its fields promise.

    ``origin`` names it in messages.

    Raises:
        PlanError: if no plan file holds a value, as :func:`read_plan` and :func:`write_plan` do.
    """
    with _writable(Path(origin)):
        packed = msgspec.msgpack.encode(plan)
    read = decode_plan(packed, origin, "msgpack")
    _refuse_special_floats(read)
    return read


def encode_json(plan: Plan) -> bytes:
    """Return the plan as JSON, a line for each tensor, operator and so on, with a final newline.

    Raises:
        PlanError: if an attribute is NaN or infinite.
    """
    _refuse_special_floats(plan)
    encode = msgspec.json.Encoder(order="deterministic").encode
    fields = {
        name: getattr(plan, name)
        for name in ("format", *(f for f in plan.__struct_fields__ if f != "format"))
        if getattr(plan, name) is not msgspec.UNSET
    }
    parts: list[bytes] = []
    for name, value in fields.items():
        if isinstance(value, tuple) and value:
            body = b"[\n  " + b",\n  ".join(encode(entry) for entry in value) + b"\n ]"
        elif isinstance(value, dict) and value:
            body = (
                b"{\n  "
                + b",\n  ".join(
                    encode(key) + b":" + encode(entry) for key, entry in sorted(value.items())
                )
                + b"\n }"
            )
        else:
            body = encode(value)
        parts.append(b" " + encode(name) + b": " + body)
    return b"{\n" + b",\n".join(parts) + b"\n}\n"


def _is_compressed(file: Path) -> bool:
    if file.name.endswith(JSON_SUFFIX):
        return False
    if file.name.endswith(ZSTD_SUFFIX):
        return True
    raise UsageError(f"{file}: a plan file ends in {JSON_SUFFIX} or {ZSTD_SUFFIX}")


def _load(file: Path, limit: int) -> bytes:
    try:
        with file.open("rb") as stream:
            data = stream.read(limit + 1)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror or error}") from None
    if len(data) > limit:
        raise PlanError(
            f"the file is larger than the limit of {limit} bytes (in {file})", f"byte {limit}"
        )
    if not data:
        raise PlanError(f"the file is empty; write the plan anew (in {file})", "byte 0")
    return data


def _decompress(data: bytes, limit: int, file: Path) -> bytes:
    """Return the content of the one zstd frame in ``data``.

    Never more than ``limit`` bytes and one piece are held.
    """
    import zstandard  # noqa: PLC0415  JSON needs no codec

    if data.lstrip().startswith(b"{"):
        raise PlanError(
            f"this is JSON and no zstd frame: let its name end in {JSON_SUFFIX} (in {file})",
            "byte 0",
        )
    frame = zstandard.ZstdDecompressor().decompressobj()
    pieces: list[bytes] = []
    size = position = 0
    while position < len(data) and not frame.eof:
        try:
            piece = frame.decompress(data[position : position + _PIECE])
        except zstandard.ZstdError as error:
            raise PlanError(
                f"the zstd frame is damaged: {error}; copy or write it anew (in {file})",
                f"byte {position}",
            ) from None
        position += _PIECE
        size += len(piece)
        if size > limit:
            raise PlanError(
                f"the content is larger than the limit of {limit} bytes (in {file})",
                f"byte {min(position, len(data))}",
            )
        pieces.append(piece)
    if not frame.eof:
        raise PlanError(
            f"the zstd frame is truncated; copy or write it anew (in {file})", f"byte {len(data)}"
        )
    rest = len(frame.unused_data) + max(0, len(data) - position)
    if rest:
        raise PlanError(
            f"{rest} bytes follow the zstd frame (in {file})", f"byte {len(data) - rest}"
        )
    return b"".join(pieces)


def _guard(decode: Callable[[], Any], data: bytes, origin: str) -> Any:
    """Run a decoder and turn its errors into a PlanError with a place."""
    try:
        return decode()
    except msgspec.DecodeError as error:
        _raise_decode_error(str(error), data, origin)
    except RecursionError:
        raise PlanError(f"values are nested too deeply (in {origin})", "file") from None
    except (ValueError, OverflowError) as error:
        raise PlanError(f"a value cannot be read: {error} (in {origin})", "file") from None


def _untyped(data: bytes) -> object:
    """Return what a text of moderate length has as plain data, for messages; else None."""
    if len(data) <= MOST_UNTYPED:
        with suppress(msgspec.DecodeError, ValueError, RecursionError):
            return msgspec.json.decode(data)
    return None


def _raise_decode_error(text: str, data: bytes, origin: str) -> NoReturn:
    at = _AT.search(text)
    if at:
        said = with_allowed(text[: at.start()], at.group(1), Plan, _untyped(data))
        raise PlanError(f"{said} (in {origin})", at.group(1) or "file") from None
    byte = _BYTE.search(text)
    if not byte:
        place = f"byte {len(data)}" if "truncated" in text else "file"
        raise PlanError(f"{with_allowed(text, '', Plan)} (in {origin})", place) from None
    position = int(byte.group(1))
    if data[position : position + 3] in (b"NaN", b"Inf"):
        text = (
            "NaN and Infinity are not JSON; write a literal operand as the string 'nan', 'inf' "
            "or '-inf'"
        )
    else:
        text = text[: byte.start()] + _no_json(data)
    raise PlanError(f"{text} (in {origin})", f"byte {position}") from None


def _no_json(data: bytes) -> str:
    """Return what data is that is no JSON at all, and what to do; "" if it could be JSON."""
    if data.startswith(ZSTD_HEADER):
        return f"; this is a zstd frame: let its name end in {ZSTD_SUFFIX}"
    try:
        binary = "\0" in data[:_LOOKED_AT].decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        binary = error.start < _LOOKED_AT - 4
    return "; this is a binary file and no JSON: name a plan file" if binary else ""


class _Duplicate:
    """A JSON object in which ``key`` occurs twice."""

    def __init__(self, key: str) -> None:
        self.key = key


def _refuse_duplicate_keys(data: bytes, origin: str) -> None:
    """Raise PlanError if an object has a key twice.

    Decoders keep the last of two equal keys. A file with two says two things, and neither is to be
    trusted.
    """
    found = False

    def build(pairs: list[tuple[str, Any]]) -> Any:
        nonlocal found
        result = dict(pairs)
        if len(result) == len(pairs):
            return result
        found = True
        seen: set[str] = set()
        return _Duplicate(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]

    try:
        tree = json.loads(data, object_pairs_hook=build)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"a value cannot be read: {error} (in {origin})", "file") from None
    if found:
        place, key = next(_duplicates(tree, ""))
        raise PlanError(
            f"the key {key!r} stands twice in one object (in {origin})",
            f"{place}.{key}".lstrip("."),
        )


def _duplicates(tree: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(tree, _Duplicate):
        yield place, tree.key
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from _duplicates(value, f"{place}.{key}".lstrip("."))
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from _duplicates(value, f"{place}[{number}]")


def _refuse_oversize(plan: Plan, origin: str) -> None:
    for violation in mesh_violations(plan):
        raise PlanError(f"{violation.message} (in {origin})", violation.place)
    for name in ("tensors", "operators", "outputs", "programs", "blocks"):
        count = len(getattr(plan, name))
        if count > _THINGS_LIMIT:
            raise PlanError(
                f"{count} entries; at most {_THINGS_LIMIT} are read (in {origin})", name
            )


def _refuse_special_floats(plan: Plan) -> None:
    """Raise PlanError if a number is NaN or infinite.

    JSON has no such numbers, and a writer would turn them into null: another plan.
    """
    for number, tensor in enumerate(plan.tensors):
        if _is_special(tensor.value):
            raise PlanError(
                "NaN and infinity cannot be written as numbers; write the string 'nan', 'inf' or "
                "'-inf'",
                f"tensors[{number}].value",
            )
    for number, operator in enumerate(plan.operators):
        for key, attribute in operator.attributes.items():
            if _is_special(attribute):
                raise PlanError(
                    f"attribute {key!r} is {attribute}; NaN and infinity cannot be written",
                    f"operators[{number}].attributes.{key}",
                )
        for position, operand in enumerate(operator.inputs):
            if isinstance(operand, Number) and _is_special(operand.value):
                raise PlanError(
                    "write a literal that is no finite number as 'nan', 'inf' or '-inf'",
                    f"operators[{number}].inputs[{position}]",
                )


def _is_special(value: Attribute) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, Table) and any(
        isinstance(entry, float) and not math.isfinite(entry) for entry in value.values
    )


def _replace(file: Path, data: bytes) -> None:
    """Write beside the file, then rename: a reader sees the old file or the new one, complete."""
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(file)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                Path(temporary).unlink()
        raise UsageError(f"{file}: cannot be written: {error.strerror or error}") from None


@contextmanager
def _writable(file: Path) -> Iterator[None]:
    """Turn errors of the encoders into PlanError.

    They refuse integers beyond 64 bits, text that is not Unicode, and values of another type.
    """
    try:
        yield
    except (OverflowError, UnicodeEncodeError, TypeError, msgspec.MsgspecError) as error:
        raise PlanError(
            f"the plan has a value that {file.name} cannot hold: {error}", "plan"
        ) from None

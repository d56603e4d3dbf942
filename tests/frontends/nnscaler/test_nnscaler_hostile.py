"""Damaged and hostile pickles: nothing in them runs, and every one ends in a PlanError or in a
plan.
"""

from __future__ import annotations

import gc
import os
import pickle
import pickletools
import random
import struct
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pitcheck.errors import PitcheckError, PlanError, UnsupportedError
from pitcheck.frontends.nnscaler import pickles, read_nnscaler
from pitcheck.frontends.nnscaler.build import _Builder
from pitcheck.frontends.nnscaler.pickles import Stub, loaded
from pitcheck.frontends.nnscaler.reader import _Reader

DATA = Path(__file__).parents[2] / "data" / "nnscaler"
SMALL = DATA / "pairs" / "bias-mlp-L2-gbs128.dp2-pp1-tp1-mb1.pkl"
STAGES = DATA / "pairs" / "mlp-L4-gbs128.dp2-pp2-tp2-mb2.row.pkl"


def graph(tmp_path: Path, data: bytes) -> Any:
    """Return the object in a pickle, which must hold no stub."""
    file = tmp_path / "hostile.pkl"
    file.write_bytes(data)
    with loaded(file) as root:
        return root


def refused(tmp_path: Path, data: bytes) -> str:
    file = tmp_path / "hostile.pkl"
    file.write_bytes(data)
    with pytest.raises(PlanError) as caught:
        read_nnscaler(file)
    return str(caught.value)


# --- nothing runs


class Reduces:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.reduced = (function, arguments)

    def __reduce__(self) -> Any:
        return self.reduced


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("way", ["system", "eval", "exec", "open", "getattr", "import", "loads"])
def test_calls_do_not_happen(tmp_path: Path, way: str, protocol: int) -> None:
    trace = tmp_path / "trace"
    command = f"open({str(trace)!r}, 'w').close()"
    calls = {
        "system": Reduces(os.system, f"touch {trace}"),
        "eval": Reduces(eval, command),
        "exec": Reduces(exec, command),
        "open": Reduces(open, str(trace), "w"),
        "getattr": Reduces(getattr, Reduces(__import__, "os"), "system"),
        "import": Reduces(__import__, "antigravity"),
        "loads": Reduces(pickle.loads, pickle.dumps(Reduces(os.system, f"touch {trace}"))),
    }
    before = set(sys.modules)
    refused(tmp_path, pickle.dumps([calls[way], {"x": calls[way]}], protocol=protocol))
    assert not trace.exists()
    assert "antigravity" not in set(sys.modules) - before


def test_text_opcodes_call_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    for data in (
        b"cos\nsystem\n(S'touch %s'\ntR." % str(trace).encode(),
        b"(S'touch %s'\nios\nsystem\n." % str(trace).encode(),
        b"(cos\nsystem\nS'touch %s'\no." % str(trace).encode(),
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x05touch\x85\x81.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93)}\x92.",
    ):
        assert "not a ModuleCodeGen" in refused(tmp_path, data)
        assert not trace.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"Pname\n.",
        b"\x80\x04\x8c\x04name" + b"Q.",
        b"\x80\x04\x82\x01.",
        b"\x80\x04\x83\x01\x00.",
        b"\x80\x04\x97.",
    ],
)
def test_persistent_ids_extensions_and_buffers_are_refused(tmp_path: Path, data: bytes) -> None:
    refused(tmp_path, data)


KEYS = [
    "__class__",
    "__dict__",
    "__setstate__",
    "__init__",
    "__reduce__",
    "__call__",
    "__hash__",
    "__del__",
    "append",
    "extend",
    "origin",
    "made",
]


@pytest.mark.parametrize("module", ["nnscaler.ir.tensor", "other"])
@pytest.mark.parametrize("key", KEYS)
def test_state_cannot_change_what_a_stub_is(tmp_path: Path, key: str, module: str) -> None:
    name = key.encode()
    attribute = b"\x8c" + bytes([len(name)]) + name
    made = b"\x8c" + bytes([len(module)]) + module.encode() + b"\x8c\x05Thing\x93)\x81"
    other = b"\x8c\x02os\x8c\x06system\x93"
    plain = b"\x80\x04" + made + b"}" + attribute + other + b"sb."
    slots = b"\x80\x04" + made + b"}}" + attribute + other + b"s\x86b."
    twice = b"\x80\x04" + made + b"}" + attribute + other + b"sb}\x8c\x01x" + b"K\x01sb."
    on_class = b"\x80\x04" + made[:-2] + b"N}" + attribute + other + b"s\x86b."
    for data in (plain, slots, twice, on_class):
        file = tmp_path / "state.pkl"
        file.write_bytes(data)
        try:
            with loaded(file) as root:
                assert isinstance(root, Stub) or issubclass(root, Stub)
                origin = root.origin if isinstance(root, type) else type(root).origin
                assert origin in ((module, "Thing"), ("os", "system"))
        except PlanError:
            continue


def test_other_names_of_real_classes_are_stubs(tmp_path: Path) -> None:
    file = tmp_path / "names.pkl"
    file.write_bytes(b"\x80\x04\x8c\x08builtins\x8c\x07set.add\x93.")
    with loaded(file) as root:
        assert issubclass(root, Stub)


def test_reading_needs_neither_torch_nor_nnscaler() -> None:
    loaded_modules = "print('torch' in sys.modules, 'nnscaler' in sys.modules)"
    code = (
        f"import sys; from pitcheck.frontends.nnscaler import read_nnscaler; "
        f"read_nnscaler({str(STAGES)!r}); {loaded_modules}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


# --- limits


def test_memo_numbers_are_bounded(tmp_path: Path) -> None:
    assert "remembers" in refused(tmp_path, b"\x80\x02Nr" + struct.pack("<I", 2**31) + b".")
    assert "remembers" in refused(tmp_path, b"Np4000000000\n.")


def test_lengths_beyond_the_file_are_refused(tmp_path: Path) -> None:
    for opcode, layout in (
        (b"\x8e", "<Q"),
        (b"\x96", "<Q"),
        (b"\x8d", "<Q"),
        (b"B", "<I"),
        (b"X", "<I"),
        (b"\x8b", "<I"),
        (b"T", "<I"),
    ):
        assert "byte 2" in refused(
            tmp_path, b"\x80\x04" + opcode + struct.pack(layout, 2**31 - 1) + b"x."
        )


def test_nested_tuple_as_key_does_not_exhaust_the_stack(tmp_path: Path) -> None:
    refused(tmp_path, b"\x80\x04}N" + b"\x85" * 300_000 + b"Ns.")


def test_too_many_tuples_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "_LARGEST_STACK", 512 * 50)
    assert "more than 50 tuples" in refused(tmp_path, b"\x80\x04}N" + b"\x85" * 60 + b"Ns.")


def test_runs_that_are_too_large_are_refused() -> None:
    with loaded(SMALL) as root:
        for ranks, message in ((2**17, "or more than 65536"), (3 * 2**14, None)):
            root.runtime_ndevs = ranks
            if message is None:
                assert _Reader(root).run().ranks == ranks
            else:
                with pytest.raises(PlanError, match=message):
                    _Reader(root).run()
        root.runtime_ndevs = 2**16
        root.execplan._seq[0] *= 10
        with pytest.raises(PlanError, match="run more than 4194304 operators"):
            _Reader(root).run()


def test_large_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "LARGEST", 10)
    assert "more than 10 bytes" in refused(tmp_path, b"N" * 11)


def test_huge_integers_and_deep_lists_are_refused_in_words(tmp_path: Path) -> None:
    refused(tmp_path, b"L" + b"9" * 100_000 + b"L\n.")
    refused(tmp_path, b"\x80\x04" + b"]" * 100_000 + b"a" * 99_999 + b".")


def test_bytes_after_the_end_are_refused(tmp_path: Path) -> None:
    assert "3 bytes follow" in refused(tmp_path, SMALL.read_bytes() + b"abc")


def test_circles_are_read(tmp_path: Path) -> None:
    circle: list[Any] = []
    circle.append(circle)
    refused(tmp_path, pickle.dumps(circle))


def test_garbage_collection_is_as_before(tmp_path: Path) -> None:
    assert gc.isenabled()
    read_nnscaler(SMALL)
    refused(tmp_path, b"\x80\x04N.")
    assert gc.isenabled()
    gc.disable()
    try:
        read_nnscaler(SMALL)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        read_nnscaler(tmp_path / "nothing.pkl")


# --- damage


def survives(tmp_path: Path, data: bytes) -> bool:
    """Read damaged data: a plan, or an error of the package's own."""
    file = tmp_path / "damaged.pkl"
    file.write_bytes(data)
    try:
        read_nnscaler(file)
    except PitcheckError:
        return False
    return True


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    data = SMALL.read_bytes()
    for end in [*range(40), *range(40, len(data), 379), len(data) - 1]:
        assert not survives(tmp_path, data[:end])


def test_flipped_bits_never_end_in_another_exception(tmp_path: Path) -> None:
    data = SMALL.read_bytes()
    draw = random.Random(5)
    outcomes = []
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(draw.choice((1, 1, 2, 8))):
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        outcomes.append(survives(tmp_path, bytes(damaged)))
    assert any(outcomes) and not all(outcomes)


def stubs_of(root: Any) -> list[Stub]:
    """All stubs that the reader can come to, in a fixed order."""
    found: dict[int, Stub] = {}
    todo: list[Any] = [root]
    seen: set[int] = set()
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, Stub):
            found[id(thing)] = thing
            of_tensor = type(thing).origin[1] in ("IRSubTensor", "IRFullTensor")
            todo.extend(
                value
                for key, value in thing.__dict__.items()
                if key in READ and not (of_tensor and key == "_cell")
            )
        elif isinstance(thing, dict):
            todo.extend(thing.values())
        elif isinstance(thing, list | tuple):
            todo.extend(thing)
    return list(found.values())


READ_NAMES = """\
_inputs _outputs _mirror _id _nodes _prims _kwargs kwargs signature name _shape _full_tensor
_indmap _indices _valmap _seq devices runtime_ndevs execplan _cell _device _weight _dtype _grad
_is_attr _is_grad _is_loss _requires_grad
"""
READ = frozenset(READ_NAMES.split())
MORE_READ = frozenset(("_forward", "_differentiable", "custom", "_comment", "_module_stack"))
JUNK: list[Any] = [
    None,
    -1,
    0,
    2**70,
    1.5,
    "",
    "x" * 5000,
    "\ud800",
    b"\x00",
    [],
    (),
    {},
    [None],
    (1, 2, 3),
    {"a": None},
    {1: 2},
    ((0, 1),),
    [[[]]],
    set(),
    True,
]


def damaged_graphs(path: Path, count: int, seed: int) -> Iterator[tuple[Any, str]]:
    draw = random.Random(seed)
    for _ in range(count):
        with loaded(path) as root:
            chosen = [
                (stub, key)
                for stub in stubs_of(root)
                for key in stub.__dict__
                if key in READ | MORE_READ
            ]
            stub, key = draw.choice(chosen)
            how = draw.choice(("delete", "junk", "junk", "swap"))
            if how == "delete":
                del stub.__dict__[key]
            elif how == "junk":
                stub.__dict__[key] = draw.choice(JUNK)
            else:
                other, other_key = draw.choice(chosen)
                stub.__dict__[key] = other.__dict__[other_key]
            yield root, f"{how} {type(stub).origin[1]}.{key}"


@pytest.mark.parametrize(
    ("path", "count", "seed"), [(SMALL, 250, 1), (STAGES, 60, 2)], ids=["small", "stages"]
)
def test_missing_and_foreign_fields_never_end_in_another_exception(
    path: Path, count: int, seed: int
) -> None:
    for root, damage in damaged_graphs(path, count, seed):
        try:
            _Builder(_Reader(root).run(), "damaged").run()
        except (PlanError, UnsupportedError):
            continue
        except Exception as error:
            pytest.fail(f"{damage}: {type(error).__name__}: {error}")


def test_error_names_the_place(tmp_path: Path) -> None:
    with loaded(STAGES) as root:
        segment = root.execplan._seq[0][1]._cell
        del segment._nodes[1]._outputs[0].__dict__["_shape"]
        with pytest.raises(
            PlanError,
            match=r"execplan\._seq\[0\]\[1\]\._nodes\[1\]\._shape: IRSubTensor has no field "
            r"'_shape'",
        ):
            _Reader(root).run()


# --- the scan, against Python's own list of opcodes


def drawn_opcodes(draw: random.Random, count: int) -> bytes:
    """Opcodes with arguments, in no sensible order; no end, no extension, no large memo number."""
    pieces = []
    for _ in range(count):
        opcode = draw.choice(
            [
                o
                for o in pickletools.opcodes
                if o.name not in ("STOP", "EXT1", "EXT2", "EXT4", "LONG_BINPUT", "PUT")
            ]
        )
        size = 0 if opcode.arg is None else opcode.arg.n
        inside = bytes(draw.choice(b"hjr.\x82\x83\x84t\x00K") for _ in range(5))
        if size >= 0:
            argument = bytes(draw.choice(b"hjr.\x82\x83\x84t\x00K") for _ in range(size))
        elif size == pickletools.UP_TO_NEWLINE:
            argument = b"1\n1\n" if opcode.name in ("GLOBAL", "INST") else b"1\n"
        else:
            width = {
                pickletools.TAKEN_FROM_ARGUMENT1: 1,
                pickletools.TAKEN_FROM_ARGUMENT4: 4,
                pickletools.TAKEN_FROM_ARGUMENT4U: 4,
            }.get(size, 8)
            argument = len(inside).to_bytes(width, "little") + inside
        pieces.append(opcode.code.encode("latin-1") + argument)
    return b"".join(pieces)


def test_scan_finds_what_it_must_behind_any_opcodes() -> None:
    draw = random.Random(11)
    for _ in range(300):
        before, after = (
            drawn_opcodes(draw, draw.randrange(12)),
            drawn_opcodes(draw, draw.randrange(12)),
        )
        pickles.check_opcodes(before + after + b".", "file")
        for bad in (b"\x82\x01", b"\x83\x01\x00", b"\x84\x01\x00\x00\x00"):
            with pytest.raises(
                PlanError,
                match=f"extension code.*byte {len(before)}$|byte {len(before)}: .*extension code",
            ):
                pickles.check_opcodes(before + bad + after + b".", "file")
        with pytest.raises(PlanError, match="remembers"):
            pickles.check_opcodes(before + b"r\xff\xff\xff\xff" + after + b".", "file")
        with pytest.raises(PlanError, match=f"{len(after) + 1} bytes follow"):
            pickles.check_opcodes(before + b"." + after + b".", "file")


# --- states


def test_state_of_a_tensor_must_be_a_dictionary(tmp_path: Path) -> None:
    made = b"\x80\x04\x8c\x12nnscaler.ir.tensor\x8c\x0bIRSubTensor\x93)\x81"
    for state in (b"N", b"K\x01", b"]", b"}}\x86", b")"):
        assert "damaged" in refused(tmp_path, made + state + b"b.")


def test_reading_leaves_no_objects_of_the_pickle() -> None:
    with loaded(SMALL) as root:
        held = weakref.ref(root)
        tensor = weakref.ref(root.execplan._seq[0][0]._outputs[0])
        del root
    assert held() is None
    assert tensor() is None

"""``check --output certificate:FILE`` and ``verify``: exit codes, messages, files."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from cli.cli_plans import parallel, reference
from cli.conftest import Call

from pitcheck.certificate.statement import Seed, decode, derived_seed, encode
from pitcheck.plan.files import write_plan
from pitcheck.plan.model import Operator, Plan

CHECK = ("check", "r.plan.json", "p.plan.zst", "--no-cache", "--quiet")
VERIFY = ("verify", "c.json", "r.plan.json", "p.plan.zst")


def wrong() -> Plan:
    """Return the parallel plan with a row of ranks in the wrong order."""
    right = parallel()
    gather = right.operators[1]
    turned = Operator("turn", "flip", ("g",), ("y",), {"axes": (1,)})
    tensors = (
        *right.tensors,
        msgspec.structs.replace(right.tensors[3], name="g", role="activation"),
    )
    moved = msgspec.structs.replace(gather, outputs=("g",))
    return msgspec.structs.replace(
        right, tensors=tensors, operators=(right.operators[0], moved, turned)
    )


@pytest.fixture(autouse=True)
def plans(folder: Path) -> None:
    write_plan(reference(), "r.plan.json")
    write_plan(parallel(), "p.plan.zst")
    write_plan(wrong(), "w.plan.json")


def test_a_certificate_is_written_and_verified(call: Call) -> None:
    assert call(*CHECK, "--output", "certificate:c.json").code == 0
    result = call(*VERIFY)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("verified: 1 of 1 stages hold\n")
    assert "error bound" in result.out


def test_it_is_an_in_toto_statement_of_both_files(call: Call) -> None:
    call(*CHECK, "--output", "certificate:c.json")
    found = json.loads(Path("c.json").read_text())
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    assert [own["name"] for own in found["subject"]] == ["r.plan.json", "p.plan.zst"]


def test_the_same_pair_and_seed_give_the_same_bytes(call: Call) -> None:
    for name in ("c.json", "d.json"):
        call(*CHECK, "--seed", "5", "--output", f"certificate:{name}")
    assert Path("c.json").read_bytes() == Path("d.json").read_bytes()
    call(*CHECK, "--seed", "6", "--output", "certificate:d.json")
    assert Path("c.json").read_bytes() != Path("d.json").read_bytes()


def test_without_a_file_it_is_printed(call: Call) -> None:
    result = call(*CHECK, "--output", "certificate")
    assert decode(result.out.encode(), "stdout").subject[0].name == "r.plan.json"


def test_a_wrong_pair_has_no_certificate_and_keeps_its_exit_code(call: Call) -> None:
    result = call(
        "check",
        "r.plan.json",
        "w.plan.json",
        "--no-cache",
        "--no-explain",
        "--output",
        "certificate:c.json",
    )
    assert result.code == 1
    assert "the verdict is mismatch; only an equivalent pair has a certificate" in result.err
    assert not Path("c.json").exists()


def test_a_bound_that_is_too_weak_has_no_certificate(call: Call) -> None:
    result = call(*CHECK, "--error-bound", "1e-3", "--output", "certificate:c.json")
    assert result.code in (0, 2)
    assert Path("c.json").exists() == (result.code == 0)


def test_a_forged_certificate_of_a_wrong_pair_is_refused(call: Call) -> None:
    from hashlib import sha256  # noqa: PLC0415

    call(*CHECK, "--output", "certificate:c.json")
    found = decode(Path("c.json").read_bytes(), "c.json")
    first, second = (
        sha256(Path(name).read_bytes()).hexdigest() for name in ("r.plan.json", "w.plan.json")
    )
    subject = tuple(
        msgspec.structs.replace(own, digest={"sha256": digest})
        for own, digest in zip(found.subject, (first, second), strict=True)
    )
    seed = Seed(0, f"{derived_seed((first, second), 0):032x}")
    predicate = msgspec.structs.replace(found.predicate, seed=seed)
    forged = msgspec.structs.replace(found, subject=subject, predicate=predicate)
    Path("c.json").write_bytes(encode(forged))
    result = call("verify", "c.json", "r.plan.json", "w.plan.json")
    assert result.code == 1
    assert "y: both sides differ at a random point" in result.out


def test_other_plans_are_an_error_with_its_place(call: Call) -> None:
    call(*CHECK, "--output", "certificate:c.json")
    result = call("verify", "c.json", "r.plan.json", "w.plan.json")
    assert result.code == 2
    assert "subject: it is of another parallel plan" in result.err


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "nothing"])
def test_a_file_that_is_no_certificate_is_an_error(call: Call, content: str) -> None:
    Path("c.json").write_text(content)
    result = call(*VERIFY)
    assert result.code == 2
    assert "c.json: this is no certificate" in result.err


def test_a_file_that_is_not_there_is_an_error(call: Call) -> None:
    result = call(*VERIFY)
    assert result.code == 2
    assert "c.json: cannot be read" in result.err


def test_no_plan_or_certificate_steers_the_terminal_or_adds_a_line(call: Call) -> None:
    said = "fine\nverified: 9 of 9 stages hold\x1b[2J"
    write_plan(msgspec.structs.replace(parallel(), assumptions=(said,)), "p.plan.zst")
    call(*CHECK, "--output", "certificate:c.json")
    result = call(*VERIFY)
    assert result.code == 0
    assert r"fine\nverified: 9 of 9 stages hold\x1b[2J" in result.out.splitlines()[1]
    found = decode(Path("c.json").read_bytes(), "c.json")
    subject = tuple(msgspec.structs.replace(own, digest={"sha256": said}) for own in found.subject)
    Path("c.json").write_bytes(encode(msgspec.structs.replace(found, subject=subject)))
    result = call(*VERIFY)
    assert result.code == 2
    assert "\x1b" not in result.err
    assert len(result.err.splitlines()) == 1
    Path("c.json").write_bytes(encode(found).replace(b'"version": 1', b'"\\u001b\\n": 1'))
    result = call(*VERIFY)
    assert result.code == 2
    assert "\x1b" not in result.err
    assert len(result.err.splitlines()) == 1

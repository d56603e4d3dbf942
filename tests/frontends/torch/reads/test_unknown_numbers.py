"""Numbers that are read from tensors may be logged, and decide nothing."""

from __future__ import annotations

import array
import copy
import decimal
import fractions
import json
import logging
import math
import pickle
import statistics
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from frontends.torch.reads.recording import recorded
from torch import nn

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.reads.unknown_numbers import TEXT, stands_in

Wrong = Callable[[torch.Tensor], Any]


def logged(g: torch.Tensor) -> None:
    read = g.sum().item()
    assert f"{read}" == str(read) == repr(read) == "%s" % read == TEXT  # noqa: UP031
    assert f"{read:.2f} {read:>10.3e} {g.sum():.4f}" == f"{TEXT} {TEXT:>10} {TEXT}"
    assert "{:.2f} {!r}".format(read, [read]) == f"{TEXT} [{TEXT}]"  # noqa: UP032
    assert "%.2f" % read == "nan"  # noqa: UP031
    form = "%.2f"
    form %= read
    assert form == "nan"
    logging.getLogger("training").warning("%.4f %s", read, read)
    assert json.dumps({"loss": read}) == f'{{"loss": "{TEXT}"}}'
    assert g[0].tolist()[0].__format__("") == TEXT


def test_what_is_logged_is_no_number(caplog: pytest.LogCaptureFixture) -> None:
    tape = recorded(logged)
    assert caplog.messages == [f"nan {TEXT}"]
    assert all("changes no result" in sentence for sentence in tape.reads.assumptions)
    assert any("read = g.sum().item()" in sentence for sentence in tape.reads.assumptions)


def averaged(g: torch.Tensor) -> None:
    kept = [g.sum().item(), g.max().item()]
    total = 0.0
    for read in kept:
        total += read * 2
    mean = sum(kept) / len(kept)
    results = [total, mean, np.mean(kept), 2**mean, 1 - mean, -mean, abs(mean), 3 % mean]
    results += [math.exp(mean), math.sqrt(g.sum()), np.sqrt(mean), np.float64(3.0) * mean]
    results += [round(mean, 2), mean // 1, 1 / mean, copy.deepcopy(mean), copy.copy(mean)]
    assert {str(result) for result in results} == {TEXT}


def test_what_is_computed_from_it_is_no_number() -> None:
    recorded(averaged)


def kinds(g: torch.Tensor) -> None:
    count = (g > 0).sum().item()
    assert isinstance(count, int) and isinstance(count + 1, int) and isinstance(round(count), int)
    assert isinstance(count / 2, float) and isinstance(count + 0.5, float)
    assert isinstance((g > 0).all().item(), bool)
    assert isinstance(math.floor(g.sum().item()), int)
    assert f"{count:d} of {g.numel()}, {100 * count / g.numel():.1f} %" == f"{TEXT} of 12, {TEXT} %"
    assert count is not None and count != "none" and not count == "none"  # noqa: SIM201


def test_it_has_the_type_of_the_number() -> None:
    recorded(kinds)


def known(_: torch.Tensor) -> None:
    three = torch.tensor(3.0)
    assert three.item() == 3.0 and f"{three:.1f}" == "3.0" and float(three) == 3.0
    assert type(three.item()) is float and math.sqrt(torch.tensor(4.0)) == 2.0
    assert json.dumps([three.item()]) == "[3.0]" and not math.isnan(three)
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps(object())


def test_numbers_that_are_known_are_numbers() -> None:
    assert not recorded(known).reads.assumptions


def choose(holds: object) -> None:
    """Do nothing, in two ways."""
    if holds:
        return


def grown(g: torch.Tensor) -> nn.Parameter:
    parameter = nn.Parameter(torch.zeros(4, 3))
    parameter.grad = g
    return parameter


def stepped(make: Callable[..., torch.optim.Optimizer], g: torch.Tensor, **options: Any) -> None:
    optimizer = make([grown(g)], lr=0.1, **options)
    optimizer.param_groups[0]["lr"] = 0.1 * g.sum().item()
    optimizer.step()


def plateau(g: torch.Tensor) -> None:
    optimizer = torch.optim.SGD([grown(g)], lr=0.1)
    torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer).step(g.sum().item())


DECIDED: dict[str, Wrong] = {
    "multiplied in place": lambda g: g.mul_(g.sum().item()),
    "multiplied": lambda g: g * g.sum().item(),
    "multiplied from the left": lambda g: g.sum().item() * g,
    "divided by": lambda g: g / g.sum().item(),
    "divided": lambda g: g.sum().item() / g,
    "a power": lambda g: 2 ** g.sum().item() * g,
    "a remainder": lambda g: g % g.sum().item(),
    "a remainder by a tensor": lambda g: g.sum().item() % g,
    "added in place": lambda g: g.__iadd__(g.sum().item()),
    "a factor of a sum": lambda g: g.add_(g, alpha=g.sum().item()),
    "a weight": lambda g: g.lerp_(g, g.sum().item()),
    "a bound": lambda g: g.clamp_(max=g.sum().item()),
    "an exponent": lambda g: g.pow_(g.sum().item()),
    "filled with": lambda g: g.fill_(g.sum().item()),
    "written": lambda g: g.__setitem__(0, g.sum().item()),
    "a list of factors": lambda g: torch._foreach_mul_([g], [g.sum().item()]),
    "a factor of a list": lambda g: torch._foreach_mul_([g], g.sum().item()),
    "a tensor": lambda g: torch.tensor(g.sum().item()),
    "a tensor of a dtype": lambda g: torch.tensor([g.sum().item()], dtype=torch.float32),
    "a tensor by its class": lambda g: torch.FloatTensor([g.sum().item()]),
    "a new tensor": lambda g: g.new_tensor(g.sum().item()),
    "a full tensor": lambda g: torch.full((1,), g.sum().item()),
    "a tensor of an array": lambda g: torch.as_tensor(np.array(g.sum().item())),
    "an end": lambda g: torch.arange(0, g.sum().item()),
    "a probability": lambda g: nn.functional.dropout(g, g.sum().item()),
    "compared": lambda g: g.sum().item() > 3,
    "compared for equality": lambda g: g.sum().item() == 0,
    "compared with another": lambda g: g.sum().item() != g.sum().item(),
    "compared with a tensor": lambda g: g.sum().item() < g.sum(),
    "a condition": lambda g: choose(g.sum().item()),
    "a boolean": lambda g: choose((g > 0).any().item()),
    "a tensor as a condition": lambda g: choose(g.sum() > 3),
    "one of some": lambda g: g.sum().item() in (0.0, 1.0),
    "the least": lambda g: min(1.0, g.sum().item()),
    "sorted": lambda g: sorted([g.sum().item(), 2.0]),
    "a root, compared": lambda g: math.sqrt(g.sum().item()) > 3,
    "a logarithm, compared": lambda g: np.log(g.sum().item()) > 3,
    "a mean, compared": lambda g: np.mean([g.sum().item()]) > 3,
    "compared by NumPy": lambda g: np.greater(g.sum().item(), 3),
    "the greater by NumPy": lambda g: np.maximum(g.sum().item(), 3.0),
    "a remainder of NumPy": lambda g: np.float64(3.0) % g.sum().item(),
    "a remainder of an array": lambda g: float((np.ones(3) % g.sum().item())[0]),
    "a sum with an array": lambda g: np.ones(3) + g.sum().item(),
    "a plain float": lambda g: float(g.sum().item()),
    "a plain float of a tensor": lambda g: float(g.sum()),
    "a float of NumPy": lambda g: np.float32(g.sum().item()),
    "an array of floats": lambda g: np.array([g.sum().item()], dtype=np.float32),
    "an array of a tensor": lambda g: g.sum().numpy(),
    "the greatest place": lambda g: np.argmax([g.sum().item(), 1.0]),
    "bytes": lambda g: struct.pack("f", g.sum().item()),
    "an array of Python": lambda g: array.array("f", [g.sum().item()]),
    "pickled": lambda g: pickle.dumps(g.sum().item()),
    "a decimal": lambda g: decimal.Decimal(g.sum().item()),
    "a fraction": lambda g: fractions.Fraction(g.sum().item()),
    "a complex number": lambda g: complex(g.sum().item()),
    "close to": lambda g: math.isclose(g.sum().item(), 2.0),
    "a sign": lambda g: math.copysign(1.0, g.sum().item()),
    "a precise sum": lambda g: math.fsum([g.sum().item()]),
    "a fast mean": lambda g: statistics.fmean([g.sum().item(), 2.0]),
    "a slow mean": lambda g: statistics.mean([g.sum().item(), 2.0]),
    "a quotient and a remainder": lambda g: divmod(g.sum().item(), 2),
    "digits": lambda g: g.sum().item().hex(),
    "a whole number?": lambda g: g.sum().item().is_integer(),
    "bits": lambda g: (g > 0).any().item() & True,
    "an index": lambda g: g[(g > 0).sum().item()],
    "a stop": lambda g: g[: int(g.sum().item())],
    "a rounded stop": lambda g: g[: round(g.sum().item())],
    "a size": lambda g: torch.zeros((g > 0).sum().item()),
    "a range": lambda g: range((g > 0).sum().item()),
    "a key": lambda g: {1.0: 2}.get(g.sum().item()),
    "an element of a set": lambda g: {g.sum().item()},
    "text, read again": lambda g: float(f"{g.sum().item():12.4f}"),
    "text of a remainder, read again": lambda g: g * float("%.4f" % g.sum().item()),  # noqa: UP031
    "a learning rate": lambda g: stepped(torch.optim.SGD, g),
    "a learning rate of Adam": lambda g: stepped(torch.optim.AdamW, g),
    "a learning rate of all tensors": lambda g: stepped(torch.optim.AdamW, g, foreach=True),
    "a plateau": plateau,
    "a greatest norm": lambda g: nn.utils.clip_grad_norm_([grown(g)], g.sum().item()),
}


@pytest.mark.parametrize("way", DECIDED)
def test_it_decides_nothing(way: str) -> None:
    """Either the recording is refused, or an exception tells that no number is there."""
    try:
        recorded(DECIDED[way])
    except UnsupportedError:
        return
    except Exception as error:
        assert stands_in(str(error)), error
        return
    pytest.fail("recorded")


def test_a_refusal_that_the_program_catches_is_final() -> None:
    def program(g: torch.Tensor) -> None:
        try:
            choose(g.sum().item() > 3)
        except Exception:
            g.zero_()

    with pytest.raises(UnsupportedError, match="it is compared"):
        recorded(program)


def test_the_message_names_both_lines() -> None:
    def program(g: torch.Tensor) -> None:
        read = g.sum().item()
        g.mul_(1.0)
        g.mul_(read)

    with pytest.raises(
        UnsupportedError, match=r"(?s)g\.mul_\(read\).* is read from a tensor at .*read = g"
    ):
        recorded(program)


def test_a_patch_ends_with_its_recording() -> None:
    recorded(lambda g: g.sum().item())
    assert "item" not in vars(torch.Tensor) and math.exp.__module__ == "math"
    assert f"{torch.tensor(1.5):.1f}" == "1.5"

"""ATen's operators over lists of tensors, and its optimizers that are one operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pitcheck.frontends.torch.aten import arithmetic as single
from pitcheck.frontends.torch.aten.constants import TABLE as CONSTANTS
from pitcheck.frontends.torch.aten.emitter import Emitter, Operand, Tensor
from pitcheck.frontends.torch.aten.reductions import norm
from pitcheck.frontends.torch.aten.row import Results, Row, row
from pitcheck.frontends.torch.aten.structure import TABLE as STRUCTURE
from pitcheck.frontends.torch.aten.structure import select

# --- element by element of lists


def each(meaning: Callable[..., Results]) -> Callable[..., list[Tensor | None]]:
    """Return the meaning of an operator over lists: that of their elements, one after the other.

    An argument that is no list is the same for all elements.
    """

    def over(e: Emitter, *arguments: Any) -> list[Tensor | None]:
        count = next(
            len(a) for a in arguments if isinstance(a, tuple) and not isinstance(a, Tensor)
        )
        results: list[Tensor | None] = []
        for i in range(count):
            result = meaning(
                e.focus(i),
                *(
                    a[i] if isinstance(a, tuple) and not isinstance(a, Tensor) else a
                    for a in arguments
                ),
            )
            if not isinstance(result, Tensor):
                raise e.unsupported("self", len(arguments), "an element of a list gives one tensor")
            results.append(result)
        return results

    return over


def _by_elements(
    meaning: Callable[..., Tensor],
) -> Callable[..., Tensor | Sequence[Tensor | None] | None]:
    """Return the meaning of an operator over lists, with a tensor of one factor per element."""

    def over(
        e: Emitter,
        self: Sequence[Tensor],
        tensor1: Sequence[Tensor],
        tensor2: Sequence[Tensor],
        scalars: Tensor,
    ) -> Sequence[Tensor | None]:
        return [
            meaning(e.focus(i), *three, select(e, scalars, 0, i))
            for i, three in enumerate(zip(self, tensor1, tensor2, strict=True))
        ]

    return over


def _greatest(e: Emitter, self: Tensor) -> Tensor:
    return e.reduce("amax", self, None, False)


def _scalars(name: str) -> str:
    return "scalars" if name == "ScalarList" else "scalar" if name == "Scalar" else "other"


_LISTS = ("Scalar", "List", "ScalarList")
_CLAMPS: dict[str, Callable[..., Tensor]] = {
    "clamp_min": single.clamp,
    "clamp_max": lambda e, self, other: single.clamp(e, self, None, other),
    "maximum": single.clamp,
    "minimum": lambda e, self, other: single.clamp(e, self, None, other),
}

_LISTED: dict[str, Row] = {
    **{f"_foreach_{name}.default": row(each(single.unary(name)), "self") for name in single.UNARY},
    **{
        f"_foreach_{name}.{kind}": row(
            each(meaning), f"self {_scalars(kind)}{' alpha' if kind in ('List', 'Tensor') else ''}"
        )
        for name, meaning in (("add", single.add), ("sub", single.sub))
        for kind in (*_LISTS, *(("Tensor",) if name == "add" else ()))
    },
    **{
        f"_foreach_{name}.{kind}": row(each(meaning), f"self {_scalars(kind)}")
        for name, meaning in (("mul", single.mul), ("div", single.div))
        for kind in (*_LISTS, "Tensor")
    },
    **{
        f"_foreach_{name}.{kind}": row(each(meaning), f"self {_scalars(kind)}")
        for name, meaning in _CLAMPS.items()
        for kind in _LISTS
    },
    **{
        f"_foreach_{name}.{kind}": row(each(meaning), f"self tensor1 tensor2 {scalar}")
        for name, meaning in (("addcmul", single.addcmul), ("addcdiv", single.addcdiv))
        for kind, scalar in (("Scalar", "value"), ("ScalarList", "scalars"))
    },
    "_foreach_addcmul.Tensor": row(_by_elements(single.addcmul), "self tensor1 tensor2 scalars"),
    "_foreach_addcdiv.Tensor": row(_by_elements(single.addcdiv), "self tensor1 tensor2 scalars"),
    **{
        f"_foreach_lerp.{kind}": row(each(single.lerp), f"self tensors1 {w}")
        for kind, w in (("List", "weights"), ("Scalar", "weight"), ("ScalarList", "weight"))
    },
    **{
        f"_foreach_pow.{kind}": row(each(single.power), "self exponent")
        for kind in ("Scalar", "ScalarList")
    },
    "_foreach_pow.ScalarAndTensor": row(each(single.number_to), "self exponent"),
    "_foreach_norm.Scalar": row(each(norm), "self ord dtype"),
    "_foreach_max.default": row(each(_greatest), "self"),
    "_foreach_mm.default": row(each(Emitter.matmul), "self mat2"),
    "_foreach_zero.default": row(each(CONSTANTS["zero.default"].meaning), "self"),
    "_foreach_copy.default": row(each(STRUCTURE["copy.default"].meaning), "self src non_blocking"),
    "_foreach_clone.default": row(each(STRUCTURE["clone.default"].meaning), "self memory_format"),
}

# --- optimizers in one operator. Outputs are the lists that they write, in the schema's order:
# parameters, gradients, and state.


def _power_of(e: Emitter, base: float, step: Tensor) -> Tensor:
    """Return ``base`` to the power of the number of steps."""
    return e.map("exp", e.map("mul", e.numeric(e.view(step, ())), e.op("log", base, shape=())))


def _no_scaler(e: Emitter, grad_scale: Tensor | None, found_inf: Tensor | None) -> None:
    for name, value in (("grad_scale", grad_scale), ("found_inf", found_inf)):
        if value is not None:
            raise e.unsupported(name, value, "scaled gradients are not known")


def _one_adam(
    e: Emitter,
    state: tuple[Tensor, Tensor, Tensor, Tensor],
    step: Tensor,
    lr: Operand,
    betas: tuple[float, float],
    weight_decay: float,
    eps: float,
    decoupled: bool,
    maximize: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the new parameter, first and second moment of one step of Adam."""
    parameter, gradient, first, second = state
    gradient = e.map("neg", gradient) if maximize else gradient
    if weight_decay != 0 and decoupled:
        parameter = e.map(
            "mul",
            parameter,
            e.map("sub", 1, e.map("mul", lr, weight_decay))
            if isinstance(lr, Tensor)
            else 1 - lr * weight_decay,
        )
    elif weight_decay != 0:
        gradient = e.map("add", gradient, parameter, attributes={"alpha": weight_decay})
    first = single.lerp(e, first, gradient, 1 - betas[0])
    second = single.addcmul(e, e.map("mul", second, betas[1]), gradient, gradient, 1 - betas[1])
    corrections = [e.map("sub", 1, _power_of(e, beta, step)) for beta in betas]
    denominator = e.map(
        "add", e.map("div", e.map("sqrt", second), e.map("sqrt", corrections[1])), eps
    )
    size = e.map("div", e.view(lr, ()) if isinstance(lr, Tensor) else lr, corrections[0])
    return (
        e.map("sub", parameter, e.map("mul", size, e.map("div", first, denominator))),
        first,
        second,
    )


def _adam(decoupled: bool) -> Callable[..., Sequence[Tensor | None]]:
    def meaning(
        e: Emitter,
        self: Sequence[Tensor],
        grads: Sequence[Tensor],
        exp_avgs: Sequence[Tensor],
        exp_avg_sqs: Sequence[Tensor],
        max_exp_avg_sqs: Sequence[Tensor],
        state_steps: Sequence[Tensor],
        lr: Operand,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Tensor | None,
        found_inf: Tensor | None,
    ) -> Sequence[Tensor | None]:
        if amsgrad or max_exp_avg_sqs:
            raise e.unsupported("amsgrad", amsgrad, "only False is known")
        _no_scaler(e, grad_scale, found_inf)
        every = zip(self, grads, exp_avgs, exp_avg_sqs, strict=True)
        new = [
            _one_adam(
                e.focus(i),
                state,
                state_steps[i],
                lr,
                (beta1, beta2),
                weight_decay,
                eps,
                decoupled,
                maximize,
            )
            for i, state in enumerate(every)
        ]
        return [*(of[0] for of in new), *grads, *(of[1] for of in new), *(of[2] for of in new)]

    return meaning


def _sgd(
    e: Emitter,
    self: Sequence[Tensor],
    grads: Sequence[Tensor],
    momentum_buffer_list: Sequence[Tensor],
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None,
    found_inf: Tensor | None,
) -> Sequence[Tensor | None]:
    _no_scaler(e, grad_scale, found_inf)
    parameters, buffers = [], []
    for i, (parameter, given) in enumerate(zip(self, grads, strict=True)):
        at = e.focus(i)
        step = at.map("neg", given) if maximize else given
        if weight_decay != 0:
            step = at.map("add", step, parameter, attributes={"alpha": weight_decay})
        if momentum != 0:
            kept = at.map("mul", momentum_buffer_list[i], momentum) if not is_first_step else step
            buffer = (
                kept
                if is_first_step
                else at.map("add", kept, step, attributes={"alpha": 1 - dampening})
            )
            buffers.append(buffer)
            step = (
                at.map("add", step, buffer, attributes={"alpha": momentum}) if nesterov else buffer
            )
        parameters.append(at.map("sub", parameter, step, attributes={"alpha": lr}))
    return [*parameters, *grads, *buffers]


_ADAM = (
    "self grads exp_avgs exp_avg_sqs max_exp_avg_sqs state_steps lr beta1 beta2 weight_decay "
    "eps amsgrad maximize grad_scale found_inf"
)
_SGD = (
    "self grads momentum_buffer_list weight_decay momentum lr dampening nesterov maximize "
    "is_first_step grad_scale found_inf"
)

TABLE: dict[str, Row] = {
    **_LISTED,
    **{
        f"_fused_{name}.{overload}": row(_adam(decoupled), _ADAM)
        for name, decoupled in (("adamw", True), ("adam", False))
        for overload in ("default", "tensor_lr")
    },
    "_fused_sgd.default": row(_sgd, _SGD),
}

"""ATen's operators over lists of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pitcheck.frontends.torch.aten import arithmetic as single
from pitcheck.frontends.torch.aten.constants import TABLE as CONSTANTS
from pitcheck.frontends.torch.aten.emitter import Emitter, Tensor
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

TABLE: dict[str, Row] = {
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

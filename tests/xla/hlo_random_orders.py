"""Random HLO programs that round, compare, sort and branch."""

from __future__ import annotations

from xla.hlo_programs import Program, braces, random_sizes, shape, subset


def roundings(p: Program) -> None:
    """Numbers rounded to whole ones, halves among them, tests for finite ones, and products."""
    x = p.given("f64", (5, 7), -16, 17)
    quarter = p.op("f64", (), "constant(0.25)")
    quarters = p.call("f64", (5, 7), "broadcast", quarter, more=", dimensions={}")
    halves = p.call("f64", (5, 7), "subtract", x, quarters)
    for opcode in ("floor", "ceil", "round-nearest-even", "round-nearest-afz"):
        for given in (x, halves):
            p.out(p.call("f64", (5, 7), opcode, given))
    p.out(p.call("pred", (5, 7), "is-finite", x))
    huge = p.op("f64", (), "constant(inf)")
    wide = p.call("f64", (5, 7), "broadcast", huge, more=", dimensions={}")
    p.out(p.call("pred", (5, 7), "is-finite", wide))
    start = p.op("f64", (), "constant(1)")
    for number, axes in ((start, [1]), (start, [0, 1]), (p.op("f64", (), "constant(-2)"), [0])):
        rest = [n for d, n in enumerate((5, 7)) if d not in axes]
        more = f", dimensions={braces(axes)}, to_apply={p.region('multiply', 'f64')}"
        p.out(p.call("f64", rest, "reduce", halves, number, more=more))
    whole = p.given("s32", (2, 3))
    more = f", dimensions={{1}}, to_apply={p.region('multiply', 's32')}"
    p.out(p.call("s32", (2,), "reduce", whole, p.constant("s32", 1), more=more))
    known = p.drawn("s32", (2, 3))
    p.out(p.call("s32", (2,), "reduce", known, p.constant("s32", 3), more=more))


def place_region(p: Program, kind: str, direction: str) -> str:
    """Return the region of JAX's argmax (GT) or argmin (LT)."""
    name = f"%place.{kind}.{direction}"
    if name not in p.named:
        p.named.add(name)
        wins, nan = "%g", ""
        if kind[0] == "f":
            wins = "%o"
            nan = "  %n = pred[] compare(%x, %x), direction=NE\n  %o = pred[] or(%g, %n)\n"
        p.before(
            f"""{name} (x: {kind}[], i: s32[], y: {kind}[], j: s32[]) -> ({kind}[], s32[]) {{
  %x = {kind}[] parameter(0)
  %y = {kind}[] parameter(2)
  %g = pred[] compare(%x, %y), direction={direction}
{nan}  %s = {kind}[] select({wins}, %x, %y)
  %e = pred[] compare(%x, %y), direction=EQ
  %i = s32[] parameter(1)
  %j = s32[] parameter(3)
  %l = pred[] compare(%i, %j), direction=LT
  %a = pred[] and(%e, %l)
  %c = pred[] or({wins}, %a)
  %t = s32[] select(%c, %i, %j)
  ROOT %r = ({kind}[], s32[]) tuple(%s, %t)
}}
"""
        )
    return name


def extremes(p: Program) -> None:
    """Extrema with their places, many of them equal, places in any order, and infinite ones."""
    for kind in ("f64", "s32"):
        sizes = random_sizes(p, 3, 2, 5)
        axes = sorted(subset(p, range(3), int(p.rng.integers(1, 3))))
        rest = [sizes[d] for d in range(3) if d not in axes]
        x, known = p.given(kind, sizes, -1, 2), p.constant("s32", p.rng.integers(0, 2, sizes))
        count = p.op("s32", sizes, f"iota(), iota_dimension={axes[0]}")
        ends = {"GT": "-inf", "LT": "inf"}
        if kind == "s32":
            ends = {"GT": str(-(2**31)), "LT": str(2**31 - 1)}
        below = p.op(kind, (), f"constant({ends['GT']})")
        arrays = [x]
        if kind == "f64":
            arrays.append(p.call(kind, sizes, "broadcast", below, more=", dimensions={}"))
        else:
            arrays.append(known)
        for direction, end in ends.items():
            start, first = p.op(kind, (), f"constant({end})"), p.constant("s32", 0)
            more = f", dimensions={braces(axes)}, to_apply={place_region(p, kind, direction)}"
            for array in arrays:
                for places in (count, p.given("s32", sizes), p.given("s32", sizes, 5, 9)):
                    name = f"%pair{len(p._lines)}"
                    whole = f"({shape(kind, rest)}, {shape('s32', rest)})"
                    given = ", ".join((array, places, start, first))
                    p._lines.append(f"  {name} = {whole} reduce({given}){more}")
                    p.out(p.op(kind, rest, f"get-tuple-element({name}), index=0"))
                    p.out(p.op("s32", rest, f"get-tuple-element({name}), index=1"))


def order_region(
    p: Program, kinds: tuple[str, ...], keys: tuple[tuple[int, str], ...], canonical: bool
) -> str:
    """Return a comparison of sorts by keys with their directions; ``canonical``: as JAX's."""
    name = f"%order{len(p._before)}"
    lines = [f"  %p{n} = {kinds[n // 2]}[] parameter({n})" for n in range(2 * len(kinds))]
    below = ""
    for number, (key, direction) in reversed([*enumerate(keys)]):
        kind, sides = kinds[key], [f"%p{2 * key}", f"%p{2 * key + 1}"]
        total = ""
        if canonical and kind[0] == "f":
            total = ", type=TOTALORDER"
            for side in range(2):
                x, k = sides[side], f"{number}.{side}"
                lines += [
                    f"  %z{k} = {kind}[] constant(0)",
                    f"  %q{k} = {kind}[] constant(nan)",
                    f"  %n{k} = pred[] compare({x}, {x}), direction=NE",
                    f"  %e{k} = pred[] compare({x}, %z{k}), direction=EQ",
                    f"  %s{k} = {kind}[] select(%e{k}, %z{k}, {x})",
                    f"  %t{k} = {kind}[] select(%n{k}, %q{k}, %s{k})",
                ]
                sides[side] = f"%t{k}"
        one, other = sides
        lines.append(f"  %l{number} = pred[] compare({one}, {other}), direction={direction}{total}")
        if below:
            lines += [
                f"  %f{number} = pred[] compare({one}, {other}), direction=EQ{total}",
                f"  %a{number} = pred[] and(%f{number}, {below})",
                f"  %o{number} = pred[] or(%l{number}, %a{number})",
            ]
            below = f"%o{number}"
        else:
            below = f"%l{number}"
    stated = ", ".join(f"p{n}: {kinds[n // 2]}[]" for n in range(2 * len(kinds)))
    lines[-1] = f"  ROOT {lines[-1].strip()}"
    body = "\n".join(lines)
    p.before(f"{name} ({stated}) -> pred[] {{\n{body}\n}}\n")
    return name


def sorts(p: Program) -> None:
    """Sorts of several arrays by one key or two, up and down, with equal elements."""
    sizes = random_sizes(p, 2, 2, 7)
    axis = int(p.rng.integers(0, 2))
    for kinds, keys, canonical in (
        (("f64",), ((0, "LT"),), True),
        (("f64",), ((0, "GT"),), False),
        (("s32",), ((0, "LT"),), False),
        (("pred", "s32"), ((0, "GT"),), False),
        (("f64", "s32", "pred"), ((0, "LT"),), True),
        (("f64", "s32"), ((1, "GT"),), False),
        (("f64", "s32", "f64"), ((0, "GT"), (1, "LT")), True),
        (("s32", "f64", "s32"), ((2, "LT"), (0, "LT"), (1, "GT")), True),
    ):
        given = [p.given(kind, sizes, -2, 3) for kind in kinds]
        region = order_region(p, kinds, keys, canonical)
        more = f", dimensions={{{axis}}}, is_stable=true, to_apply={region}"
        if len(kinds) == 1:
            p.out(p.call(kinds[0], sizes, "sort", *given, more=more))
            p.out(p.call(kinds[0], sizes, "sort", *given, more=more.replace("true", "false")))
            continue
        name = f"%sort{len(p._lines)}"
        whole = f"({', '.join(shape(kind, sizes) for kind in kinds)})"
        p._lines.append(f"  {name} = {whole} sort({', '.join(given)}){more}")
        for number, kind in enumerate(kinds):
            p.out(p.op(kind, sizes, f"get-tuple-element({name}), index={number}"))


def branches(p: Program) -> None:
    """Conditionals whose branch is not known, within each other, and by device."""
    p.before(
        """%one (a: (f64[3], s32[], pred[])) -> (f64[3], s32[], pred[]) {
  %s = (f64[3], s32[], pred[]) parameter(0)
  %x = f64[3] get-tuple-element(%s), index=0
  %n = s32[] get-tuple-element(%s), index=1
  %b = pred[] get-tuple-element(%s), index=2
  %y = f64[3] sine(%x)
  %m = s32[] negate(%n)
  %c = pred[] not(%b)
  ROOT %t = (f64[3], s32[], pred[]) tuple(%y, %m, %c)
}

%two (a: (f64[3], s32[], pred[])) -> (f64[3], s32[], pred[]) {
  %s = (f64[3], s32[], pred[]) parameter(0)
  %x = f64[3] get-tuple-element(%s), index=0
  %n = s32[] get-tuple-element(%s), index=1
  %b = pred[] get-tuple-element(%s), index=2
  %y = f64[3] add(%x, %x)
  %k = s32[] constant(7)
  ROOT %t = (f64[3], s32[], pred[]) tuple(%y, %k, %b)
}

%three (a: (f64[3], s32[], pred[])) -> (f64[3], s32[], pred[]) {
  %s = (f64[3], s32[], pred[]) parameter(0)
  %b = pred[] get-tuple-element(%s), index=2
  ROOT %t = (f64[3], s32[], pred[]) conditional(%b, %s, %s), true_computation=%one, false_computation=%two
}
"""  # noqa: E501
    )
    state = "(f64[3], s32[], pred[])"
    x, n, b = p.given("f64", (3,)), p.given("s32", ()), p.given("pred", ())
    p._lines.append(f"  %state = {state} tuple({x}, {n}, {b})")
    device = p.call("s32", (), "convert", p.op("u32", (), "partition-id()"))
    both = (", true_computation=%two, false_computation=%three", 2)
    listed = (", branch_computations={%one, %two, %three}", 3)
    choices = [(p.given("pred", ()), both) for _ in range(2)]
    choices += [(p.given("s32", (), -1, 5), listed) for _ in range(4)] + [(device, listed)]
    for number, (choice, (more, count)) in enumerate(choices):
        given = ", ".join([choice, *["%state"] * count])
        p._lines.append(f"  %end{number} = {state} conditional({given}){more}")
        for place, (kind, sizes) in enumerate((("f64", (3,)), ("s32", ()), ("pred", ()))):
            p.out(p.op(kind, sizes, f"get-tuple-element(%end{number}), index={place}"))

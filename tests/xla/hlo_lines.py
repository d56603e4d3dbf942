"""Lines of HLO: right ones with an attribute each, and wrong ones with their errors."""

from __future__ import annotations

from fractions import Fraction

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.xla.text.values import (
    ConvolutionDimensions,
    Pad,
    Range,
    WindowDimension,
)

X = "%x = f32[4,6]{1,0} parameter(0)"
Y = "%y = f32[4,6]{1,0} parameter(1)"
P = "%p = f32[] parameter(2)"
I = "%i = s32[] parameter(3)"  # noqa: E741
B = "%b = pred[] parameter(4)"
T = "%t = (f32[], s32[]) parameter(5)"
GIVEN = (X, Y, P, I, B, T)

ATTRIBUTES: dict[str, tuple[str, str, object]] = {
    "negative padding": (
        "%r = f32[3,11]{1,0} pad(%x, %p), padding=-1_0_0x0_0_1",
        "padding",
        (Pad(-1, 0, 0), Pad(0, 0, 1)),
    ),
    "padding without interior": (
        "%r = f32[5,6]{1,0} pad(%x, %p), padding=0_1x0_0",
        "padding",
        (Pad(0, 1, 0), Pad(0, 0, 0)),
    ),
    "slice": (
        "%r = f32[2,3]{1,0} slice(%x), slice={[0:4:2], [1:4]}",
        "slice",
        (Range(0, 4, 2), Range(1, 4, 1)),
    ),
    "window": (
        "%r = f32[4,3]{1,0} reduce-window(%x, %p), window={size=1x2 stride=1x2 pad=0_0x0_1 "
        "lhs_dilate=1x2 rhs_dilate=1x3 rhs_reversal=0x1}, to_apply=%add",
        "window",
        (WindowDimension(1), WindowDimension(2, 2, 0, 1, 2, 3, True)),
    ),
    "window of one dimension": (
        "%r = f32[4,3]{1,0} reduce-window(%x, %p), window={size=2 pad=1_-1}, to_apply=%add",
        "window",
        (WindowDimension(2, low=1, high=-1),),
    ),
    "labels": (
        "%r = f32[4,6]{1,0} convolution(%x, %y), dim_labels=b0f1_10io->bf01",
        "dim_labels",
        ConvolutionDimensions(0, 2, (1, 3), 2, 3, (1, 0), 0, 1, (2, 3)),
    ),
    "precision": (
        "%r = f32[4,4]{1,0} dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
        "operand_precision={highest,default}",
        "operand_precision",
        ("highest", "default"),
    ),
    "direction": (
        "%r = pred[4,6]{1,0} compare(%x, %y), direction=GE, type=TOTALORDER",
        "direction",
        "GE",
    ),
    "text in braces": (
        '%r = f32[4,6]{1,0} copy(%x), backend_config={"a":{"b":[1,"}"]},"c":null}',
        "backend_config",
        '{"a":{"b":[1,"}"]},"c":null}',
    ),
    "text in quotes": (
        r'%r = f32[4,6]{1,0} copy(%x), backend_config="a\"b\\\303\274"',
        "backend_config",
        'a"b\\ü',
    ),
    "frontend attributes": (
        '%r = f32[4,6]{1,0} copy(%x), frontend_attributes={a.b="1",c={"d":2}}',
        "frontend_attributes",
        {"a.b": "1", "c": '{"d":2}'},
    ),
    "frontend attributes in another language": (
        "%r = f32[4,6]{1,0} call(%x), to_apply=%yes, is_composite=true, "
        'frontend_attributes={a={n = 1 : i32, t = dense<1> : tensor<i32>, s = "}"},b="1"}',
        "frontend_attributes",
        {"a": '{n = 1 : i32, t = dense<1> : tensor<i32>, s = "}"}', "b": "1"},
    ),
    "decimal": (
        "%r = f32[4,6]{1,0} batch-norm-inference(%x, %p, %p, %p, %p), epsilon=0.001, "
        "feature_index=1",
        "epsilon",
        Fraction(1, 1000),
    ),
    "escapes": (
        r'%r = f32[4,6]{1,0} copy(%x), backend_config="\x41\n\'\t\101"',
        "backend_config",
        "A\n'\tA",
    ),
    "target": (
        '%r = f32[2,6]{1,0} custom-call(%x), custom_call_target="SPMDFullToShardShape", '
        "sharding={manual}",
        "custom_call_target",
        "SPMDFullToShardShape",
    ),
    "pairs": (
        "%r = f32[4,6]{1,0} collective-permute(%x), channel_id=1, "
        "source_target_pairs={{0,1},{1,0}}",
        "source_target_pairs",
        ((0, 1), (1, 0)),
    ),
    "predecessors": (
        "%r = f32[4,6]{1,0} copy(%x), control-predecessors={%y, %p}",
        "control-predecessors",
        ("y", "p"),
    ),
    "largest": (
        "%r = (f32[4,2]{1,0}, s32[4,2]{1,0}) topk(%x), k=2, largest=false",
        "largest",
        False,
    ),
}


TRUE = """%yes (v: f32[4,6]) -> f32[4,6] {
  ROOT %v = f32[4,6]{1,0} parameter(0)
}
%still (v: f32[4,6]) -> pred[] {
  %v = f32[4,6]{1,0} parameter(0)
  ROOT %t = pred[] constant(true)
}
"""

WRONG: dict[str, tuple[str, type[Exception], str]] = {
    "unknown opcode": ("%r = f32[] frobnicate(%p)", UnsupportedError, "'frobnicate'"),
    "unknown attribute": (
        "%r = f32[4,6]{1,0} add(%x, %y), dimensions={0}",
        UnsupportedError,
        "'dimensions' of add",
    ),
    "attribute twice": (
        "%r = f32[4,4]{1,0} dot(%x, %y), lhs_batch_dims={}, lhs_batch_dims={0}",
        PlanError,
        "lhs_batch_dims twice",
    ),
    "attribute missing": ("%r = f32[6,4]{1,0} transpose(%x)", PlanError, "lacks the attribute"),
    "too few operands": ("%r = f32[4,6]{1,0} add(%x)", PlanError, "1 operands; 2 are"),
    "too many operands": ("%r = f32[4,6]{1,0} negate(%x, %y)", PlanError, "2 operands; 1 are"),
    "operand below": ("%r = f32[4,6]{1,0} negate(%later)", PlanError, "'later'"),
    "itself": ("%r = f32[4,6]{1,0} negate(%r)", PlanError, "'r'"),
    "name twice": ("%x = f32[4,6]{1,0} negate(%y)", PlanError, "second instruction"),
    "operand of another shape": (
        "%r = f32[4,6]{1,0} negate(f32[6,4]{1,0} %x)",
        PlanError,
        "said to be f32[6,4]",
    ),
    "elementwise of another shape": ("%r = f32[4,6]{1,0} add(%x, %p)", PlanError, "f32[]"),
    "tuple of another shape": ("%r = (f32[4,6], s32[]) tuple(%x, %p)", PlanError, "tuple"),
    "tuple of another length": ("%r = (f32[4,6]) tuple(%x, %p)", PlanError, "tuple"),
    "element of an array": ("%r = f32[] get-tuple-element(%x), index=0", PlanError, "element 0"),
    "unknown computation": (
        "%r = f32[4]{0} reduce(%x, %p), dimensions={1}, to_apply=%nowhere",
        PlanError,
        "'nowhere'",
    ),
    "the computation itself": (
        "%r = f32[4,6]{1,0} call(%x), to_apply=%main",
        PlanError,
        "so that none calls itself",
    ),
    "body of another shape": (
        "%r = f32[4,6]{1,0} while(%x), condition=%still, body=%add",
        PlanError,
        "'add'",
    ),
    "condition and body exchanged": (
        "%r = f32[4,6]{1,0} while(%x), condition=%yes, body=%still",
        PlanError,
        "'yes'",
    ),
    "choice of another type": (
        "%r = f32[4,6]{1,0} conditional(%b, %x), branch_computations={%yes}",
        PlanError,
        "chooses by pred[]",
    ),
    "branch missing": (
        "%r = f32[4,6]{1,0} conditional(%b, %x, %y), true_computation=%yes",
        PlanError,
        "true_computation and false_computation",
    ),
    "reduction of another arity": (
        "%r = f32[4]{0} reduce(%x, %p), dimensions={1}, to_apply=%yes",
        PlanError,
        "must have 2",
    ),
    "dynamic size": ("%r = f32[<=4,6]{1,0} negate(%x)", UnsupportedError, "when it runs"),
    "dynamic second size": ("%r = f32[4,<=6]{1,0} negate(%x)", UnsupportedError, "when it runs"),
    "unknown type": ("%r = f4e2m1fn[4,6]{1,0} convert(%x)", UnsupportedError, "f4e2m1fn"),
    "layout": ("%r = f32[4,6]{1,1} negate(%x)", PlanError, "layout"),
    "layout of another rank": ("%r = f32[4,6]{0} negate(%x)", PlanError, "layout"),
    "unknown direction": (
        "%r = pred[4,6]{1,0} compare(%x, %y), direction=XX",
        UnsupportedError,
        "direction=XX",
    ),
    "unknown precision": (
        "%r = f32[4,4]{1,0} dot(%x, %y), operand_precision={exact}",
        UnsupportedError,
        "'exact'",
    ),
    "slice backwards": ("%r = f32[0,6] slice(%x), slice={[3:1], [0:6]}", PlanError, "limit"),
    "stride zero": ("%r = f32[4,6] slice(%x), slice={[0:4:0], [0:6]}", PlanError, "stride"),
    "window of two ranks": (
        "%r = f32[4,6] reduce-window(%x, %p), window={size=1x2 stride=1}, to_apply=%add",
        PlanError,
        "stride of a window",
    ),
    "labels twice": (
        "%r = f32[4,6] convolution(%x, %y), dim_labels=b00f_01io->b01f",
        PlanError,
        "'b00f'",
    ),
    "pair of three": (
        "%r = f32[4,6] collective-permute(%x), source_target_pairs={{0,1,2}}",
        PlanError,
        "3 ids",
    ),
    "target twice": (
        "%r = f32[4,6] collective-permute(%x), source_target_pairs={{0,1},{1,1}}",
        PlanError,
        "target of two",
    ),
    "source twice": (
        "%r = f32[4,6] collective-permute(%x), source_target_pairs={{0,1},{0,2}}",
        PlanError,
        "source of two",
    ),
    "place unknown": (
        "%r = f32[4,6] negate(%x), metadata={stack_frame_id=1}",
        PlanError,
        "stack_frame_id=1",
    ),
    "sharding of another rank": (
        "%r = f32[4,6] negate(%x), sharding={devices=[2]<=[2]}",
        PlanError,
        "cuts 1 dimensions",
    ),
    "sharding of another count": (
        "%r = f32[4,6] negate(%x), sharding={devices=[2,2]<=[4]}",
        PlanError,
        "4 devices",
    ),
    "device beyond": (
        "%r = f32[4,6] negate(%x), sharding={maximal device=2}",
        PlanError,
        "device 2",
    ),
    "sharding of a tuple": (
        "%r = f32[4,6] negate(%x), sharding={{replicated}}",
        PlanError,
        "that of a tuple",
    ),
    "none of any number of operands": (
        "%r = f32[4,6] concatenate(), dimensions={0}",
        PlanError,
        "at least 1 are",
    ),
    "no shape": ("%r = 5 negate(%x)", PlanError, "a shape is expected"),
    "size missing": ("%r = f32[4,,6]{1,0} negate(%x)", PlanError, "size that is none"),
    "token of a size": ("%r = token[4] after-all()", PlanError, "no dimensions"),
    "layout of other marks": ("%r = f32[4,6]{1,0:!} negate(%x)", PlanError, "layout"),
    "element of another shape": (
        "%r = f32[4,6]{1,0} get-tuple-element(%t), index=1",
        PlanError,
        "element 1",
    ),
    "element beyond": ("%r = f32[] get-tuple-element(%t), index=2", PlanError, "element 2"),
    "branches of another number": (
        "%r = f32[4,6]{1,0} conditional(%b, %x), true_computation=%yes, false_computation=%yes",
        PlanError,
        "2 branches",
    ),
    "shardings of another number": (
        "%r = (f32[4,6], f32[]) tuple(%x, %p), sharding={{replicated}}",
        PlanError,
        "1 shardings",
    ),
    "one of some shardings of another rank": (
        "%r = (f32[4,6], f32[]) tuple(%x, %p), sharding={{replicated}, {devices=[2]<=[2]}}",
        PlanError,
        "cuts 1 dimensions",
    ),
    "frontend attribute twice": (
        '%r = f32[4,6] copy(%x), frontend_attributes={a="1",a="2"}',
        PlanError,
        "'a' stands twice",
    ),
    "no decimal": (
        "%r = f32[4,6] batch-norm-inference(%x, %p, %p, %p, %p), epsilon=x, feature_index=1",
        PlanError,
        "a number is expected",
    ),
    "no padding": ("%r = f32[4,6] pad(%x, %p), padding=3x3", PlanError, "0_0x1_1"),
    "long padding": (
        f"%r = f32[4,6] pad(%x, %p), padding=0_{'9' * 80}",
        PlanError,
        "no padding of a dimension",
    ),
    "window of another field": (
        "%r = f32[4,6] reduce-window(%x, %p), window={size=1x2 depth=1x2}, to_apply=%add",
        PlanError,
        "'depth'",
    ),
    "window without numbers": (
        "%r = f32[4,6] reduce-window(%x, %p), window={size=a}, to_apply=%add",
        PlanError,
        "3x3",
    ),
    "window that stands still": (
        "%r = f32[4,6] reduce-window(%x, %p), window={size=1x2 stride=0x1}, to_apply=%add",
        PlanError,
        "below 1",
    ),
    "window padded inside": (
        "%r = f32[4,6] reduce-window(%x, %p), window={size=1 pad=0_0_0}, to_apply=%add",
        PlanError,
        "0_0x1_1",
    ),
    "no labels": ("%r = f32[4,6] convolution(%x, %y), dim_labels=bf", PlanError, "b01f_01io"),
    "metadata twice": (
        '%r = f32[4,6] copy(%x), metadata={op_name="a" op_name="b"}',
        PlanError,
        "op_name twice",
    ),
    "metadata without a value": (
        "%r = f32[4,6] copy(%x), metadata={profile=}",
        PlanError,
        "a value of metadata",
    ),
    "predecessor below": (
        "%r = f32[4,6] copy(%x), control-predecessors={%later}",
        PlanError,
        "'later'",
    ),
    "text without a brace": (
        "%r = f32[4,6] copy(%x), origin=5",
        PlanError,
        "'{' is expected",
    ),
    "nested operand": ("%r = f32[4,6] negate(negate(%x))", PlanError, "'negate'"),
}

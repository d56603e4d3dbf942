"""The words for every kind of mistake: the only place where a diagnosis becomes text."""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.report.report import TriedRepair

MOST_PLACES = 12
"""Places of one mistake that are listed; of more the number is said."""

# --- no cause

READS_RIGHT = Kind(
    "PIT100",
    "what operator {operator!r} reads is right and its result {called} is not what it should be; "
    "no known cause explains it",
)
READS_UNKNOWN = Kind(
    "PIT100",
    "nothing says that what operator {operator!r} reads is wrong, but its result {called} is not "
    "what it should be; no known cause explains it",
)
NOT_LOOKED_AT = Kind("PIT100", "cause not found: the values could not be looked at ({error})")
NOT_FOUND = Kind("PIT100", "cause not found: none of the known causes explains the values")
STAGE_DIFFERS = Kind(
    "PIT100",
    "given all that is proven before it, {result!r} differs from what the plan says that it "
    "holds; no known cause explains it",
)

# --- factors

FACTOR = Kind(
    "PIT101",
    "every element is {meaning} times what it should be",
    "divide by that factor once, or drop the reduction that brought it",
    ("ratio",),
)
FACTOR_OF = Kind(
    "PIT101",
    "{result!r} is {meaning} times what it should be",
    "divide by that factor once, or drop the reduction that brought it",
    ("ratio",),
)
FACTOR_TOO_MUCH = Kind(
    "PIT101",
    "operator {operator!r} makes every element of {result!r} {meaning} times what it should be",
    "drop that factor ({kind} by {number})",
    ("kind", "number"),
)
LITERAL_FACTOR = Kind(
    "PIT101",
    "operator {operator!r} has the literal {literal} where it should have {right}: its result is "
    "{meaning} times what it should be",
    "use {right}",
    ("right",),
)
FACTOR_OF_REDUCTION = Kind(
    "PIT101",
    "operator {operator!r} takes the sum over {over} where it should take the mean: it is "
    "{meaning} times what it should be",
    "divide by {ratio} once, or reduce with 'avg'",
    ("over", "ratio"),
)
MEANS_FOR_SUMS = Kind(
    "PIT111",
    "operator {operator!r} takes the mean over {over} where it should take the sum",
    "reduce with 'sum'",
    ("over",),
)

# --- attributes, literals, functions

LITERAL = Kind(
    "PIT102",
    "operator {operator!r} has the literal {literal} where it should have {right}",
    "use {right}",
    ("right",),
)
REFERENCE_LITERAL = Kind(
    "PIT102",
    "operator {operator!r} has the literal {literal} where the reference has {right}",
    "use {right}",
    ("right",),
)
REFERENCE_READS = Kind(
    "PIT102", "operator {operator!r} reads {read} where the reference reads {right}", "use {right}"
)
REFERENCE_ATTRIBUTE = Kind(
    "PIT102", "operator {operator!r} has {different}", "use the reference's attribute"
)
ATTRIBUTE = Kind("PIT102", "operator {operator!r} has {different}", "use {right}", ("right",))
DRAW_ATTRIBUTE = Kind("PIT114", "operator {operator!r} has {different}", "use {right}", ("right",))
FUNCTION = Kind(
    "PIT102",
    "operator {operator!r} is {kind!r} where it should be {right!r}",
    "let {operator!r} be {right!r}",
)
OPERATOR_TOO_MUCH = Kind(
    "PIT102",
    "operator {operator!r} ({kind}) is applied to {kept}, which should be used as it is",
    "drop {operator!r}",
)
FUNCTION_LEFT_OUT = Kind(
    "PIT102",
    "{called} is passed on where {function} of it should be",
    "run {function} on {called}",
    ("function",),
)
OTHER_MASK = Kind(
    "PIT102",
    "operator {operator!r} ({kind}) reads {called}, which is not {box} of {right!r}, what the "
    "reference reads for these elements",
    "read {box} of {right!r} there",
)
OTHER_DRAW = Kind(
    "PIT114",
    "operator {operator!r} ({kind}) draws {drawn}; they are not those that the reference draws "
    "for these elements",
    "draw {right}",
)

# --- operands

EXCHANGED = Kind(
    "PIT103",
    "operator {operator!r} ({kind}) has its operands exchanged: {first} stands where {second} "
    "should",
    "exchange the first two operands of {operator!r}",
)
READS_OTHER = Kind(
    "PIT103", "operator {operator!r} reads {read} where it should read {right}", "read {right}"
)
READS_OTHER_THAN_REFERENCE = Kind(
    "PIT103",
    "operator {operator!r} reads {read}{origin} where the reference reads {right!r}",
    "read {right!r}",
)
LAYERS_NOT_RUN = Kind(
    "PIT115",
    "operator {operator!r} reads {read}{origin} where the reference reads {right!r}, which no "
    "rank computes: {lost} of the reference are passed over",
    "run what computes {right!r}",
)
COPY_OF_OTHER = Kind(
    "PIT103",
    "operator {operator!r} makes {result!r} a copy of {reads}, where it should be {box} of "
    "{right!r}",
    "read {holders}",
)
PART_OF_OTHER = Kind(
    "PIT103",
    "operator {operator!r}, which reads {reads}, makes {result!r} a part of {held!r} where it "
    "should be {box} of {right!r}",
    "read {holders}",
)
TERM_TWICE = Kind(
    "PIT108",
    "operator {operator!r} has the term {read} twice, where {right} should be one of them",
    "read {right}",
)
READS_TERM = Kind(
    "PIT104",
    "operator {operator!r} reads {read} where it should read {right}: it is a term that is not "
    "reduced yet",
    "read {right}{after}",
)
READS_TERM_OVER = Kind(
    "PIT104",
    "operator {operator!r} reads {read} where it should read {right}: it is a term of that, of a "
    "sum over {over}",
    "an all-reduce(sum) over {over} of {read} before it is used makes it right",
    ("over",),
)
READS_TERMS_IN_PART = Kind(
    "PIT104",
    "operator {operator!r} reads {read} where it should read {right}: parts of it are terms that "
    "are not reduced yet",
    "read {right}",
)
READ_TOO_EARLY = Kind(
    "PIT116",
    "operator {operator!r} reads {read} where it should read {right}, a later version of it: it "
    "is read too early",
    "read {right}{after}",
)
OTHER_VERSION = Kind(
    "PIT116",
    "operator {operator!r} reads {read} where it should read {right}, another version of the same "
    "buffer",
    "read {right}",
)
PASSED_OVER = Kind(
    "PIT115",
    "operator {operator!r} reads {read} where it should read {right}: {lost} are passed over",
    "read {right}",
)
CROSSED_CALLS = Kind(
    "PIT116",
    "{operators} ({kind}) are called in another order on some ranks than on others: tensors of "
    "one meet the other's",
    "call them in one order on all ranks",
)

# --- reductions

NOT_REDUCED = Kind(
    "PIT104",
    "{result!r} is {what} over {over}, and is used as if it were {whole}",
    "an all-reduce({reduction}) over {over} of {result!r} before it is used makes it right",
    ("reduction", "over"),
)
TERM_USED = Kind(
    "PIT104",
    "{called} is a term of a {what} over {over}, and operator {reader!r} uses it as if it were "
    "the {what}",
    "an all-reduce({reduction}) over {over} of {result!r} before it is used makes it right",
    ("reduction", "over"),
)
TERM_OF_ROUNDS_USED = Kind(
    "PIT104",
    "{called} is a term of a {what} over {over}, and operator {reader!r} uses it as if it were "
    "the {what}",
    "let {reader!r} do what is right for a term of a {what} over all of these, or use the {what}",
)
COPIED_TERM = Kind(
    "PIT104",
    "operator {operator!r} copies what a rank has of {called}, a term of a {what} over {over}, "
    "where it should copy that {what}",
    "a reduction({reduction}) over {over} in its place makes it right",
    ("reduction", "over"),
)
TOO_NARROW = Kind(
    "PIT106",
    "{result!r} is a term of a {what} over {over}, but {operator!r} reduces it over part of that "
    "group",
    "let {operator!r} run over {over}",
    ("over",),
)
REDUCED_BY_OTHER_MEANS = Kind(
    "PIT111",
    "{term!r} is a term of a sum over {over}, but {operator!r} takes their {reduction}",
    "let the reduction of {operator!r} be 'sum'",
)
REDUCED_OVER_OTHERS = Kind(
    "PIT106",
    "{term!r} is a term of a sum over {over}, but {operator!r} does not take that sum",
    "let {operator!r} run over {over}",
    ("over",),
)
REDUCED_AGAIN = Kind(
    "PIT105",
    "it is {meaning} times what it should be, and was already reduced before its last reduction",
    "drop one of the reductions",
)
REDUCED_ONCE_MORE = Kind(
    "PIT105",
    "operator {operator!r} reduces {result!r} once more than it should be",
    "drop this reduction",
)
SUM_OF_EQUALS = Kind(
    "PIT105",
    "operator {operator!r} adds up{over} what is the same on all members already",
    "drop one of the reductions, or reduce with 'avg'",
)
SUM_OF_EQUALS_TIMES = Kind(
    "PIT105",
    "operator {operator!r} adds up what is the same on all members already: {meaning} times what "
    "it should be; every output is right without that",
    "drop one of the reductions",
)
MEAN_FOR_SUM = Kind(
    "PIT111",
    "operator {operator!r} takes the mean of terms; every output is right with their sum",
    "reduce with 'sum'",
)
REDUCES_NOT_BY_SUM = Kind(
    "PIT111",
    "operator {operator!r} reduces with {reduction!r} where it should take the sum",
    "reduce with 'sum'",
)
OTHER_REDUCTION = Kind(
    "PIT111",
    "operator {operator!r} takes the {own} of terms{over} where it should take their {right}",
    "reduce with {reduction!r}",
    ("reduction",),
)
OTHER_GROUP = Kind(
    "PIT106",
    "operator {operator!r} ({kind}) runs over another group than it should",
    "let {operator!r} run over {over}",
    ("over",),
)
OTHER_ORDER_OF_MEMBERS = Kind(
    "PIT107",
    "operator {operator!r} ({kind}) joins its members in the order {order}, where it should join "
    "them in the order {right}",
    "let the members of {operator!r} stand in that order",
)
ADDED_SIDE_BY_SIDE = Kind(
    "PIT111",
    "operator {operator!r} reduces what its ranks have, element by element, where all of it "
    "should stand side by side",
    "an all-gather along dimension {axis} in its place",
    ("axis",),
)
MEAN_OF_MEANS = Kind(
    "PIT112",
    "{result!r} is the count of one rank or micro-batch, by which its sum is divided; the mean of "
    "such means over {over} is not the mean of all",
    "divide the sum of all by the count of all: an all-reduce({reduction}) over {over} of "
    "{result!r} before it is used makes it right",
    ("over",),
)
MEAN_OF_NORMS = Kind(
    "PIT111",
    "operator {operator!r} takes the mean of the ranks' norms, where the norm over {over} is the "
    "root of the sum of their squares",
    "sum {result!r}, the squares, over {over}, and take the root of that",
    ("over",),
)
NORM_OF_RANK = Kind(
    "PIT113",
    "the norm is taken over part of the parameters: {result!r} has the squares of one rank, not "
    "of all over {over}",
    "an all-reduce({reduction}) over {over} of {result!r} before it is used makes it right",
    ("over",),
)
NORM_WITHOUT = Kind(
    "PIT113",
    "the norm in {result!r} is taken over part of the parameters: without {names}",
    "add their squares to it",
)

# --- parts

HOLDS_OTHER_PART = Kind(
    "PIT107", "{result!r} holds {held} of {right!r} where it should hold {box}", "take {box} there"
)
RESULT_HOLDS_OTHER_PART = Kind(
    "PIT107",
    "the result {result!r} of operator {operator!r} holds {held} of {right!r} where it should "
    "hold {box}; it reads {parts}",
    "take {box} there",
)
PART_DOUBLED = Kind(
    "PIT107",
    "{box} of {right!r} is {used} nowhere, while {doubled}",
    "let one of them take {box}: its slice, weight shard or micro-batch is another's",
)
BATCH_DOUBLED = Kind("PIT108", PART_DOUBLED.said, PART_DOUBLED.repair)
JOINED_TWICE = Kind(
    "PIT107",
    "operator {operator!r} joins {boxes} of {right!r} on rank {rank}: one part more than once",
    "gather the parts of all ranks, and join each of them once",
)
PARTS_APART = Kind(
    "PIT107",
    "operator {operator!r} reads parts that do not belong together: {parts}",
    "let all of them hold the parts that belong together: one's slice or shard is another's",
)
OTHER_PLACE = Kind(
    "PIT107",
    "operator {operator!r} has {attribute} = {place} on rank {rank} where it should be {right} "
    "({why})",
    "use {attribute} = {right} there",
    ("attribute", "right"),
)
PARTS_EXCHANGED = Kind(
    "PIT107",
    "operator {operator!r} ({kind}) joins its parts in another order: {parts} are exchanged",
    "exchange parts {first} and {second} of {operator!r}",
    ("first", "second"),
)
REORDERED = Kind(
    "PIT107",
    "{result!r}, of operator {operator!r}, has the right elements in another order{over}{element}",
    "put the elements of {result!r} in the right order",
)
NOT_GATHERED = Kind(
    "PIT107",
    "operator {operator!r} takes what the rank has of {called}, where it should take the parts of "
    "all ranks over {over}",
    "an {collective} over {over} in its place makes it right",
    ("collective", "over"),
)
NOT_EXCHANGED = Kind(
    "PIT107",
    "{called} is passed on as every rank has it, where it should have parts of all ranks over "
    "{over}",
    "an all-to-all from dimension {axis} to {axis} over {over} of it makes it right",
    ("axis", "over"),
)
AXES_EXCHANGED = Kind(
    "PIT107",
    "{names} cut over {outer} first, and each part over {inner}; the program puts them together "
    "as if they were cut over {inner} first",
    "cut {cut} over {inner} first, and each part over {outer}",
)
PARTS_ORDERED = Kind(
    "PIT107",
    "{names}: parts lie in another order than the program takes them in: rank {rank} holds {held} "
    "where it should hold {box}",
    "give ranks and micro-batches the parts of {names} in the order of the mesh",
)
INTERLEAVED = Kind(
    "PIT117",
    "{result!r} is {pieces} fused tensors, cut in {shards} shards as one stretch; the program "
    "takes each shard apart as if it had a part of all {pieces}",
    "give each rank its part of every one of the {pieces}, or split the whole before it is cut",
)

# --- terms and micro-batches

MICROBATCH_LEFT_OUT = Kind(
    "PIT108",
    "operator {operator!r} leaves out micro-batch {batches} of {called}",
    "add up all micro-batches",
)
READS_ONE_MICROBATCH = Kind(
    "PIT108",
    "operator {operator!r} reads {called} of micro-batch {batch} in other micro-batches too",
    "let each micro-batch read what belongs to it",
)
READS_OTHER_MICROBATCH = Kind(
    "PIT108",
    "operator {operator!r} reads {called} of micro-batch {batch} where it should read {right}",
    "let each micro-batch be read where it should be",
)
NOT_EVERY_MICROBATCH = Kind(
    "PIT108",
    "operator {operator!r} does not add up every micro-batch once",
    "add up all micro-batches",
)
MICROBATCHES_WEIGHTED = Kind(
    "PIT108",
    "{result!r} has {called} of micro-batches 0 to {last} times {weights}, where each should "
    "count {right}",
    "add up all micro-batches, each once",
)
TERM_TOO_MUCH = Kind(
    "PIT108", "operator {operator!r} has the term {term!r} too much", "drop that term"
)
MISSES_TERM = Kind(
    "PIT108", "it misses the term {term!r} (of operator {writer!r})", "add that term once"
)
HAS_TERM_TOO_MUCH = Kind(
    "PIT108", "it has too much of the term {term!r} (of operator {writer!r})", "drop that term once"
)
MISSES_REFERENCE_TERM = Kind(
    "PIT108", "it misses the reference's term {term!r}", "add that term once"
)
HAS_REFERENCE_TERM_TOO_MUCH = Kind(
    "PIT108", "it has too much of the reference's term {term!r}", "drop that term once"
)
ADDED_ON_EVERY_RANK = Kind(
    "PIT108",
    "operator {operator!r} adds {called} on every rank over {over}, and the results are summed "
    "then: it counts {count} times",
    "add {called} to the sum, or on one of the {count} ranks",
    ("count",),
)
USED_WITHOUT_TERM = Kind(
    "PIT108", "{called} is used without the term {term}", "add {term} once", ("number",)
)
USED_WITHOUT_NEGATED_TERM = Kind(
    "PIT108",
    "{called} is used without the term {term} (with a minus)",
    "take away {term} once",
    ("number",),
)
USED_WITHOUT_FACTOR = Kind(
    "PIT102", "{called} is used without the factor {term}", "multiply by {term} once", ("number",)
)
USED_WITHOUT_DIVISOR = Kind(
    "PIT102", "{called} is used without the divisor {term}", "divide by {term} once", ("number",)
)
NORM_WITHOUT_TERM = Kind("PIT113", USED_WITHOUT_TERM.said, USED_WITHOUT_TERM.repair, ("number",))
READ_WITHOUT_TERM = Kind(
    "PIT108", "operator {operator!r} reads {called} without the term {term}", "add {term} once"
)
READ_WITHOUT_NEGATED_TERM = Kind(
    "PIT108",
    "operator {operator!r} reads {called} without the term {term} (with a minus)",
    "take away {term} once",
)
READ_WITHOUT_FACTOR = Kind(
    "PIT102",
    "operator {operator!r} reads {called} without the factor {term}",
    "multiply by {term} once",
)
READ_WITHOUT_DIVISOR = Kind(
    "PIT102",
    "operator {operator!r} reads {called} without the divisor {term}",
    "divide by {term} once",
)
TERM_LEFT_OUT = Kind(
    "PIT108",
    "{called} is used without the term {term}, which {left_out!r} ({function}) of the reference "
    "joins to it",
    "run {function} on {called} and {term}",
    ("function",),
)
OPERATOR_LEFT_OUT = Kind(
    "PIT115",
    "{called} is used where the reference uses what {left_out!r} ({function}) makes of it, which "
    "no rank computes",
    "run {function} on {called}",
    ("function",),
)
NOT_UPDATED = Kind(
    "PIT108",
    "{output!r} is {result!r} as it was given, without the term {term!r}",
    "add {term!r} once",
)
LEFT_AS_GIVEN = Kind(
    "PIT108",
    "{output!r} is {result!r} as it was given: no rank does what {left_out!r} ({function}) of the "
    "reference does",
    "run {function} on {result!r}: does its gradient reach the operator that updates it?",
)
NOT_UPDATED_NEGATED = Kind("PIT108", NOT_UPDATED.said, "take away {term!r} once")

# --- replicas

REPLICAS_DIFFER = Kind(
    "PIT109",
    "{result!r} is right on some ranks and wrong on others",
    "let all replicas run the same operators",
)
COMPUTED_OTHERWISE = Kind(
    "PIT109",
    "operator {operator!r} ({kind}) computes {result!r} otherwise than on other ranks or "
    "micro-batches",
    "drop {operator!r}: let all replicas run the same operators",
)
_STANDS = (
    "operator {operator!r} ({kind}) stands in the place of {other!r} ({other_kind}), which "
    "other ranks or micro-batches run"
)
_RUN = "run {other!r} everywhere"
_DOES = (
    "operator {operator!r} ({kind}) writes {result!r} where on other ranks {other!r} "
    "({other_kind}) does"
)
_LET = "let all ranks run {other!r}"
IN_PLACE_OF = {
    "PIT102": Kind("PIT102", _STANDS, _RUN),
    "PIT104": Kind("PIT104", f"{_STANDS}: what it gives is not reduced", _RUN),
    "PIT105": Kind("PIT105", f"{_STANDS}: what it gives is reduced once more", _RUN),
    "PIT107": Kind("PIT107", f"{_STANDS}: it has the rank's part alone", _RUN),
    "PIT108": Kind("PIT108", f"{_STANDS}: the term {{term}} is missing", _RUN),
}
"""By code what stands in the place of an operator that other ranks or micro-batches run."""
WRITES_IN_PLACE_OF = {
    "PIT102": Kind("PIT102", _DOES, _LET),
    "PIT104": Kind("PIT104", f"{_DOES}: what it gives is not reduced", _LET),
    "PIT105": Kind("PIT105", f"{_DOES}: what it gives is reduced once more", _LET),
    "PIT107": Kind("PIT107", f"{_DOES}: it has the rank's part alone", _LET),
    "PIT108": Kind("PIT108", f"{_DOES}: the term {{term}} is missing", _LET),
}
"""By code what writes a tensor in the place of an operator of another kind."""
_WRITES = "operator {operator!r} ({kind}) writes {result!r}"
SIBLING_TERM_TWICE = Kind(
    "PIT108", f"{_WRITES} and has the term {{read}} twice, as operand {{place}}, too", "{right}"
)
SIBLING_READS = {
    code: Kind(code, f"{_WRITES} and reads {{read}} as operand {{place}}", "{right}")
    for code in ("PIT102", "PIT103", "PIT106", "PIT108")
}
"""By code what reads another operand than on other ranks."""
SIBLING_ATTRIBUTES = {
    code: Kind(code, f"{_WRITES} with {{different}}", "do as {other!r} does")
    for code in ("PIT102", "PIT107", "PIT111")
}
"""By code what has another attribute than on other ranks."""
SIBLING_OTHERWISE = {
    code: Kind(code, f"{_WRITES} otherwise than {{other!r}} on other ranks", "do as {other!r} does")
    for code in ("PIT106", "PIT109")
}
"""By code what is done otherwise than on other ranks."""


def said(diagnosis: Diagnosis) -> str:
    """Return what is said of a mistake."""
    return diagnosis.kind.said.format(**diagnosis.facts)


def repair(diagnosis: Diagnosis) -> str:
    """Return what would mend it; "" if nothing is known."""
    return diagnosis.kind.repair.format(**diagnosis.facts)


def places(others: Sequence[tuple[str, str]]) -> str:
    """Return the further places of one mistake, (operator, tensor) each, as text."""
    if not others:
        return ""
    named = ", ".join(
        f"{operator!r} ({tensor!r})" if operator else repr(tensor)
        for operator, tensor in others[:MOST_PLACES]
    )
    more = len(others) - MOST_PLACES
    return f"; the same mistake is made at {named}{f' and {more} more' if more > 0 else ''}"


def tried(effect: TriedRepair, *, mended: bool, everything: int) -> str:
    """Return which outputs a repair makes right. "every output" stands where every output was
    computed anew and compared.
    """
    some = _some(effect.right)
    if mended and not effect.wrong:
        right = (
            f"every output {'' if effect.compared == everything else 'that differs '}is right then"
        )
    else:
        right = f"{some} right then" + (f", {_some(effect.wrong)} not" if effect.wrong else "")
    return f"(tried{', all repairs together' if effect.together else ''}: {right})"


def _some(names: Sequence[str]) -> str:
    return f"{names[0]!r} is" if len(names) == 1 else f"{names[0]!r} and {len(names) - 1} more are"


def title(code: str, output: str, result: str) -> str:
    """Return the title of a finding: what is wrong with the tensor ``result``, or with
    ``output``.
    """
    return _TITLES.get(code, "{output!r} differs from the reference").format(
        output=output, result=result
    )


_TITLES = {
    "PIT101": "{result!r} is off by a constant factor",
    "PIT102": "an operator computes {result!r} otherwise than the reference",
    "PIT103": "{result!r} is computed from another tensor than in the reference",
    "PIT104": "{result!r} is not summed where it must be",
    "PIT105": "{result!r} is reduced more than once",
    "PIT106": "{result!r} is reduced over another group than it must be",
    "PIT107": "{result!r} holds another part than it should",
    "PIT108": "a term or micro-batch is missing or doubled in {result!r}",
    "PIT109": "replicas of {output!r} differ",
    "PIT111": "{result!r} is reduced in another way than it must be",
    "PIT112": "{output!r} is a mean of means of unequal counts",
    "PIT113": "the norm in {result!r} leaves out some of the parameters",
    "PIT114": "{result!r} is drawn from other random numbers than it must be",
    "PIT115": "a layer is lost before {result!r}",
    "PIT116": "{result!r} is computed from another version of a buffer, or out of order",
    "PIT117": "the parts of a fused tensor are interleaved otherwise in {result!r}",
}

"""The sentences of the page of results."""

from __future__ import annotations

LINE = "| {} |"
HEAD = """# Models of transformers

This page shows how many ordinary model classes of `transformers` are decided under
`DistributedDataParallel` and FSDP2, class by class. It is generated from the results of
`bench/model_zoo.py`, last on {date}, with PyTorch 2.13 and transformers 5.24:

<!-- not run: it takes hours, and needs transformers -->

```
pip install 'pitcheck[torch,transformers]'
python bench/model_zoo.py --results zoo.jsonl --resume
python bench/model_zoo.py --results zoo.jsonl --resume --wrapper fsdp2
python bench/model_zoo.py --results zoo.jsonl --resume --wrong unreduced
python bench/model_zoo.py --results zoo.jsonl --write-only --table docs/model-zoo.md
```

Each class is built from its own configuration at toy size: one layer (of hybrid models one of each
kind), 16 features, two heads, a vocabulary of 16, no dropout. A step of SGD on a batch of four rows
is compared on one device and on two data parallel ranks. A check has a limit of wall time, and the
last column is its processor seconds. Rows are kept from run to run, so that they may be of several
versions of pitcheck. `pitcheck check bench/model_zoo_spec.py:CLASS__ddp` checks one class by
itself.

**What is right.** A class trains a step in plain PyTorch first, on the whole batch and on its
halves: in float64, or in float32 if it runs in nothing else. Where the halves do not average to
the whole, data parallelism changes the program, and a mismatch is the right verdict. It is so for
BatchNorm over the rows of a rank, for instance.
Otherwise only `equivalent` is right.

"""
FOOT = """
## Planted mistakes

`--wrong` plants one of three mistakes: gradients are summed and not averaged (`summed`), the last
parameter's gradient is never reduced (`unreduced`), or one rank divides its loss by another count
(`count`). None of these programs may be called equivalent.
"""

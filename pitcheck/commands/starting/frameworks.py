"""The frameworks that ``pitcheck init`` knows, and the files that it writes for each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SPEC = "pitcheck_spec.py"
CONFIGURATION = "plans/pitcheck-start.toml"
SETTINGS = "pitcheck.toml"
_FILES = Path(__file__).parent / "files"


@dataclass(frozen=True)
class Framework:
    """A framework: the modules that programs of it import, and a start for a check of one.

    ``template`` is the file that becomes ``target``, ``layout`` the fields of a configuration.
    ``note`` says what a user of the framework should know, "" for nothing.
    """

    name: str
    title: str
    modules: tuple[str, ...]
    template: str
    target: str
    layout: str = ""
    note: str = ""

    def text(self) -> str:
        """Return the content of the file that is written."""
        written = (_FILES / self.template).read_text(encoding="utf-8")
        for place, value in (("STYLE", self.title), ("FILE", self.target), ("LAYOUT", self.layout)):
            written = written.replace(f"@{place}@", value)
        return written

    @property
    def source(self) -> str:
        """The written file as ``pitcheck check`` takes it."""
        return f"{self.target}:spec" if self.is_program else self.target

    @property
    def is_program(self) -> bool:
        """True if a specification of PyTorch programs is written."""
        return self.target == SPEC

    @property
    def example(self) -> str:
        """The sentence on what is checked at first, which is not the program of the user."""
        if self.is_program:
            return (
                f"your own program is not checked yet: {self.target} checks an example, and its "
                f"verdict is about that; put your model, step and batch at the places that say EDIT"
            )
        return (
            f"your own program is not checked: {self.target} is an example of a model and a "
            f"layout; put your numbers at the places that say EDIT"
        )


FRAMEWORKS = (
    Framework(
        "megatron",
        "Megatron-core",
        ("megatron",),
        "megatron.py.txt",
        SPEC,
        note="Megatron-core's GPTModel can be checked as it is: see Megatron-core on the page "
        "'PyTorch programs'",
    ),
    Framework(
        "torchtitan",
        "torchtitan, on FSDP2 and DTensor",
        ("torchtitan",),
        "sharded.py.txt",
        SPEC,
        note="torchtitan's parallelize_llama can be checked as it is: see torchtitan on the page "
        "'PyTorch programs'",
    ),
    Framework(
        "deepspeed",
        "DeepSpeed, ZeRO stage 1",
        ("deepspeed",),
        "layout.toml.txt",
        CONFIGURATION,
        "dp = 4\ntp = 2\nmicrobatches = 2\nzero = 1                         # or 2, 3",
        note="pitcheck does not record DeepSpeed's engine yet; the configuration proves the layout "
        "that it stands for",
    ),
    Framework(
        "nnscaler",
        "nnScaler",
        ("nnscaler",),
        "layout.toml.txt",
        CONFIGURATION,
        "dp = 2\ntp = 2\npp = 2\nmicrobatches = 2",
        note="pitcheck reads the execution plans that nnScaler writes: `pitcheck check "
        "REFERENCE.pkl PARALLEL.pkl`; the configuration needs none",
    ),
    Framework(
        "fsdp2",
        "PyTorch with FSDP2 and DTensor",
        (
            "torch.distributed.fsdp",
            "torch.distributed.tensor",
            "torch.distributed._tensor",
            "torch.distributed._composable",
        ),
        "sharded.py.txt",
        SPEC,
    ),
    Framework("torch", "PyTorch, data parallel", ("torch",), "replicated.py.txt", SPEC),
    Framework(
        "jax",
        "JAX, sharded parameters and tensor parallelism",
        ("jax", "flax"),
        "layout.toml.txt",
        CONFIGURATION,
        "dp = 4\ntp = 2\nzero = 3                         # parameters are sharded over dp",
        note="pitcheck does not read JAX programs yet; the configuration proves the layout that it "
        "stands for",
    ),
)
"""The nearest to a program comes first: who imports Megatron imports PyTorch as well."""

NONE = Framework(
    "none",
    "Data, tensor and pipeline parallel",
    (),
    "layout.toml.txt",
    CONFIGURATION,
    "dp = 2\ntp = 2\npp = 2\nmicrobatches = 2\nsequence_parallel = true",
)
"""The start for a folder in which no framework is found."""


def settings_text() -> str:
    """Return the content of a file with settings."""
    return (_FILES / SETTINGS).read_text(encoding="utf-8")

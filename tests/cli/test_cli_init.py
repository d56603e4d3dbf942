"""``pitcheck init``: the framework that is found, and files that run as they stand."""

from __future__ import annotations

import importlib.util
import os
import tomllib
import warnings
from pathlib import Path

import pytest
from conftest import Call

from pitcheck.cli import init as command
from pitcheck.commands.starting import scan
from pitcheck.commands.starting.all_or_nothing import write_all
from pitcheck.commands.starting.frameworks import (
    CONFIGURATION,
    FRAMEWORKS,
    NONE,
    SETTINGS,
    SPEC,
    Framework,
    settings_text,
)
from pitcheck.errors import UsageError
from pitcheck.report.destinations import write_whole

NAMED = {each.name: each for each in (*FRAMEWORKS, NONE)}


@pytest.fixture(autouse=True)
def bare(folder: Path) -> None:
    (folder / "pyproject.toml").unlink()


def found(folder: Path, **files: str) -> str:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return next(iter(scan.scan(folder).frameworks()), NONE).name


# --- what is found


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import torch\nfrom megatron.core import parallel_state\n", "megatron"),
        ("from torchtitan.config import JobConfig\nimport torch\n", "torchtitan"),
        ("import torch, deepspeed\n", "deepspeed"),
        ("import nnscaler\nimport torch\n", "nnscaler"),
        ("from torch.distributed import fsdp\n", "fsdp2"),
        ("def f():\n    from torch.distributed.tensor.parallel import x\n", "fsdp2"),
        ("import torch.nn as nn\n", "torch"),
        ("import jax.numpy as jnp\n", "jax"),
        ("import torchvision, jaxtyping\nfrom .torch import x\nfrom . import jax\n", "none"),
        ("# import torch\ntext = 'import torch'\n", "none"),
        ("", "none"),
    ],
)
def test_the_framework_is_found_by_imports(folder: Path, text: str, name: str) -> None:
    assert found(folder, train=text) == name


def test_files_are_read_and_never_run(folder: Path) -> None:
    text = "import torch\nopen('ran', 'w')\nraise SystemExit('\\d')\n"
    warnings.simplefilter("error")  # reading an unknown escape warns
    assert found(folder, train=text) == "torch"
    assert not (folder / "ran").exists()


def test_what_cannot_be_read_is_counted(folder: Path) -> None:
    for name, data in (
        ("broken", b"import torch\ndef f(:\n"),
        ("nul", b"import torch\0\n"),
        ("latin", b"import torch\nx = '\xff'\n"),
        ("large", b"import torch\n" + b"#" * scan.MOST_BYTES),
        ("deep", b"import torch\nx = " + b"(" * 5000 + b")" * 5000),
    ):
        (folder / f"{name}.py").write_bytes(data)
    os.mkfifo(folder / "pipe.py")
    (folder / "folder.py").mkdir()
    (folder / "good.py").write_text("import jax\n")
    read = scan.scan(folder)
    assert (read.files, read.unread, read.importing) == (1, 6, {"jax": ["good.py"]})


def test_links_lead_nowhere_outside(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "train.py").write_text("import torch\n")
    (folder / "link.py").symlink_to(outside / "train.py")
    (folder / "linked").symlink_to(outside)
    (folder / "loop.py").symlink_to("loop.py")
    (folder / "gone.py").symlink_to("none.py")
    assert found(folder) == "none"
    (folder / "real.txt").write_text("import jax\n")
    (folder / "inside.py").symlink_to("real.txt")
    assert found(folder) == "jax"


def test_environments_and_hidden_folders_are_left_out(folder: Path) -> None:
    for name in (".hidden", "env", "node_modules", "lib/site-packages"):
        (folder / name / "inner").mkdir(parents=True)
        (folder / name / "inner" / "train.py").write_text("import torch\n")
    (folder / "env" / "pyvenv.cfg").write_text("")
    assert found(folder) == "none"


def test_the_number_of_files_is_bounded(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (folder / f"m{number}.py").write_text("import jax\n")
    monkeypatch.setattr(scan, "MOST_FILES", 3)
    assert scan.scan(folder).importing == {"jax": ["m0.py", "m1.py", "m2.py"]}
    assert "not read     more than " in call("init").out
    monkeypatch.setattr(scan, "MOST_ENTRIES", 2)
    assert not scan.scan(folder).whole


# --- what is written


def test_every_framework_can_be_asked_for() -> None:
    option = next(each for each in command.params if each.name == "framework")
    assert [*option.type.choices] == [each.name for each in FRAMEWORKS]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMED)
def test_what_is_written_is_whole(name: str) -> None:
    framework = NAMED[name]
    text = framework.text()
    assert not [word for word in ("@STYLE@", "@FILE@", "@LAYOUT@") if word in text]
    assert "EDIT" in text
    if framework.is_program:
        compile(text, SPEC, "exec")
    else:
        tomllib.loads(text)
    assert tomllib.loads(settings_text())["seed"] == 1


def test_it_says_what_it_found_wrote_and_what_to_run(call: Call, folder: Path) -> None:
    (folder / "repository").mkdir()
    (folder / "repository" / "train.py").write_text("import deepspeed, torch\n")
    result = call("init", "repository")
    assert result.code == 0
    assert result.out.splitlines() == [
        "framework    DeepSpeed, ZeRO stage 1: imported by 1 of 1 Python file, train.py first",
        "also         PyTorch, data parallel: imported by 1 (--framework torch writes a start for "
        "it)",
        "wrote        repository/plans/pitcheck-start.toml",
        "wrote        repository/pitcheck.toml",
        "note         your own program is not checked: plans/pitcheck-start.toml is an example of "
        "a model and a layout; put your numbers at the places that say EDIT",
        "note         pitcheck does not record DeepSpeed's engine yet; the configuration proves "
        "the layout that it stands for",
        "next         cd repository && pitcheck check plans/pitcheck-start.toml",
    ]


@pytest.mark.parametrize("name", NAMED)
def test_it_says_that_the_program_of_the_user_is_not_checked(
    call: Call, folder: Path, name: str
) -> None:
    result = call("init", *(() if name == "none" else ("--framework", name)))
    yet = " yet" if NAMED[name].is_program else ""
    assert f"note         your own program is not checked{yet}: " in result.out
    assert NAMED[name].target in result.out


@pytest.mark.parametrize("above", [SETTINGS, "pyproject.toml", None])
def test_hidden_settings_of_a_folder_above_are_named(
    call: Call, folder: Path, above: str | None
) -> None:
    (folder / "inner" / "deep").mkdir(parents=True)
    if above is not None:
        (folder / above).write_text(
            "quiet = true\n" if above == SETTINGS else "[tool.pitcheck]\nquiet = true\n"
        )
    said = call("init", "inner/deep").out
    hidden = f"inner/deep/{SETTINGS} hides the settings of {folder / (above or '')}: "
    assert (hidden in said) == (above is not None)
    assert ("hides" in said) == (above is not None)


def test_settings_that_stay_hide_nothing_new(call: Call, folder: Path) -> None:
    (folder / SETTINGS).write_text("quiet = true\n")
    (folder / "inner").mkdir()
    (folder / "inner" / "pyproject.toml").write_text("[tool.pitcheck]\nquiet = true\n")
    assert "hides" not in call("init", "inner").out


def test_it_says_what_to_install(call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (folder / "train.py").write_text("import torch\n")
    assert "first        pip install 'pitcheck[torch]'\n" in call("init").out


def test_settings_of_a_pyproject_stay(call: Call, folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.pitcheck]\nquiet = true\n")
    result = call("init")
    assert (result.code, (folder / SETTINGS).exists()) == (0, False)
    assert "settings     stay in pyproject.toml" in result.out
    assert call("check", CONFIGURATION, "--no-cache").out.startswith("equivalent: ")


@pytest.mark.parametrize("there", [CONFIGURATION, SETTINGS])
def test_nothing_is_overwritten_and_nothing_half_written(
    call: Call, folder: Path, there: str
) -> None:
    (folder / there).parent.mkdir(exist_ok=True)
    (folder / there).symlink_to("nowhere")
    before = sorted(folder.rglob("*"))
    result = call("init")
    assert (result.code, sorted(folder.rglob("*"))) == (2, before)
    assert f"{there} is there already, and nothing was written; --force replaces it" in result.err
    (folder / there).unlink()
    (folder / there).write_text("mine")
    assert call("init").code == 2
    assert (folder / there).read_text() == "mine"
    assert call("init", "--force").code == 0
    assert (folder / there).read_text() in (NONE.text(), settings_text())


def test_a_failure_leaves_everything_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {"plans/new.toml": "new", "old.toml": "new", "pitcheck.toml": "new"}
    (folder / "old.toml").write_text("mine")
    (folder / "pitcheck.toml").mkdir()
    with pytest.raises(UsageError, match="is no plain file"):
        write_all(folder, contents, replace=True)
    assert (folder / "old.toml").read_text() == "mine"
    assert not (folder / "plans").exists()
    (folder / "pitcheck.toml").rmdir()
    (folder / "pitcheck.toml").write_text("mine, too")

    def full(path: Path, data: bytes) -> None:
        if path.name == "pitcheck.toml" and data == b"new":
            raise OSError(28, "No space left on device")
        write_whole(path, data)

    monkeypatch.setattr("pitcheck.commands.starting.all_or_nothing.write_whole", full)
    with pytest.raises(UsageError, match="No space left on device; nothing was written"):
        write_all(folder, contents, replace=True)
    assert (folder / "old.toml").read_text() == "mine"
    assert (folder / "pitcheck.toml").read_text() == "mine, too"
    assert not (folder / "plans").exists()


def test_nothing_is_written_outside(
    call: Call, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (folder / "plans").symlink_to(outside)
    result = call("init")
    assert (result.code, [*outside.iterdir()], (folder / SETTINGS).exists()) == (2, [], False)
    assert "plans leads out of ." in result.err
    target = outside / "mine.toml"
    target.write_text("mine")
    (folder / SETTINGS).symlink_to(target)
    (folder / "plans").unlink()
    assert call("init", "--force").code == 2
    assert (target.read_text(), (folder / "plans").exists()) == ("mine", False)


def test_a_wrong_directory_is_refused(call: Call, folder: Path) -> None:
    (folder / "file").write_text("")
    for name in ("none", "file"):
        result = call("init", name)
        assert result.code == 2
        assert f"{name} is no directory" in result.err


# --- what is written runs


@pytest.mark.parametrize("name", ["deepspeed", "jax", "nnscaler", "none"])
def test_a_configuration_is_proven(call: Call, folder: Path, name: str) -> None:
    if name != "none":
        (folder / "train.py").write_text(f"import {name}\n")
    assert f"next         pitcheck check {CONFIGURATION}\n" in call("init").out
    right = call("check", CONFIGURATION, "--no-cache")
    assert (right.code, "seed 1" in right.out) == (0, True)
    assert right.out.startswith("equivalent: ")
    file = folder / CONFIGURATION
    file.write_text(file.read_text().replace("tp = 2", "tp = 3"))
    assert call("check", CONFIGURATION, "--no-cache").code == 2


MISTAKES = {
    "megatron": ("        dist.all_reduce(gradient, group=context.group)\n", ""),
    "torchtitan": ('    fully_shard(model, mesh=mesh["dp"])\n', ""),
    "torch": ("return DistributedDataParallel(model)", "return model"),
}
"""A line of each specification, and what a mistake makes of it."""


def of(framework: Framework) -> str:
    return f"import {framework.modules[0]}\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_specification_is_proven_and_its_mistake_caught(
    call: Call, folder: Path, name: str
) -> None:
    (folder / "train.py").write_text(of(NAMED[name]))
    assert f"next         pitcheck check {SPEC}:spec\n" in call("init").out
    right = call("check", f"{SPEC}:spec", "--no-cache")
    assert right.out.startswith("equivalent: "), right
    before, after = MISTAKES[name]
    file = folder / SPEC
    text = file.read_text()
    assert text.count(before) == 1
    file.write_text(text.replace(before, after))
    wrong = call("check", f"{SPEC}:spec", "--no-cache", "--no-explain")
    assert (wrong.code, wrong.out.startswith("mismatch: ")) == (1, True), wrong

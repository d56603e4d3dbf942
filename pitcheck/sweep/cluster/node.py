"""The part of a sweep on a Ray cluster that its nodes do: one configuration for each call.

The configuration is checked by the same child process as on the machine of the sweep. A node that
would check something else refuses: with another pitcheck, without the folder, with other files.
"""

from __future__ import annotations

import os

import msgspec

from pitcheck.cache.meaning import meaning
from pitcheck.sweep.affected import Inputs
from pitcheck.sweep.child.process import Processes
from pitcheck.sweep.child.task import Task
from pitcheck.sweep.result import without_report

SHOWN = 12
"""The first digits of a version that messages show."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A task, the folder from which its files are named, and the number of these files.

    ``files`` is :meth:`Inputs.named` on the machine of the sweep.
    """

    task: Task
    directory: str
    files: str


def answer(code: str, content: bytes) -> tuple[str, bytes]:
    """Return why this node can check nothing, or "", and the JSON of a result.

    ``code`` is the version of pitcheck's code on the machine of the sweep, ``content`` the JSON of
    an :class:`Order`, which has a meaning for that version alone.
    """
    if meaning() != code:
        here, there = meaning()[:SHOWN], code[:SHOWN]
        return f"its pitcheck or its libraries are others (version {here}, not {there})", b""
    order = msgspec.json.decode(content, type=Order)
    try:
        os.chdir(order.directory)
    except OSError as error:
        return f"{order.directory}: {error.strerror or error}", b""
    task = order.task
    if Inputs().named(task.planned) != order.files:
        said = "its files are others on the node than on the machine of the sweep; share the folder"
        result = without_report(task.planned, task.seed, "crashed", said)
    else:
        result = Processes().checked(task, {})
    return "", msgspec.json.encode(result)

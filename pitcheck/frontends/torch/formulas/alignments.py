"""Connectionist temporal classification: the probability of all alignments of labels and frames.

Graves et al., *Connectionist Temporal Classification* (2006). Labels are read with a blank before
each and one at the end; these are *marks*. PyTorch computes with logarithms; here the same
probabilities are sums of products. Labels and lengths must be numbers that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

Tensor = torch.Tensor
Sizes = Sequence[int]


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sizes | Tensor,
    target_lengths: Sizes | Tensor,
    blank: int = 0,
    zero_infinity: bool = False,  # noqa: ARG001  an alignment is there
) -> Any:
    """Return the negative logarithm of the probability of each row's labels.

    Returns:
        The losses; and the frames' states, of which this derivative has no use. NotImplemented if
        some row has no alignment, or a blank among its labels.
    """
    marks = Marks.of(targets, input_lengths, target_lengths, blank)
    if not marks.align(blank):
        return NotImplemented
    losses = -marks.probability(marks.forward(marks.emitted(log_probs.exp()))).log()
    return losses, torch.zeros_like(log_probs)


def ctc_loss_backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sizes | Tensor,
    target_lengths: Sizes | Tensor,
    neg_log_likelihood: Tensor,  # noqa: ARG001  computed again
    log_alpha: Tensor,  # noqa: ARG001
    blank: int,
    zero_infinity: bool = False,  # noqa: ARG001  an alignment is there
) -> Any:
    """Return the gradient of the logarithms of probabilities that a softmax has made.

    As PyTorch's, it is that of what the softmax was taken of.
    """
    marks = Marks.of(targets, input_lengths, target_lengths, blank)
    if not marks.align(blank):
        return NotImplemented
    probabilities = log_probs.exp()
    emitted = marks.emitted(probabilities)
    ahead = marks.forward(emitted)
    shares = ahead * marks.backward(emitted) / marks.probability(ahead).unsqueeze(-1)
    taken = torch.zeros_like(log_probs).scatter_add(2, marks.places(len(emitted)), shares)
    heard = marks.where(len(emitted), 1, lambda row, frame, _: frame < marks.frames[row])
    return torch.where(heard, (probabilities - taken) * grad.unsqueeze(-1), 0)


@dataclass(frozen=True)
class Marks:
    """The marks of each row, as many as the longest row has, and the row's frames and labels."""

    numbers: Sequence[Sequence[int]]
    frames: Sequence[int]
    lengths: Sequence[int]

    @staticmethod
    def of(
        targets: Tensor,
        input_lengths: Sizes | Tensor,
        target_lengths: Sizes | Tensor,
        blank: int,
    ) -> Marks:
        """Return the marks of labels that lie in rows, or one row after the other."""
        frames, lengths = (
            [int(item) for item in each.tolist()] if isinstance(each, Tensor) else [*each]
            for each in (input_lengths, target_lengths)
        )
        numbers = []
        for row, length in enumerate(lengths):
            start = sum(lengths[:row])
            said = targets[row, :length] if targets.dim() == 2 else targets[start : start + length]
            marks = [blank]
            for label in said.tolist():
                marks += [int(label), blank]
            numbers.append(marks + [blank] * (2 * (max(lengths) - length)))
        return Marks(numbers, frames, lengths)

    def align(self, blank: int) -> bool:
        """Return True if each row has frames for its labels, and a blank between two equal ones.

        The loss of other rows is infinite, and its gradient no number.
        """
        for numbers, frames, length in zip(self.numbers, self.frames, self.lengths, strict=True):
            labels = numbers[1 : 2 * length : 2]
            again = sum(one == next_one for one, next_one in pairwise(labels))
            if blank in labels or frames < length + again or not frames:
                return False
        return True

    @property
    def count(self) -> int:
        """The number of marks of a row."""
        return len(self.numbers[0])

    def places(self, frames: int) -> Tensor:
        """Return the class of each mark, (frames, rows, marks)."""
        return torch.tensor(self.numbers).expand(frames, -1, -1)

    def emitted(self, probabilities: Tensor) -> Tensor:
        """Return the probability of each mark in each frame, (frames, rows, marks)."""
        return probabilities.gather(2, self.places(len(probabilities)))

    def where(self, frames: int, marks: int, holds: Callable[[int, int, int], bool]) -> Tensor:
        """Return a mask, (frames, rows, marks), of what holds for row, frame and mark."""
        return torch.tensor(
            [
                [
                    [holds(row, frame, mark) for mark in range(marks)]
                    for row in range(len(self.frames))
                ]
                for frame in range(frames)
            ]
        )

    def ends(self, frames: int) -> Tensor:
        """Return the mask of the last label and the last blank, in the last frame of each row."""

        def ending(row: int, frame: int, mark: int) -> bool:
            return frame == self.frames[row] - 1 and 0 <= 2 * self.lengths[row] - mark <= 1

        return self.where(frames, self.count, ending)

    def skips(self, step: int) -> Tensor:
        """Return the mask of the labels that are reached without the blank between, by a step."""

        def reached(row: int, _: int, mark: int) -> bool:
            other, numbers = mark - 2 * step, self.numbers[row]
            inside = mark % 2 == 1 and 0 <= other < self.count
            return inside and numbers[mark] != numbers[other]

        return self.where(1, self.count, reached)[0]

    def forward(self, emitted: Tensor) -> Tensor:
        """Return the probability of all alignments up to each frame that end at each mark."""
        frames = emitted.unbind(0)
        begins = self.where(1, self.count, lambda _row, _frame, mark: mark < 2)[0]
        skips = self.skips(1)
        states = [torch.where(begins, frames[0], 0)]
        for frame in frames[1:]:
            states.append(_moved(states[-1], skips, 1) * frame)
        return torch.stack(states)

    def backward(self, emitted: Tensor) -> Tensor:
        """Return the probability of what may follow each mark after each frame."""
        frames = emitted.unbind(0)
        ends = self.ends(len(frames)).to(emitted.dtype).unbind(0)
        skips = self.skips(-1)
        states = [ends[-1]]
        for frame, end in zip(reversed(frames[1:]), reversed(ends[:-1]), strict=True):
            states.append(_moved(states[-1] * frame, skips, -1) + end)
        return torch.stack(states[::-1])

    def probability(self, ahead: Tensor) -> Tensor:
        """Return the probability of all alignments of each row."""
        return torch.where(self.ends(len(ahead)), ahead, 0).sum((0, 2))


def _moved(state: Tensor, skips: Tensor, step: int) -> Tensor:
    """Return what reaches each mark: by staying, by one step, and by two where it may skip."""
    return state + _shifted(state, step) + torch.where(skips, _shifted(state, 2 * step), 0)


def _shifted(state: Tensor, step: int) -> Tensor:
    """Return states moved by some marks, with zeros where nothing comes from."""
    count = state.shape[-1]
    size = min(abs(step), count)
    empty = torch.zeros((*state.shape[:-1], size), dtype=state.dtype)
    if step > 0:
        return torch.cat([empty, state.narrow(-1, 0, count - size)], -1)
    return torch.cat([state.narrow(-1, size, count - size), empty], -1)

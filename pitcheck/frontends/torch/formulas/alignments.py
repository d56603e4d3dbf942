"""Connectionist temporal classification: the probability of all alignments of labels and frames.

Graves et al., *Connectionist Temporal Classification* (2006). Labels are read with a blank before
each and one at the end. PyTorch computes with logarithms; here the same probabilities are sums of
products. Lengths must be numbers that are known.
"""

from __future__ import annotations

from collections.abc import Sequence

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
) -> tuple[Tensor, Tensor]:
    """Return the negative logarithm of the probability of each row's labels.

    Returns:
        The losses; and the frames' states, of which this derivative has no use.
    """
    rows, _ = _rows(log_probs, targets, input_lengths, target_lengths, blank)
    losses = torch.stack([-_probability(_forward(*row)).log() for row in rows])
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
) -> Tensor:
    """Return the gradient of the logarithms of probabilities that a softmax has made.

    As PyTorch's, it is that of what the softmax was taken of.
    """
    rows, frames = _rows(log_probs, targets, input_lengths, target_lengths, blank)
    found = []
    for number, (probabilities, labels, skips) in enumerate(rows):
        ahead = _forward(probabilities, labels, skips)
        behind = _backward(probabilities, labels, skips)
        shares = torch.stack(ahead) * torch.stack(behind) / _probability(ahead)
        taken = torch.zeros_like(probabilities).index_add(1, labels, shares)
        slope = (probabilities - taken) * grad[number]
        rest = torch.zeros_like(log_probs[frames[number] :, number])
        found.append(torch.cat([slope, rest]))
    return torch.stack(found, 1)


Aligned = tuple[Tensor, Tensor, list[int]]
"""Probabilities, (frames, classes); labels with blanks; which may follow the one before last."""


def _rows(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sizes | Tensor,
    target_lengths: Sizes | Tensor,
    blank: int,
) -> tuple[list[Aligned], list[int]]:
    """Return the rows of a batch, and how many frames each has."""
    frames, lengths = (
        [int(item) for item in each.tolist()] if isinstance(each, Tensor) else [*each]
        for each in (input_lengths, target_lengths)
    )
    starts = [sum(lengths[:row]) for row in range(len(lengths))]
    rows: list[Aligned] = []
    for row, (count, length, start) in enumerate(zip(frames, lengths, starts, strict=True)):
        said = targets[row, :length] if targets.dim() == 2 else targets[start : start + length]
        numbers = [blank]
        for label in said.tolist():
            numbers += [int(label), blank]
        skips = [at for at in range(3, len(numbers), 2) if numbers[at] != numbers[at - 2]]
        labels = torch.tensor(numbers, device=log_probs.device)
        rows.append((log_probs[:count, row].exp(), labels, skips))
    return rows, frames


def _forward(probabilities: Tensor, labels: Tensor, skips: Sequence[int]) -> list[Tensor]:
    """Return, frame by frame, the probability of all alignments that end at each label."""
    emitted = probabilities.index_select(1, labels)
    states = [_only(emitted[0], range(min(2, labels.numel())))]
    for frame in emitted[1:].unbind(0):
        states.append(_moved(states[-1], skips, 1) * frame)
    return states


def _backward(probabilities: Tensor, labels: Tensor, skips: Sequence[int]) -> list[Tensor]:
    """Return, frame by frame, the probability of what may follow each label."""
    emitted = probabilities.index_select(1, labels)
    count = labels.numel()
    states = [_only(torch.ones_like(emitted[0]), range(max(count - 2, 0), count))]
    for frame in reversed(emitted[1:].unbind(0)):
        states.append(_moved(states[-1] * frame, [at - 2 for at in skips], -1))
    return states[::-1]


def _moved(state: Tensor, skips: Sequence[int], step: int) -> Tensor:
    """Return what reaches each label: by staying, by one step, and by two where it may skip."""
    return state + _shifted(state, step) + _only(_shifted(state, 2 * step), skips)


def _shifted(state: Tensor, step: int) -> Tensor:
    """Return a vector moved by some places, with zeros where nothing comes from."""
    size = min(abs(step), state.numel())
    empty = torch.zeros(size, dtype=state.dtype, device=state.device)
    kept = state.numel() - size
    return torch.cat([empty, state[:kept]] if step > 0 else [state[size:], empty])


def _only(state: Tensor, places: Sequence[int]) -> Tensor:
    """Return a vector with zeros except at some places."""
    kept = set(places)
    mask = torch.tensor([at in kept for at in range(state.numel())], device=state.device)
    return torch.where(mask, state, 0)


def _probability(states: Sequence[Tensor]) -> Tensor:
    """Return the probability of all alignments that end with the last label or the last blank."""
    return states[-1][-2:].sum()

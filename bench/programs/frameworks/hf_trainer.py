"""The Trainer of transformers: its own loop over micro-batches, spread by accelerate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from hf_transformers import LENGTH, ROWS, VOCABULARY, built
from small import Batch, named
from transformers import Trainer, TrainingArguments

from pitcheck.torch import Input, Part, Program, Rank, Spec

STEPS = 1000
"""The steps of the whole training, over which the learning rate falls."""
LABELS = [
    number % VOCABULARY if place < 2 + row else -100
    for row in range(ROWS * 2)
    for place, number in enumerate(range(row, row + LENGTH))
]
"""Labels of rows that end early: those of later rows have more of them, and so have later ranks."""
MISTAKES = (
    "tokens of one rank",
    "loss not divided",
    "another learning rate on one rank",
)


def trainer_of(model: Any, micro: int, learning_rate: float = 0.1, **arguments: Any) -> Trainer:
    """Return the trainer as a training script makes it."""
    return Trainer(
        model,
        TrainingArguments(
            "trained",
            use_cpu=True,
            gradient_accumulation_steps=micro,
            learning_rate=learning_rate,
            report_to="none",
            logging_strategy="no",
            save_strategy="no",
            disable_tqdm=True,
            **arguments,
        ),
    )


def training(trainer: Trainer, micro: int = 1) -> Program:
    """Return a program that runs the loop of a trainer up to one step of its optimizer."""
    model, _ = trainer._prepare_for_training(STEPS, None, None)
    trainer.state.max_steps = STEPS

    def step(batch: Batch) -> torch.Tensor:
        parts = zip(batch["tokens"].chunk(micro), batch["labels"].chunk(micro), strict=True)
        batches = [{"input_ids": ids, "labels": labels} for ids, labels in parts]
        trainer._tr_loss = torch.zeros(())
        trainer._run_epoch(model, 0, batches, micro, 1, None, None, 0.0, None, 0, 0)
        return trainer._tr_loss

    return Program(model, step, trainer.optimizer, names=lambda name: name.removeprefix("module."))


def spec(
    mesh: Mapping[str, int], mistake: str = "", micro: int = 1, clip: float = 0.0, **more: Any
) -> Spec:
    """Return a trainer on one device, and on several."""
    named(MISTAKES, mistake)

    def parallel(rank: Rank) -> Program:
        faster = mistake == "another learning rate on one rank" and rank.number
        averaged = mistake != "tokens of one rank"
        trainer = trainer_of(
            built("Llama"),
            micro,
            max_grad_norm=clip,
            average_tokens_across_devices=averaged,
            ddp_broadcast_buffers=False,
            learning_rate=0.2 if faster else 0.1,
            **more,
        )
        if mistake == "loss not divided":
            trainer.model_accepts_loss_kwargs = False
            trainer.loss_is_scaled_for_ga = True
        return training(trainer, micro)

    split, shape = {0: "dp"}, (ROWS * 2, LENGTH)
    return Spec(
        lambda: training(trainer_of(built("Llama"), 1, max_grad_norm=clip, **more)),
        parallel,
        mesh,
        {
            "tokens": Input(shape, "int64", (0, VOCABULARY), split),
            "labels": Input(shape, "int64", split=split, values=LABELS),
        },
        {"loss": Part(mean="dp")},
    )

"""`cudamaster train`: trains a model on judged kernels, stage by stage."""

from __future__ import annotations

import click

from cudamaster.cli import options, train_corpus, train_stages


@click.group(cls=options.Group)
def train() -> None:
    """Train a model that writes kernels: its data, and the stages of the CUDA-L1 and CUDA-L2 papers."""


train.add_command(train_stages.sft)
train.add_command(train_stages.selftaught)
train.add_command(train_stages.contrastive)
train.add_command(train_stages.report)
train.add_command(train_corpus.corpus)

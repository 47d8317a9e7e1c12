"""Train a LightningModule of your own, with Lightning's own Trainer, on the data module of this
package.

A batch has the tokens of each role (``batch["roles"]["anchor"]``) and the numbers of its rows
(``batch["index"]``). Rows are tokenised once, in the order of a seed, and a checkpoint of the
Trainer has the position in the epoch.
"""

from pathlib import Path

import pytorch_lightning as pl
import torch

import lightning_cse
from lightning_cse.data import ContrastiveData, ContrastiveDataModule, OwnRows
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.losses import InfoNCE

FILE = Path(__file__).resolve().parent / "bicycles" / "triplets.csv"
ROLES = ("anchor", "positive", "negative")


class Mine(pl.LightningModule):
    """An encoder and a loss."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.loss = InfoNCE(temperature=0.05)

    def training_step(self, batch: dict, batch_idx: int) -> torch.Tensor:
        """Encode all roles in one pass, and compare them."""
        template = self.encoder.template()
        vectors = self.encoder([(batch["roles"][role], template) for role in ROLES])
        loss = self.loss(*vectors)
        self.losses.append(loss.item())
        return loss

    def on_train_start(self) -> None:
        """Begin the list of losses."""
        self.losses: list[float] = []

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=5e-5)


pl.seed_everything(0, verbose=False)
encoder = lightning_cse.load("minilm_l6").encoder
settings = ContrastiveData(
    train=[str(FILE)], rows=OwnRows(), batch_size=32, drop_last=True, data_dir=".", held_out_share=0
)
data = ContrastiveDataModule(settings, tokenize=encoder.tokenizer, seed=0, roles=ROLES)
method = Mine(encoder.train())  # it is loaded for evaluation, and Lightning keeps the mode
trainer = pl.Trainer(
    accelerator="cpu",
    max_epochs=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(method, data)
print(f"{len(data.train)} rows, {trainer.global_step} steps")
print("loss falls:", sum(method.losses[-3:]) < sum(method.losses[:3]))

"""Measure alignment, uniformity and relative fitting difficulty (RFD) in a training loop of your
own.

RFD compares how well a model fits held-out rows of its training data with how well it fits the
evaluation data: held-out minus evaluation, for alignment and for uniformity. Losses and metrics
take tensors, so any loop will do.
"""

import torch

import lightning_cse
from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.losses import InfoNCE
from lightning_cse.metrics import alignment, relative_fitting_difficulty, uniformity

torch.manual_seed(0)
encoder = lightning_cse.load("minilm_l6")


def pairs(
    corpus: str, split: str, first: str, second: str, rows: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the vectors of sentence pairs of a corpus: (rows, 384) each."""
    table = read_corpus(corpus, split, sample_dir())
    one = encoder.encode(table[first][:rows])
    other = encoder.encode(table[second][:rows])
    return torch.from_numpy(one), torch.from_numpy(other)


anchor, positive = pairs("inli", "train", "premise", "explicit_entailment", 64)
held_out = pairs("inli", "val", "premise", "explicit_entailment", 20)
evaluation = pairs("stsb", "dev", "sentence1", "sentence2", 40)

head = torch.nn.Linear(384, 64)  # your model: here a layer on frozen vectors
optimizer, loss_of = torch.optim.AdamW(head.parameters(), lr=1e-3), InfoNCE(temperature=0.05)
measured: dict[str, list[tuple[float, float]]] = {"alignment": [], "uniformity": []}
for step in range(51):
    if step > 0 and step % 10 == 0:  # RFD leaves step 0 out
        with torch.no_grad():
            (x, y), (u, v) = [(head(one), head(other)) for one, other in (held_out, evaluation)]
        measured["alignment"].append((float(alignment(x, y)), float(alignment(u, v))))
        measured["uniformity"].append((float(uniformity(x)), float(uniformity(u))))
    optimizer.zero_grad()
    loss = loss_of(head(anchor), head(positive))
    loss.backward()
    optimizer.step()

for name, values in measured.items():
    print(f"RFD of {name}: {relative_fitting_difficulty(*zip(*values, strict=True)):+.3f}")

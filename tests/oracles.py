"""Oracles that check formulas and models: seeded numbers, formulas as loops, a few sentences."""

import copy
import math

import numpy as np
import torch
from torch import nn

from lightning_cse.embeddings import GaussianEmbedding, PointEmbedding
from lightning_cse.encoders import tiny_encoder
from lightning_cse.engine.inference import SentenceModel
from lightning_cse.evaluation import run_tasks


def result_of(task, model, split="test"):
    """Return the result of one task."""
    return run_tasks({"task": task}, model, split)["task"]


def normal(*shape, seed=0, dtype=torch.float64):
    """Return normal numbers, drawn by the seed in float64 and then converted to the dtype."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def gaussians(n, d, *, seed=0, dtype=torch.float64, scale=1.0):
    """Return Gaussians with normal means, and log variances of this standard deviation."""
    mean, log_variance = normal(2, n, d, seed=seed)
    return GaussianEmbedding(mean.to(dtype), (scale * log_variance).to(dtype))


def cos(x, y):
    """Return the cosine of two vectors, computed in float64."""
    x, y = x.double(), y.double()
    return (x @ y / (x @ x).sqrt() / (y @ y).sqrt()).item()


def divergences(a, i, b, j):
    """Return KL(a_i || b_j) of each dimension, spelled out."""
    result = []
    for h in range(a.mean.shape[1]):
        s = math.exp(a.log_variance[i, h])
        t = math.exp(b.log_variance[j, h])
        difference = float(a.mean[i, h] - b.mean[j, h])
        result.append((s / t + difference**2 / t - 1 - math.log(s / t)) / 2)

    return result


def reduced(kl, reduce):
    """Return the similarity of two Gaussians from the divergence of each dimension."""
    if reduce == "sim_of_sum":
        return 1 / (1 + math.fsum(kl))

    return math.fsum(1 / (1 + k) for k in kl) / len(kl)


def sim(a, i, b, j, reduce="mean_of_sims"):
    """Return the similarity of Gaussian i of ``a`` to Gaussian j of ``b``."""
    return reduced(divergences(a, i, b, j), reduce)


def cross_entropy(positive, candidates, temperature):
    """Return the contrastive loss of one row from the similarities of its candidates."""
    total = math.fsum(math.exp(candidate / temperature) for candidate in candidates)
    return math.log(total) - positive / temperature


def nt_xent(first, second, temperature):
    """Return the loss of each vector of both views against all others."""
    vectors = [*first, *second]
    count = len(first)
    total = 0.0
    for i, vector in enumerate(vectors):
        similarities = [cos(vector, candidate) for candidate in vectors]
        positive = similarities[(i + count) % (2 * count)]
        total += cross_entropy(positive, similarities[:i] + similarities[i + 1 :], temperature)

    return total / len(vectors)


SENTENCES = [
    "The kettle is on, if you would like to stay.",
    "She would rather walk.",
    "Nobody had told the new teacher about the bell.",
    "He fixed the gate before breakfast.",
    "Is the last train gone?",
]
"""Five sentences of different lengths."""


class Numbers:
    """A model that embeds a sentence as the number after its last blank and the length of its first
    word.
    """

    def __init__(self):
        self.embedded: list[str] = []

    def embed(self, sentences):
        self.embedded += sentences
        return PointEmbedding(
            torch.tensor([[float(s.split()[-1]), float(len(s.split()[0]))] for s in sentences])
        )


class Difference(Numbers):
    """Similarity, and how far a pair is entailed, is the difference of two numbers."""

    def similarity(self, a, b):
        return b.vector[:, 0] - a.vector[:, 0]

    entailment_score = similarity


def untrained(method, *, encoder=None, **options):
    """Return a loaded model with random layers; the two parts of a bi-encoder differ."""
    torch.manual_seed(0)
    model = method(encoder or tiny_encoder(max_length=48), **options).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("implicit_"):
                parameter.add_(0.1 * torch.randn_like(parameter))

    settings = model.settings()

    return SentenceModel(model, "some", settings["_target_"], {"weights": "1" * 64})


def save_tiny(folder, **options):
    """Save the tiny encoder with save_pretrained, and return its folder."""
    encoder = tiny_encoder(**options)
    encoder.backbone.save_pretrained(folder)
    encoder.tokenizer.tokenizer.save_pretrained(folder)

    return folder


def senteval_classifier(x, labels, fold, l2, classes):
    """Fit SentEval's classifier as a loop in float64, on a fold (train, dev or None); also return
    the epochs.
    """
    random = np.random.RandomState(1111)
    torch.manual_seed(1111)
    model = nn.Linear(x.shape[1], classes).double()
    x = x.double()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=l2)
    train, dev = fold
    if dev is None:
        permutation = random.permutation(len(train))
        apart = int(0.05 * len(train))
        train, dev = train[permutation[apart:]], train[permutation[:apart]]

    best = -1.0
    epochs = 0
    count = 0
    while count <= 5 and epochs <= 200:
        for _ in range(4):
            permutation = random.permutation(len(train))
            for start in range(0, len(train), 64):
                batch = train[permutation[start : start + 64]]
                loss = nn.functional.cross_entropy(model(x[batch]), labels[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        epochs += 4
        accuracy = (model(x[dev]).argmax(1) == labels[dev]).double().mean().item()
        if accuracy > best:
            best = accuracy
            best_model = copy.deepcopy(model)
        else:
            count += 1

    return best_model, epochs

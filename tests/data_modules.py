"""A data module on the sample corpora whose tokens are words, and what its batches hold."""

import zlib

from lightning_cse.data import ContrastiveData, ContrastiveDataModule, sample_dir


class Words:
    """A tokenize function whose tokens are words, and that can turn them back."""

    digest = "words"

    def __init__(self):
        self.known = {}

    def __call__(self, sentences):
        return [[self._id(word) for word in sentence.split()] for sentence in sentences]

    def decode(self, ids):
        return [" ".join(self.known[number] for number in sentence) for sentence in ids]

    def _id(self, word):
        number = zlib.crc32(word.encode()) >> 1
        self.known[number] = word
        return number


def data_module(
    train, rows, *, tokenize=None, seed=0, roles=(), optional=(), instructed=None, **settings
):
    """Return a data module with small batches; further arguments are its settings."""
    settings = {"batch_size": 8, "drop_last": False, "data_dir": str(sample_dir())} | settings
    return ContrastiveDataModule(
        ContrastiveData(train=train, rows=rows, **settings),
        tokenize=tokenize or Words(),
        seed=seed,
        roles=roles,
        optional=optional,
        instructed=instructed,
    )


def batch_rows(data, epochs=1):
    """Return the row numbers of the batches of some epochs."""
    loader = data.train_dataloader()
    return [batch["index"].tolist() for _ in range(epochs) for batch in loader]


def ids_of(tokens):
    """Return the ids of each sentence, without padding."""
    return [ids[:n].tolist() for ids, n in zip(tokens.ids, tokens.lengths, strict=True)]

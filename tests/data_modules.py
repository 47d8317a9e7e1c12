"""Training rows of a scheme, and a data module on the sample corpora whose tokens are words."""

import zlib
from collections import Counter

from lightning_cse.data import ContrastiveData, ContrastiveDataModule, SourceFile, sample_dir
from lightning_cse.data.preparation import numbered
from lightning_cse.data.rows import dataset_of


def table_of(columns, name="own.csv"):
    """Return a table as if it were read from a file ``/data/<name>``."""
    return dataset_of(columns, files=[SourceFile(name, f"/data/{name}", "")])


def apply(scheme, *tables):
    """Return the training rows that a scheme makes of tables, and their account."""
    account = Counter(read=sum(map(len, tables)))
    return scheme(numbered(tables), account), account


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

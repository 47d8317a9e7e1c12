"""The settings of a data set, one field per key of ``conf/data``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from lightning_cse.data.roles import OwnRows, RoleRows
from lightning_cse.errors import ConfigError

Augmentation = Callable[[Sequence[int], str], list[int]]
"""Maps the tokens of a sentence, and the sentence, to the tokens of another view; deterministic."""

HELD_OUT_SHARE = 0.05  # our choice, if neither held-out rows nor a share is given
SHUFFLE_BUFFER = 10_000  # our choice
LARGEST_WEIGHT = 1000  # a larger one is a mistake, and its epochs would fill the memory

NOT_STREAMED: Mapping[str, str] = {
    "held_out_share": (
        "the number of a stream's sentences is not known: data.held_out_rows=N holds out the "
        "sentences of its first N rows, data.held_out=FILE those of a file"
    ),
    "train_rows": "a stream is read until trainer.max_steps",
    "weights": "they count the rows of a source, and a stream's are not known",
    "llm_rows": "it draws from all LLM rows, and a stream's are not known",
    "llm_rows_together": "it counts all LLM rows, and a stream's are not known",
    "delimiter": "a stream has no .csv and .tsv files",
    "encoding": "a stream is read as UTF-8",
    "num_proc": "a stream is tokenised by the batch, in each process of the training",
}
"""Settings that a stream cannot have, and why."""


@dataclass(frozen=True, kw_only=True)
class ContrastiveData:
    """What to train on; `ContrastiveDataModule` reads it and makes batches of it.

    Args:
        train: splits (``corpus/split``) or the user's own files (see `read_sources`).
        rows: the scheme that turns corpus rows into training rows.
        batch_size: the number of rows in a batch.
        drop_last: whether the trailing batch of an epoch is dropped.
        data_dir: the folder of the corpora.
        cache_dir: the folder of the token cache; None keeps tokens in memory.
        held_out: sources of the held-out rows; None holds out a share of the training rows.
        held_out_share: the share of the first role's sentences that is held out: 0.05 by default if
            ``held_out`` is None too; with 0, all rows are trained on and none is watched.
        excluded: sources whose sentence pairs must not be trained on.
        train_rows: train on this many rows only (see `subset`).
        held_out_rows: watch the first of the held-out rows only.
        max_tokens: cut training sentences to this many tokens.
        augmentation: makes the role ``positive`` from each anchor's tokens, once, as text.
        llm_rows: train on this many LLM rows only (see `fewer_llm_rows`).
        watched_in: sources that must have the anchors of the watched rows.
        llm_rows_together: see `Gathering`; None leaves LLM rows in the batch that they are drawn
            for.
        weights: how often the rows of each source of ``train`` are drawn per epoch (see `Draws`);
            None: once.
        columns: the columns of the user's own files by role.
        delimiter: between the cells of their ``.csv`` and ``.tsv`` files (see `OwnFormat`).
        encoding: of their files of text; None: UTF-8.
        bad_rows: ``error``, or ``skip`` to leave out rows of their files that cannot be used.
        num_proc: the number of processes that tokenise, with one thread each; None: one process,
            with a thread for each core.
        streaming: read the rows while they are trained on (see `StreamDataModule`); ``train`` then
            names Parquet or JSON-lines files, also by the URLs of `fsspec`.
        shuffle_buffer: the number of a stream's rows in memory, which are taken in random order; 0
            keeps the order of the files.

    Raises:
        ConfigError: if settings are out of range or cannot be combined.
    """

    train: str | Sequence[str]
    rows: RoleRows | OwnRows
    batch_size: Annotated[int, Field(ge=2)]
    drop_last: bool
    data_dir: str
    cache_dir: str | None = None
    held_out: str | Sequence[str] | None = None
    held_out_share: float | None = None
    excluded: Sequence[str] = ()
    train_rows: Annotated[int, Field(ge=2)] | None = None
    held_out_rows: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    augmentation: Augmentation | None = None
    llm_rows: Annotated[int, Field(ge=0)] | None = None
    watched_in: Sequence[str] = ()
    llm_rows_together: int | None = None
    weights: Sequence[float] | None = None
    columns: Mapping[str, str] | None = None
    delimiter: str | None = None
    encoding: str | None = None
    bad_rows: Literal["error", "skip"] = "error"
    num_proc: Annotated[int, Field(ge=1)] | None = None
    streaming: bool = False
    shuffle_buffer: Annotated[int, Field(ge=0)] = SHUFFLE_BUFFER

    def __post_init__(self) -> None:
        weights = self.weights if self.weights is not None else [1] * len(self.sources)
        faults = {
            "held_out: cannot be combined with data.held_out_share; set one of them to null": (
                self.held_out is not None and self.held_out_share is not None
            ),
            "weights: cannot be combined with data.llm_rows_together": (
                self.is_weighted and self.llm_rows_together is not None
            ),
            "num_proc: must be an integer >= 1, or null": (
                self.num_proc is not None and self.num_proc < 1
            ),
            f"weights: must be a number in (0, {LARGEST_WEIGHT}] for each source of data.train": (
                len(weights) != len(self.sources)
                or not all(0 < weight <= LARGEST_WEIGHT for weight in weights)
            ),
            "shuffle_buffer: must be an integer >= 0": self.shuffle_buffer < 0,
        }

        for key, why in NOT_STREAMED.items():
            set_to = getattr(self, key)
            faults[f"{key}: cannot be combined with data.streaming: {why}; set it to null"] = (
                self.streaming and set_to is not None
            )

        if any(faults.values()):
            raise ConfigError(f"data.{fault}" for fault, applies in faults.items() if applies)

    @property
    def sources(self) -> list[str]:
        """The names of the sources to train on."""
        return [self.train] if isinstance(self.train, str) else [str(name) for name in self.train]

    @property
    def is_weighted(self) -> bool:
        """Whether some source has a weight other than 1."""
        return self.weights is not None and any(weight != 1 for weight in self.weights)

    @property
    def share(self) -> float:
        """The share of the sentences that is held out if there are no sources of held-out rows."""
        if self.streaming:
            return 0.0

        return HELD_OUT_SHARE if self.held_out_share is None else self.held_out_share

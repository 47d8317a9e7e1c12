"""The settings of a data set, one field per key of ``conf/data``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from lightning_cse.data.own_rows import OwnRows
from lightning_cse.data.roles import RoleRows
from lightning_cse.errors import ConfigError

Augmentation = Callable[[Sequence[int], str], list[int]]
"""Maps the tokens of a sentence, and the sentence, to the tokens of another view; deterministic."""

HELD_OUT_SHARE = 0.05  # our choice, if neither held-out rows nor a share is given
LARGEST_WEIGHT = 1000  # a larger one is a mistake, and its epochs would fill the memory


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
        weights: how often the rows of each source of ``train`` are drawn per epoch (see
            `weighted_order`);
            None: once.
        columns: the columns of the user's own files by role.
        delimiter: between the cells of their ``.csv`` and ``.tsv`` files (see `FileFormat`).
        encoding: of their files of text; None: UTF-8.
        bad_rows: ``error``, or ``skip`` to leave out rows of their files that cannot be used.
        negatives: ``mined``: rows without a negative get those that `mine_negatives` finds.
        negatives_encoder: the model that finds them, as `lightning_cse.load` takes it; None: the
            encoder that is trained.
        negatives_share: the share of the positive's similarity above which a sentence is no
            negative.
        negatives_a_row: the number of negatives that are mined for a row.
        num_proc: the number of processes that tokenise, with one thread each; None: one process,
            with a thread for each core.

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
    held_out_share: Annotated[float, Field(ge=0, lt=1)] | None = None
    excluded: Sequence[str] = ()
    train_rows: Annotated[int, Field(ge=2)] | None = None
    held_out_rows: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    augmentation: Augmentation | None = None
    llm_rows: Annotated[int, Field(ge=0)] | None = None
    watched_in: Sequence[str] = ()
    llm_rows_together: int | None = None
    weights: Sequence[Annotated[float, Field(gt=0, le=LARGEST_WEIGHT)]] | None = None
    columns: Mapping[str, str] | None = None
    delimiter: str | None = None
    encoding: str | None = None
    bad_rows: Literal["error", "skip"] = "error"
    negatives: Literal["mined"] | None = None
    negatives_encoder: str | None = None
    negatives_share: Annotated[float, Field(gt=0, le=1)] = 0.95
    negatives_a_row: Annotated[int, Field(ge=1)] = 1
    num_proc: Annotated[int, Field(ge=1)] | None = None

    def __post_init__(self) -> None:
        faults = []
        if self.held_out is not None and self.held_out_share is not None:
            faults.append(
                "data.held_out: cannot be combined with data.held_out_share; "
                "set one of them to null"
            )

        if self.is_weighted and self.llm_rows_together is not None:
            faults.append("data.weights: cannot be combined with data.llm_rows_together")

        if self.weights is not None and len(self.weights) != len(self.sources):
            faults.append("data.weights: must have a number for each source of data.train")

        if faults:
            raise ConfigError(faults)

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
        return HELD_OUT_SHARE if self.held_out_share is None else self.held_out_share

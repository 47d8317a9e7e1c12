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
        columns: the columns of the user's own files by role.
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
    columns: Mapping[str, str] | None = None
    negatives: Literal["mined"] | None = None
    negatives_encoder: str | None = None
    negatives_share: Annotated[float, Field(gt=0, le=1)] = 0.95
    negatives_a_row: Annotated[int, Field(ge=1)] = 1
    num_proc: Annotated[int, Field(ge=1)] | None = None

    def __post_init__(self) -> None:
        if self.held_out is not None and self.held_out_share is not None:
            raise ConfigError(
                [
                    "data.held_out: cannot be combined with data.held_out_share; "
                    "set one of them to null"
                ]
            )

    @property
    def sources(self) -> list[str]:
        """The names of the sources to train on."""
        return [self.train] if isinstance(self.train, str) else [str(name) for name in self.train]

    @property
    def share(self) -> float:
        """The share of the sentences that is held out if there are no sources of held-out rows."""
        return HELD_OUT_SHARE if self.held_out_share is None else self.held_out_share

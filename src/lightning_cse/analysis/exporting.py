"""From a model to a folder that sentence-transformers loads by itself, and that gives the model's own vectors."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lightning_cse.analysis.exported_card import card
from lightning_cse.analysis.exported_check import check_sentences, compared_by, differences
from lightning_cse.analysis.exported_files import LIBRARY, quiet, write_files
from lightning_cse.analysis.exported_place import check_place, taking_its_place, told_disk
from lightning_cse.analysis.exported_recipe import OTHERWISE, recipe_of
from lightning_cse.engine.load import check_model
from lightning_cse.errors import LightningCSEError, TaskError, did_you_mean

if TYPE_CHECKING:  # heavy, and what is wrong with a command line is told without
    from torch import Tensor

    from lightning_cse.engine.load import LoadedModel

__all__ = ["TOLERANCE", "Exported", "Request", "check_library", "export", "run", "write"]

TOLERANCE: Final = 1e-5
"""How far a vector may be from the model's own, relative to its length, and a cosine of two from theirs."""


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    model: str
    to: Path
    view: str | None = None
    pooling: str = "auto"
    force: bool = False


@dataclass(frozen=True)
class Exported:
    """What was exported, for whoever asked for it.

    Attributes:
        folder: what sentence-transformers loads.
        method: the class of the model.
        view: the view of its embeddings that the vectors are.
        others: the other views.
        compared: ``cosine`` or ``euclidean`` where that is the model's own similarity; None where it is another.
        sentences: how many were compared.
        vectors: the largest difference of two vectors, relative to the length of the model's.
        cosines: the largest difference of two cosines.
    """

    folder: Path
    method: str
    view: str
    others: tuple[str, ...]
    compared: str | None
    sentences: int
    vectors: float
    cosines: float


def run(request: Request) -> None:
    """Do what a command line asks for; the folder is told on standard output, all else on standard error.

    Raises:
        LightningCSEError: for whatever is the user's to mend.
    """
    done = export(request)
    for line in _told(done):
        sys.stderr.write(f"{line}\n")
    sys.stdout.write(f"{done.folder}\n")


def _told(done: Exported) -> Iterator[str]:
    others = f" (--view {' or '.join(done.others)} exports another)" if done.others else ""
    yield f"{done.method}: the view {done.view}{others}"
    if done.compared is None:
        yield "the cosine of these vectors is not the model's own similarity: README.md says what is left out"
    yield (
        f"checked with sentence-transformers {version('sentence-transformers')}: {done.sentences} sentences, vectors "
        f"within {done.vectors:.0e}, cosines within {done.cosines:.0e} of the model's"
    )


def export(request: Request) -> Exported:
    """Load a model and write it as a folder of sentence-transformers, as `write` does.

    Raises:
        LightningCSEError: if the place is taken or cannot be written, or as `write`.
        EncoderError: as `check_model`, `load_model` and `write`.
        ConfigError: as `check_model`.
        TaskError: as `write`.
    """
    run_folder = check_model(request.model, pooling=request.pooling)
    check_place(request.to, [run_folder] if run_folder else [], force=request.force)
    check_library()

    from lightning_cse.engine.load import load_model

    model = load_model(request.model, pooling=request.pooling)
    return write(model, request.to, view=request.view, force=request.force)


def write(model: LoadedModel, to: Path, *, view: str | None = None, force: bool = False) -> Exported:
    """Write a model as a folder of sentence-transformers, and compare what that gives with the model.

    The folder holds safetensors, JSON and a model card, and needs neither this package nor ``trust_remote_code``. It
    gets its name when sentence-transformers has loaded it and given the model's vectors; if it does not, nothing is
    kept, and what was there is as it was.

    Args:
        model: the model, on the CPU and in evaluation mode as `load_model` gives it.
        to: the folder.
        view: of the model's embeddings; None for the primary one.
        force: as in `check_place`.

    Raises:
        LightningCSEError: if the place is taken or cannot be written, or sentence-transformers cannot load the folder
            or gives other vectors.
        EncoderError: as `recipe_of`, or if an embedding is not finite.
        TaskError: if the model has no such view.
    """
    from lightning_cse.analysis.searching import finite

    check_may_be_written = partial(check_place, to, _used(model), force=force)
    check_may_be_written()
    check_library()
    sentences = check_sentences(model.encoder.max_length)
    embedding = finite(model.answers.embed(sentences))
    views = embedding.views()
    view = _chosen(model, list(views), view)
    recipe, vectors = recipe_of(model.answers, view), views[view]
    compared = compared_by(model.answers, embedding, vectors)
    left_out = [name for name, value in embedding.fields().items() if value is not vectors]
    target = to.expanduser().resolve()
    with told_disk(to), taking_its_place(target) as folder:
        write_files(folder, recipe, compared or "cosine")
        text = card(model, recipe, view=view, compared=compared, left_out=left_out, width=vectors.shape[1])
        (folder / "README.md").write_text(text, encoding="utf-8")
        apart = differences(_encoded(folder, sentences), vectors)
        if not all(value <= TOLERANCE for value in apart):  # also where one is no number
            raise LightningCSEError(
                f"what was written gives other vectors than the model: they are {apart[0]:.1e} apart (relative), and "
                f"their cosines {apart[1]:.1e}, where {TOLERANCE:.0e} is allowed; nothing is kept. {OTHERWISE}"
            )
        check_may_be_written()  # something may have come there meanwhile
    others = tuple(name for name in views if name != view)
    return Exported(to, model.method, view, others, compared, len(sentences), *apart)


def _used(model: LoadedModel) -> list[Path]:
    """Return the folders that a model was read from: the run's and the encoder's, as far as there are such."""
    source = str(model.encoder.backbone.name_or_path)  # empty where the weights were made up
    return [Path(place) for place in (model.run, source) if place]


def _encoded(folder: Path, sentences: Sequence[str]) -> Tensor:
    """Return what sentence-transformers makes of sentences by a folder.

    Raises:
        LightningCSEError: if it cannot load the folder.
    """
    with quiet():
        try:
            from sentence_transformers import SentenceTransformer

            loaded = SentenceTransformer(str(folder), device="cpu", trust_remote_code=False, local_files_only=True)
            return loaded.encode(list(sentences), convert_to_tensor=True, show_progress_bar=False)
        except Exception as error:  # whatever a library raises of a folder that it cannot read
            what = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise LightningCSEError(
                f"sentence-transformers {version('sentence-transformers')} cannot load what was written ({what}); "
                f"nothing is kept. {OTHERWISE}"
            ) from error


def check_library() -> None:
    """Raise what is to be done where sentence-transformers is not installed.

    Raises:
        LightningCSEError: if it is not.
    """
    if importlib.util.find_spec(LIBRARY) is None:
        raise LightningCSEError(
            "what is exported is checked with sentence-transformers, which is not installed: "
            "pip install 'sentence-transformers>=6'"
        )


def _chosen(model: LoadedModel, views: Sequence[str], asked: str | None) -> str:
    if asked is None:
        return views[0]
    if asked not in views:
        raise TaskError(
            f"--view: {model.name} ({model.method}) has no view {asked!r}{did_you_mean(asked, views)} "
            f"(it has: {', '.join(views)})"
        )
    return asked

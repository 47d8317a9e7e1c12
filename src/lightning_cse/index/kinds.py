"""What finds the sentences nearest to a vector: all of them looked at, or a part of them chosen by faiss."""

from __future__ import annotations

import importlib.util
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lightning_cse.errors import LightningCSEError
from lightning_cse.index.best import Best
from lightning_cse.index.folder import IndexFolder, IndexFolderError
from lightning_cse.runs import disk_errors, locked
from lightning_cse.similarity import cosine_matrix

__all__ = ["KINDS", "ExactIndex", "FaissIndex", "Index", "open_index"]

log = logging.getLogger(__name__)

LARGE: Final = 50_000
"""Sentences from which ``auto`` has an ivf built: an exact search reads 150 MB a query there, at a width of 768."""

RECALL: Final = 0.95
"""The share of the ten nearest that an index should find; what finds less says so."""

AIM: Final = 0.97
"""The share that it is built to find of its own sample: sentences that shaped an index are easier than new queries.

Measured on a million made-up sentences: 0.957 of the sample were 0.943 of new queries.
"""

NEIGHBOURS: Final = 10
SAMPLE: Final = 200
SEED: Final = 0

_CHUNK: Final = 16_384
_TRAINING_VECTORS_A_LIST: Final = 40
_MOST_EFFORT: Final = 4096

Array = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]


class Index(Protocol):
    """What finds neighbours by the cosine with the corpus's primary view."""

    kind: str

    def candidates(self, queries: Tensor, count: int) -> Rows:
        """Return the rows of sentences near to each query, best first.

        Args:
            queries: (q, d).
            count: how many; all, where there are no more.

        Returns:
            (q, min(count, n)), with -1 at the end where an approximate index finds fewer.
        """
        ...


class ExactIndex:
    """Looks at every vector: what the others are measured against."""

    kind = "exact"

    def __init__(self, folder: IndexFolder) -> None:
        self.folder = folder
        self.view = folder.primary

    def candidates(self, queries: Tensor, count: int) -> Rows:
        """As `Index.candidates`, exactly so many."""
        best = Best(count)
        for block in self.folder.blocks():
            best.add(cosine_matrix(queries, block.views()[self.view]))
        return best.rows.numpy()


class FaissIndex(ABC):
    """An index of faiss over the unit vectors of the primary view, in half precision.

    It looks at a part of the vectors, the larger its effort the more. The effort is the least, within an eighth, that
    finds `AIM` of the ten nearest of a sample of the corpus's own sentences, by each of their views, themselves left
    out; which these are, the exact search says. The same vectors give the same index: draws are seeded, and what
    would depend on the order of threads has one thread.
    """

    kind: str
    least: ClassVar = 1

    def __init__(self, folder: IndexFolder) -> None:
        self.facts = dict(folder.about["kinds"][self.kind])
        self.count = folder.count
        faiss = _faiss(self.kind)
        path = folder.path / str(self.facts["file"])
        try:
            self._index = faiss.read_index(str(path), self._how_to_read(faiss))
        except RuntimeError as error:
            raise IndexFolderError(f"{path} cannot be read; remove it, and it is built again") from error

    def candidates(self, queries: Tensor, count: int) -> Rows:
        """As `Index.candidates`; the effort is raised where it does not find so many."""
        vectors = _unit(queries.float().numpy())
        count, effort = min(count, self.count), int(self.facts["effort"])
        rows = self.search(self._index, vectors, count, effort)
        while (rows < 0).any() and effort < _MOST_EFFORT:
            effort *= 2
            rows = self.search(self._index, vectors, count, effort)
        return rows

    @classmethod
    def build(cls, folder: IndexFolder, tell: Callable[[str], None]) -> IndexFolder:
        """Build the faiss index of a folder beside its vectors, and return the folder that knows of it."""
        faiss = _faiss(cls.kind)
        made, facts = cls.fill(folder, faiss)
        effort, recall = cls._effort(folder, made)
        file = f"{cls.kind}.faiss"
        _write(faiss, made, folder.path / file)
        facts |= {"file": file, "effort": effort, f"recall@{NEIGHBOURS}": recall, "faiss": faiss.__version__}
        short = "" if recall >= RECALL else f", which is below {RECALL}: use --kind exact where that matters"
        tell(f"{cls.kind}: finds {100 * recall:.1f}% of the {NEIGHBOURS} nearest with an effort of {effort}{short}")
        return folder.noted(cls.kind, facts)

    @classmethod
    @abstractmethod
    def fill(cls, folder: IndexFolder, faiss: Any) -> tuple[Any, dict[str, Any]]:
        """Return an index of faiss with all vectors of a folder, and what is to be noted of it."""

    @staticmethod
    @abstractmethod
    def search(index: Any, vectors: Array, count: int, effort: int) -> Rows:
        """Return the rows that an index of faiss finds: (q, count), -1 where it finds no more."""

    @staticmethod
    def _how_to_read(faiss: Any) -> int:
        return 0

    @classmethod
    def _effort(cls, folder: IndexFolder, made: Any) -> tuple[int, float]:
        """Return the least effort that is enough, or else the largest, and the share of the nearest it finds."""
        neighbours = min(NEIGHBOURS, folder.count - 1)
        if neighbours < 1:
            return 1, 1.0
        asked = _sample(folder.count, SAMPLE)
        views = folder.embedding(asked).views().values()
        truth = [_others(folder, view, asked, neighbours) for view in views]

        def recall(effort: int) -> float:
            pairs = zip(views, truth, strict=True)
            return min(_share(folder, made, cls.search, view, asked, floor, effort) for view, floor in pairs)

        effort = cls.least
        while (found := recall(effort)) < AIM and effort < min(_MOST_EFFORT, folder.count):
            effort *= 2
        less = effort // 2 if found >= AIM and effort > cls.least else effort
        while effort - less > max(1, effort // 8):
            middle = (less + effort) // 2
            if (share := recall(middle)) >= AIM:
                effort, found = middle, share
            else:
                less = middle
        return effort, round(found, 4)


class IVF(FaissIndex):
    r"""Vectors in lists around the centres of a k-means; the lists of the nearest centres are looked at.

    About :math:`2 \sqrt{n}` lists, trained on at most 40 seeded vectors each. The lists are read from the disk when
    they are looked at, so opening is quick whatever the size.
    """

    kind = "ivf"

    @classmethod
    def fill(cls, folder: IndexFolder, faiss: Any) -> tuple[Any, dict[str, Any]]:
        """As `FaissIndex.fill`."""
        lists = max(1, min(round(2 * folder.count**0.5), folder.count // _TRAINING_VECTORS_A_LIST))
        centres = faiss.IndexFlatIP(folder.width)
        half = faiss.ScalarQuantizer.QT_fp16
        made = faiss.IndexIVFScalarQuantizer(centres, folder.width, lists, half, faiss.METRIC_INNER_PRODUCT, False)
        made.cp.seed, made.cp.niter, made.cp.spherical = 1 + SEED, 10, True
        made.cp.min_points_per_centroid = 1
        made.cp.max_points_per_centroid = _TRAINING_VECTORS_A_LIST
        rows = _sample(folder.count, lists * _TRAINING_VECTORS_A_LIST)
        made.train(_unit(np.array(folder.vectors(_field(folder))[rows])))
        for chunk in _chunks(folder):
            made.add(chunk)
        return made, {"lists": lists, "trained_on": len(rows)}

    @staticmethod
    def search(index: Any, vectors: Array, count: int, effort: int) -> Rows:
        """As `FaissIndex.search`; the effort is how many lists are looked at."""
        faiss = _faiss(IVF.kind)
        rows: Rows = index.search(vectors, count, params=faiss.SearchParametersIVF(nprobe=min(effort, index.nlist)))[1]
        return rows

    @staticmethod
    def _how_to_read(faiss: Any) -> int:
        return int(faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)


class HNSW(FaissIndex):
    """A graph of neighbours that is walked towards the query; quicker than ivf, slower to build, held in memory.

    Built with one thread: with several, its edges depend on the order in which they come.
    """

    kind = "hnsw"
    least = 16  # no fewer than are asked for can be kept in view

    @classmethod
    def fill(cls, folder: IndexFolder, faiss: Any) -> tuple[Any, dict[str, Any]]:
        """As `FaissIndex.fill`."""
        edges = 32
        made = faiss.IndexHNSWSQ(folder.width, faiss.ScalarQuantizer.QT_fp16, edges, faiss.METRIC_INNER_PRODUCT)
        made.hnsw.efConstruction = 100
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            for chunk in _chunks(folder):
                if not made.is_trained:
                    made.train(chunk)
                made.add(chunk)
        finally:
            faiss.omp_set_num_threads(threads)
        return made, {"edges": edges}

    @staticmethod
    def search(index: Any, vectors: Array, count: int, effort: int) -> Rows:
        """As `FaissIndex.search`; the effort is how many sentences are kept in view on the way."""
        faiss = _faiss(HNSW.kind)
        rows: Rows = index.search(vectors, count, params=faiss.SearchParametersHNSW(efSearch=max(effort, count)))[1]
        return rows


_FAISS: Final[dict[str, type[FaissIndex]]] = {one.kind: one for one in (IVF, HNSW)}

KINDS: Final = (ExactIndex.kind, *_FAISS)


def open_index(folder: IndexFolder, kind: str = "auto", tell: Callable[[str], None] = log.info) -> Index:
    """Return what finds neighbours in a folder; a faiss index that is not there yet is built and kept there.

    Args:
        folder: the sentences and their vectors.
        kind: of `KINDS`, or ``auto``: a faiss index that is there, else exact below `LARGE` sentences and ivf above.
        tell: is told what is built, how well it finds, and what ``auto`` chose where that may surprise.

    Raises:
        IndexFolderError: if faiss is not installed, or its file cannot be read.
        ValueError: if there is no such kind.
    """
    if kind not in (*KINDS, "auto"):
        raise ValueError(f"no kind {kind!r}; there are {', '.join(KINDS)} and auto")
    if kind == "auto":
        kind = _chosen(folder, tell)
    if kind == ExactIndex.kind:
        return ExactIndex(folder)
    found = _FAISS[kind]
    if not _is_there(folder, kind):
        with locked(folder.path / f".{kind}.lock", f"the {kind} of {folder.path}"):
            tell(f"{kind}: building for {folder.count:,} sentences")
            folder = found.build(folder, tell)
    return found(folder)


def _is_there(folder: IndexFolder, kind: str) -> bool:
    facts = folder.about.get("kinds", {}).get(kind)
    return facts is not None and (folder.path / str(facts["file"])).is_file()


def _chosen(folder: IndexFolder, tell: Callable[[str], None]) -> str:
    there = [kind for kind in _FAISS if _is_there(folder, kind)]
    if importlib.util.find_spec("faiss") is None:
        if there or folder.count >= LARGE:
            tell(f"faiss is not installed, so all {folder.count:,} sentences are compared; pip install faiss-cpu")
        return ExactIndex.kind
    if there:
        return there[0]
    return IVF.kind if folder.count >= LARGE else ExactIndex.kind


def _faiss(kind: str) -> Any:
    try:
        import faiss
    except ImportError as error:
        raise IndexFolderError(f"{kind} needs faiss: pip install faiss-cpu, or use --kind exact") from error
    return faiss


def _field(folder: IndexFolder) -> str:
    """Return the field that is the primary view."""
    probe = folder.embedding(slice(0, 1))
    primary = next(iter(probe.views().values()))
    return next(name for name, value in probe.fields().items() if value is primary)


def _chunks(folder: IndexFolder) -> Iterator[Array]:
    vectors = folder.vectors(_field(folder))
    for start in range(0, folder.count, _CHUNK):
        yield _unit(np.array(vectors[start : start + _CHUNK]))


def _unit(vectors: Array) -> Array:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / np.where(norms < 1e-12, 1, norms), dtype=np.float32)


def _sample(count: int, most: int) -> Rows:
    """Return so many rows, drawn by the seed, in order."""
    drawn = np.random.default_rng(SEED).choice(count, size=min(most, count), replace=False)
    return np.sort(drawn).astype(np.int64)


def _others(folder: IndexFolder, view: Tensor, asked: Rows, neighbours: int) -> Tensor:
    """Return the cosine of the last of the nearest of each asked sentence, itself left out: (q, 1)."""
    best = Best(neighbours + 1)
    primary = folder.primary
    for block in folder.blocks():
        best.add(cosine_matrix(view, block.views()[primary]))
    others = best.scores.masked_fill(best.rows == torch.from_numpy(asked)[:, None], -2.0)
    return others.sort(dim=1, descending=True).values[:, neighbours - 1 : neighbours]


def _share(
    folder: IndexFolder,
    made: Any,
    search: Callable[[Any, Array, int, int], Rows],
    view: Tensor,
    asked: Rows,
    floor: Tensor,
    effort: int,
) -> float:
    """Return which share of the nearest are found; one that is as near as the last of them is as good."""
    neighbours = min(NEIGHBOURS, folder.count - 1)
    rows = search(made, _unit(view.numpy()), min(neighbours + 1, folder.count), effort)
    found = 0
    for place, chosen in enumerate(rows):
        chosen = np.sort(chosen[(chosen >= 0) & (chosen != asked[place])])
        if len(chosen):
            cosines = cosine_matrix(view[place : place + 1], next(iter(folder.embedding(chosen).views().values())))
            found += min(neighbours, int((cosines >= floor[place] - 1e-6).sum()))
    return found / (neighbours * len(rows))


def _write(faiss: Any, made: Any, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with disk_errors(path):
        try:
            faiss.write_index(made, str(temporary))
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        except RuntimeError as error:  # what faiss makes of any fault of the system
            raise LightningCSEError(f"{path} cannot be written ({' '.join(str(error).split())[:200]})") from error
        finally:
            temporary.unlink(missing_ok=True)

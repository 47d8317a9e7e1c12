"""A loaded model: it embeds sentences and answers questions about them, without Lightning or
Hydra.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lightning_cse.engine.embedder import Embedder, Sentences, check_count, checked_sentences
from lightning_cse.errors import DataError, TaskError
from lightning_cse.similarity import Comparison, cosine, is_same

Scores = float | np.ndarray
Relation = Literal["similar", "entails", "entailed_by"]

QUESTIONS = {
    "similarity": "similarity",
    "entailment": "entailment_score",
    "implicitness": "implicitness",
}


class Hit(NamedTuple):
    """A sentence found by `SentenceModel.search`: its row in the corpus, and its score."""

    row: int
    score: float


@dataclass(repr=False)
class SentenceModel(Embedder):
    """A model that embeds sentences and answers questions about them, in evaluation mode.

    A question takes one string or several sentences, row by row; a single string is compared with
    each of several sentences. The answer is a float if every argument is a string, else an array
    (n,). A question that the model does not answer raises TaskError.
    """

    @cached_property
    def questions(self) -> list[str]:
        """The names of the questions that this model answers."""
        names = [name for name, question in QUESTIONS.items() if hasattr(self.answers, question)]
        return [*names, "direction"] if self._has_direction else names

    def similarity(self, a: Sentences, b: Sentences) -> Scores:
        """Return how similar sentences are by the model's own symmetric measure, mostly the cosine
        of a view.
        """
        return self._ask(self._question("similarity"), a, b)

    def similarity_matrix(self, a: Sentences, b: Sentences | None = None) -> np.ndarray:
        """Return the similarity of each of ``a`` (n) with each of ``b`` (m), by default with each
        of ``a``: (n, m).
        """
        first = self.embed(a)
        second = first if b is None else self.embed(b)
        compared = Comparison.of(self._question("similarity"), self._example)
        with torch.no_grad():
            return np.asarray(compared.matrix(first, second))

    def entailment(self, premises: Sentences, hypotheses: Sentences) -> Scores:
        """Return how far premises entail hypotheses; a threshold for a decision comes from an
        evaluation.
        """
        return self._ask(self._question("entailment"), premises, hypotheses)

    def direction(self, a: Sentences, b: Sentences) -> Scores:
        """Return a positive number where ``a`` entails ``b`` rather than ``b`` entails ``a``, else
        a negative one.
        """
        if not self._has_direction:
            raise self._unanswered("direction")

        direction: Callable[..., Tensor] | None = getattr(self.answers, "direction", None)
        if direction is not None:
            return self._ask(direction, a, b)

        score = self._question("entailment")

        return self._ask(lambda x, y: score(x, y).double() - score(y, x).double(), a, b)

    def implicitness(self, sentences: Sentences) -> Scores:
        """Return how much more sentences imply than they say."""
        return self._ask(self._question("implicitness"), sentences)

    def search(
        self,
        queries: Sentences,
        corpus: Sequence[str],
        k: int = 10,
        *,
        relation: Relation = "similar",
        view: str | None = None,
        against: str | None = None,
    ) -> list[list[Hit]]:
        """Return, for each query, the ``k`` sentences of a corpus with the highest scores, best
        first.

        The search is exact: every sentence is compared in float32, and the best ones again in
        float64; of equal scores, the first row comes first.

        ``relation`` is the question: ``similar`` (the model's own similarity), ``entails`` (the
        query is the premise) or ``entailed_by``. Instead, a ``view`` of the query can be compared
        by cosine with the view ``against`` of the sentences (by default the primary one).

        Raises TaskError if the model has no such question or view, DataError if a sentence is not
        a string or the corpus is empty, and ConfigError if ``k`` is not positive.
        """
        check_count("k", k)
        compared = self._comparison(relation, view, against)
        queries = checked_sentences(queries, "queries")
        corpus = checked_sentences(corpus, "corpus")
        if not corpus:
            raise DataError("corpus: has no sentences to search in")

        embedded = self.embed(queries, use="query")
        documents = self.embed(corpus, use="document")
        with torch.no_grad():
            ranked = compared.search(embedded, documents, k)

        return [[Hit(row, score) for row, score in pairs] for pairs in ranked]

    @cached_property
    def _has_direction(self) -> bool:
        if hasattr(self.answers, "direction"):
            return True

        score = getattr(self.answers, "entailment_score", None)
        return score is not None and not is_same(score, lambda a, b: score(b, a), self._example)

    def _question(self, name: str) -> Callable[..., Tensor]:
        ask: Callable[..., Tensor] | None = getattr(self.answers, QUESTIONS[name], None)
        if ask is None:
            raise self._unanswered(name)

        return ask

    def _unanswered(self, name: str) -> TaskError:
        answered = ", ".join(self.questions)
        return TaskError(f"{self.name} ({self.method_name}) has no {name} (it has: {answered})")

    def _comparison(self, relation: Relation, view: str | None, against: str | None) -> Comparison:
        if view or against:
            names = list(self._example.views())
            first = self._checked_view(view, names)
            second = self._checked_view(against, names)

            return Comparison(
                lambda a, b: cosine(a.views()[first], b.views()[second]), (first, second)
            )

        if relation == "similar":
            return Comparison.of(self._question("similarity"), self._example)
        if not self._has_direction:
            raise self._unanswered("direction")

        score = self._question("entailment")
        if relation == "entails":
            return Comparison.of(score, self._example)

        return Comparison.of(lambda a, b: score(b, a), self._example)

    def _ask(self, ask: Callable[..., Tensor], *arguments: Sentences) -> Scores:
        embeddings = [self.embed(argument) for argument in arguments]
        are_single = [isinstance(argument, str) for argument in arguments]
        pairs = list(zip(embeddings, are_single, strict=True))
        lengths = {len(embedding) for embedding, is_single in pairs if not is_single}
        if len(lengths) > 1:
            raise ValueError(f"cannot compare row by row: {sorted(lengths)} sentences")

        repeated = torch.zeros(*lengths or (1,), dtype=torch.long)
        rows = [embedding[repeated] if is_single else embedding for embedding, is_single in pairs]
        with torch.no_grad():
            scores = ask(*rows)

        return np.asarray(scores) if lengths else float(scores)

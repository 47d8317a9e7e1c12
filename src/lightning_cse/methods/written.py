"""Dino, CLAIF and CLHAIF: an encoder learns the scores of pairs that a language model wrote."""

from typing import Any

from lightning_cse.errors import ConfigError
from lightning_cse.methods.sbert import SBERTRegression
from lightning_cse.methods.simcse import SimCSE


class Dino(SBERTRegression):
    r"""Dino: regression on pairs that a language model wrote for three degrees of similarity.

    .. math:: \ell = (\cos(u, v) - y)^2, \qquad y \in \{0.9, 0.5, 0.1\} \cup \{0\}

    The scores of pairs that were written to mean the same, to be somewhat similar, or to be on
    different topics are smoothed; random pairs have the score 0 (`WrittenPairs`).

    Source: Schick and Schütze 2021, and the authors' code.  Differs: no self-debiasing when the
    pairs are written, for which an endpoint would have to give the probabilities of all tokens.
    """

    papers = ("schick2021dino",)


class CLAIF(SBERTRegression):
    r"""CLAIF: regression on the scores that a language model gives to pairs.

    .. math:: \ell = (\cos(u, v) - y)^2

    with the smoothed score :math:`y` of a sentence and the same one with masked words filled anew;
    random pairs have the score 0 (`WrittenPairs`).

    Source: Cheng et al. 2023, and the authors' code.  Differs: the model gives no reason after the
    score.
    """

    papers = ("cheng2023claif",)


class CLHAIF(SimCSE):
    r"""CLHAIF: supervised SimCSE in which the label of a positive is the score of a language model.

    The loss takes the vectors by role and the scores, as `SoftInfoNCE` does; the negatives of all
    rows are candidates. Triplets and scores come from `ScoredTriplets`.

    Source: Cheng et al. 2023, and the authors' code.  Differs: as `SimCSE`.

    Raises:
        ConfigError: in training, if the rows have no scores.
    """

    papers = ("cheng2023claif",)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the roles of a batch, and compare them by the scores of their positives."""
        if "targets" not in batch:
            raise ConfigError(
                ["data.train: CLHAIF needs a score in each row: write them by +pattern=clhaif"]
            )

        embeddings = self.embed(batch)
        vectors = {role: embedding.vector for role, embedding in embeddings.items()}
        loss = self.loss(**vectors, scores=batch["targets"])

        return self.output(loss, batch["index"], **embeddings)

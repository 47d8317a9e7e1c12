"""Show the requests for LLM rows beforehand, and measure rows and pattern afterwards."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lightning_cse.analysis import describing
from lightning_cse.analysis.histograms import Pairs
from lightning_cse.data.split import seeded_order
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.generation.examples import Examples, Pair
from lightning_cse.generation.pattern import ANCHOR, SOURCE, Pattern
from lightning_cse.generation.writing import Writer, score_name
from lightning_cse.llm import dollars, price_of

_BIN = 0.1
"""The width of the bars whose common area is the overlap."""

_LETTERS = 4
"""Letters of a token, in English."""


def shown_prompts(writer: Writer, sentences: Sequence[str]) -> Iterator[str]:
    """Yield the requests for the first sentence, and an estimate of calls and tokens for all.

    The estimate is for the case that no reply is rejected or in the cache.
    """
    roles = writer.pattern.roles
    scored = writer.pattern.asked
    systems = [role.system for role in roles]
    requests = {}

    for role in roles:
        reference = sentences[0] if role.reference == SOURCE else f"<{role.reference}>"
        requests[f"{role.name}, made from the {role.reference}"] = writer.request(role, reference)

    for name in scored[:1]:
        request = writer.score_request(sentences[0], f"<{name}>")
        requests[f"score of {', '.join(scored)}"] = request
        systems += [request.messages[0][1]] * len(scored)

    for title, request in requests.items():
        yield f"--- {title}"
        yield from (f"[{sender}]\n{text}\n" for sender, text in request.messages)
        yield f"with {request.parameters}\n"

    length = sum(map(len, sentences))
    received = len(roles) * length / _LETTERS
    # A pair to be scored has two sentences.
    sent = (len(roles) + 2 * len(scored)) * length / _LETTERS
    sent += len(sentences) * sum(map(len, systems)) / _LETTERS
    price = writer.llm.endpoint.price
    cost = dollars(price_of(price, sent, received) if price else None)
    yield (
        f"calls: {len(systems) * len(sentences):,}, if no reply is rejected\n"
        f"tokens: about {sent:,.0f} sent and {received:,.0f} received\n"
        f"cost: {cost}\n"
        "nothing was sent; leave out show_prompts=true to send it"
    )


@dataclass(frozen=True)
class Summary:
    """The measured pairs by role: first those of anchor and written sentence, then those that the
    role's examples were drawn from.

    ``encoder`` is the name and digests of what their cosines come from.
    """

    encoder: dict[str, str] | None
    pairs: Mapping[str, Sequence[Pairs]]

    def record(self) -> dict[str, Any]:
        """Return what a run's record has of the pairs: their values, for histograms."""
        values: dict[str, list[dict[str, Any]]] = {"written": [], "pattern": []}
        for measured in self.pairs.values():
            for rows, pairs in zip(values.values(), measured, strict=True):
                mer, cosine = (np.round(column, 3).tolist() for column in (pairs.mer, pairs.cosine))
                rows.append(
                    {"kind": pairs.kind, "label": pairs.label, "mer": mer, "cosine": cosine}
                )

        return {"encoder": self.encoder, "values": values}

    def metrics(self, provenance: Mapping[str, Any]) -> dict[str, float]:
        """Return the numbers of a set of rows as metrics.

        ``<role>/accepted`` is the share of accepted replies, ``<role>/cosine`` the mean of the
        written pairs, and ``<role>/overlap`` the area, from 0 to 1, that the histograms of the
        cosines of written and pattern's pairs have in common, in bars of 0.1. What a pattern has
        no pairs for is left out.
        """
        sources = provenance["acceptance"]["sources"]
        metrics: dict[str, float] = {
            "generate/tokens_per_row": sum(provenance["tokens"].values()) / sources["complete"],
            "generate/given_up": sources["given_up"] / sum(sources.values()),
        }
        replies = provenance["acceptance"]["roles"]
        for role, (written, pattern) in self.pairs.items():
            # Of a role that the data has, only the score was asked.
            counts = replies.get(role) or replies[score_name(role)]
            metrics[f"generate/{role}/accepted"] = counts["accepted"] / max(1, counts["asked"])
            if len(written.cosine):
                metrics[f"generate/{role}/cosine"] = float(np.mean(written.cosine))
            if len(written.cosine) and len(pattern.cosine):
                metrics[f"generate/{role}/overlap"] = _overlap(written.cosine, pattern.cosine)

        return metrics

    def table(self, provenance: Mapping[str, Any]) -> str:
        """Return a table of the replies by role, and of the written pairs beside the pattern's."""
        replies = provenance["acceptance"]["roles"]
        # Of a role that the data has, only the score was asked.
        pairs = {
            role if role in replies else score_name(role): measured
            for role, measured in self.pairs.items()
        }
        rows = {}
        for name, counts in replies.items():
            of_role = pairs.get(name, ())
            rejected = [f"{reason} {count:,}" for reason, count in counts["rejected"].items()]
            rows[name] = {
                "replies": f"{counts['asked']:,}",
                "accepted": f"{counts['accepted']:,}",
                "mer (pattern)": _means([measured.mer for measured in of_role]),
                "cosine (pattern)": _means([measured.cosine for measured in of_role]),
                "rejected": ", ".join(rejected),
            }

        sources = provenance["acceptance"]["sources"]

        return (
            f"{pd.DataFrame.from_dict(rows, orient='index').to_string()}\n\n"
            f"rows: {sources['complete']:,}, {sources['given_up']:,} given up; "
            f"tokens: {sum(provenance['tokens'].values()):,}; cost: {dollars(provenance['cost'])}"
        )


def _means(columns: Sequence[Sequence[float]]) -> str:
    """Return the means of written and pattern's pairs as a cell; nothing of scores."""
    means = [f"{np.mean(column):.3f}" if len(column) else "-" for column in columns]

    return "{} ({})".format(*means) if means else ""


def summarise(
    pattern: Pattern, rows: Path, encoder: SentenceEncoder | None, *, most: int, seed: int
) -> Summary:
    """Measure at most ``most`` pairs of each role in a file of rows, and as many of the pattern's.

    They get match error rates and, with an encoder, cosines.

    Source: NGCSE, figure 7.
    """
    lines = [json.loads(line) for line in rows.read_text(encoding="utf-8").split("\n") if line]
    examples = {role.name: role.example_pairs for role in pattern.roles}
    sets = []
    for name in pattern.measured:
        if lines and ANCHOR in lines[0]:
            pairs = [(line[ANCHOR], line[name]) for line in lines]
        else:
            pairs = [(x["sentence1"], x["sentence2"]) for x in lines if x["role"] == name]

        source = examples.get(name, Examples((), ()))
        written = _drawn(name, f"{ANCHOR} - {name}", pairs, most, seed)
        sets.append([written, _drawn(name, f"{name}: {source.label}", source.pool, most, seed)])

    identity = None if encoder is None else {"name": encoder.name, **encoder.digests}
    measured = describing.measure(encoder, sets, seed)

    return Summary(identity, dict(zip(pattern.measured, measured, strict=True)))


def _drawn(role: str, label: str, pairs: Sequence[Pair], most: int, seed: int) -> Pairs:
    """Return at most ``most`` pairs, drawn by the seed."""
    shuffled = (pairs[index] for index in seeded_order(len(pairs), seed))
    is_negative = role in describing.ROLES["negative"]  # a role that no method knows is a positive

    return describing.drawn_pairs("negative" if is_negative else "positive", label, shuffled, most)


def _overlap(written: Sequence[float], pattern: Sequence[float]) -> float:
    """Return the area that the histograms of two sets of cosines have in common."""
    bins = np.arange(-1.0, 1.0 + _BIN / 2, _BIN)
    shares = [
        np.histogram(np.clip(cosines, -1.0, 1.0), bins)[0] / len(cosines)
        for cosines in (written, pattern)
    ]

    return float(np.minimum(*shares).sum())

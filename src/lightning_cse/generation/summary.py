"""Show the requests for LLM rows beforehand, and measure rows and pattern afterwards."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lightning_cse.analysis import describing
from lightning_cse.analysis.histograms import Kind, Pairs
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

# Before ------------------------------------------------------------------------------------------


def shown_prompts(writer: Writer, sentences: Sequence[str]) -> Iterator[str]:
    """Yield the requests for the first sentence, and an estimate of calls and tokens for all.

    The estimate is for the case that no reply is rejected or in the cache.
    """
    roles = writer.pattern.roles
    asked = writer.pattern.asked
    systems = [role.system for role in roles]
    requests = {}

    for role in roles:
        given = sentences[0] if role.reference == SOURCE else f"<{role.reference}>"
        requests[f"{role.name}, made from the {role.reference}"] = writer.request(role, given)

    for name in asked[:1]:
        request = writer.score_request(sentences[0], f"<{name}>")
        requests[f"score of {', '.join(asked)}"] = request
        systems += [request.messages[0][1]] * len(asked)

    for title, request in requests.items():
        yield f"--- {title}"
        yield from (f"[{who}]\n{text}\n" for who, text in request.messages)
        yield f"with {request.parameters}\n"

    length = sum(map(len, sentences))
    received = len(roles) * length / _LETTERS
    # A pair to be scored has two sentences.
    sent = (len(roles) + 2 * len(asked)) * length / _LETTERS
    sent += len(sentences) * sum(map(len, systems)) / _LETTERS
    price = writer.llm.endpoint.price
    cost = dollars(price_of(price, sent, received) if price else None)
    yield (
        f"calls: {len(systems) * len(sentences):,}, if no reply is rejected\n"
        f"tokens: about {sent:,.0f} sent and {received:,.0f} received\n"
        f"cost: {cost}\n"
        "nothing was sent; leave out show_prompts=true to send it"
    )


# Afterwards --------------------------------------------------------------------------------------


def summarise(
    pattern: Pattern, rows: Path, encoder: SentenceEncoder | None, *, most: int, seed: int
) -> dict[str, Any]:
    """Measure rows and pattern.

    For each role, the ``written`` pairs are anchor and sentence, and the ``pattern`` pairs are all
    those that its examples were drawn from; at most ``most`` of each are measured. The summary
    has their match error rates and, with an encoder, cosines.

    Source: NGCSE, figure 7.
    """
    cells = [json.loads(line) for line in rows.read_text(encoding="utf-8").split("\n") if line]
    drawn: dict[str, list[Pairs]] = {"written": [], "pattern": []}
    examples = {role.name: role.drawn for role in pattern.roles}

    for name in pattern.measured:
        source = examples.get(name, Examples((), ()))
        ours = [(first, second) for first, second, _ in _pairs_of(cells, name)]
        drawn["written"].append(_drawn(name, f"{ANCHOR} - {name}", ours, most, seed))
        theirs = _drawn(name, f"{name}: {source.label}", source.pool, most, seed)
        drawn["pattern"].append(theirs)

    measured = describing.measure(encoder, list(drawn.values()), seed)
    sets = dict(zip(drawn, measured, strict=True))
    summary: dict[str, Any] = {
        "encoder": encoder and {"name": encoder.name, **encoder.digests},
        "measured": most,
        "sets": [
            {"name": name, "pairs": list(map(describing.pair_summary, pairs))}
            for name, pairs in sets.items()
        ],
        "roles": list(pattern.measured),
        "overlap": list(map(_overlap, sets["written"], sets["pattern"])),
        "values": {name: list(map(_values, pairs)) for name, pairs in sets.items()},
    }
    if pattern.scores:
        summary["scores"] = _mean_scores(cells, pattern)

    return summary


def _pairs_of(cells: Sequence[Mapping[str, Any]], role: str) -> list[tuple[str, str, Any]]:
    """Return the pairs of a role with the source, and their scores, from the lines of a file."""
    if cells and ANCHOR in cells[0]:
        return [(row[ANCHOR], row[role], row.get("score")) for row in cells]

    return [
        (row["sentence1"], row["sentence2"], row["score"]) for row in cells if row["role"] == role
    ]


def _mean_scores(cells: Sequence[Mapping[str, Any]], pattern: Pattern) -> dict[str, float]:
    """Return the mean score of each role that has pairs."""
    scores = {role: [score for *_, score in _pairs_of(cells, role)] for role in pattern.scores}

    return {role: float(np.mean(values)) for role, values in scores.items() if values}


def _values(pairs: Pairs) -> dict[str, Any]:
    """Return the measures of each pair, from which the histograms can be drawn again."""
    values: dict[str, Any] = {"kind": pairs.kind, "label": pairs.label}
    for measure in ("mer", "cosine"):
        values[measure] = [round(float(one), 3) for one in getattr(pairs, measure)]

    return values


def _overlap(written: Pairs, pattern: Pairs) -> dict[str, float | None]:
    """Return the area that the histograms of two sets of pairs have in common, by measure."""
    overlap: dict[str, float | None] = {}
    for measure, low in (("mer", 0.0), ("cosine", -1.0)):
        both = [getattr(pairs, measure) for pairs in (written, pattern)]
        if not all(len(values) for values in both):
            overlap[measure] = None
            continue

        bins = np.arange(low, 1.0 + _BIN / 2, _BIN)
        shares = [np.histogram(np.clip(one, low, 1.0), bins)[0] / len(one) for one in both]
        overlap[measure] = float(np.minimum(*shares).sum())

    return overlap


def measures(provenance: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a set of rows as metrics.

    ``<role>/overlap`` is the area, from 0 to 1, that the histograms of the cosines of the written
    pairs and of the pattern's pairs have in common, in bars of 0.1; ``<role>/accepted`` is the
    share of accepted replies, ``<role>/cosine`` the mean of the written pairs, and ``<role>/score``
    that of their scores. What a pattern has no examples or pairs for is left out.
    """
    sources = provenance["acceptance"]["sources"]
    metrics = {
        "tokens_per_row": sum(provenance["tokens"].values()) / sources["complete"],
        "given_up": sources["given_up"] / sum(sources.values()),
    }
    scores = summary.get("scores", {})
    written = {one["name"]: one["pairs"] for one in summary["sets"]}["written"]
    replies = provenance["acceptance"]["roles"]
    for role, pairs, overlap in zip(summary["roles"], written, summary["overlap"], strict=True):
        # Of a role that the data has, only the score was asked.
        counts = replies.get(role) or replies[score_name(role)]
        metrics |= {
            f"{role}/accepted": counts["accepted"] / max(1, counts["asked"]),
            f"{role}/overlap_mer": overlap["mer"],
            f"{role}/overlap": overlap["cosine"],
            f"{role}/cosine": (pairs["cosine"] or {}).get("mean"),
            f"{role}/score": scores.get(role),
        }

    return {f"generate/{name}": value for name, value in metrics.items() if value is not None}


def _drawn(role: str, label: str, pairs: Sequence[Pair], most: int, seed: int) -> Pairs:
    """Return at most ``most`` pairs, drawn by the seed."""
    shuffled = (pairs[place] for place in seeded_order(len(pairs), seed))

    # A role that no method knows is a positive.
    kind: Kind = "negative" if role in describing.ROLES["negative"] else "positive"

    return describing.drawn_pairs(kind, label, shuffled, most)


def summary_table(summary: Mapping[str, Any], provenance: Mapping[str, Any]) -> str:
    """Return a table of the replies by role, and of the written pairs beside the pattern's."""
    written, pattern = (entry["pairs"] for entry in summary["sets"])
    replies = provenance["acceptance"]["roles"]
    # Of a role that the data has, only the score was asked.
    names = [role if role in replies else score_name(role) for role in summary["roles"]]
    pairs = dict(zip(names, zip(written, pattern, strict=True), strict=True))
    rows = {}
    for role, counts in replies.items():
        reasons = [f"{reason} {count:,}" for reason, count in counts["rejected"].items()]
        row = {"replies": f"{counts['asked']:,}", "accepted": f"{counts['accepted']:,}"}
        for measure in ("mer", "cosine"):
            spreads = [measured[measure] for measured in pairs.get(role, ())]
            means = [f"{spread['mean']:.3f}" if spread else "-" for spread in spreads]
            row[f"{measure} (pattern)"] = "{} ({})".format(*means) if means else ""

        rows[role] = row | {"rejected": ", ".join(reasons)}

    sources = provenance["acceptance"]["sources"]

    return (
        f"{pd.DataFrame.from_dict(rows, orient='index').to_string()}\n\n"
        f"rows: {sources['complete']:,}, {sources['given_up']:,} given up; "
        f"tokens: {sum(provenance['tokens'].values()):,}; cost: {dollars(provenance['cost'])}"
    )

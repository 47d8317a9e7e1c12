"""Show the requests for LLM rows beforehand, and compare the rows with the pattern afterwards."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.rule import Rule

from lightning_cse import runs
from lightning_cse.analysis import describing
from lightning_cse.analysis.histograms import Pairs, bins_of, draw_histograms, shares
from lightning_cse.data.preparation import seeded_order
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.generation.examples import Pair
from lightning_cse.generation.pattern import ANCHOR, SOURCE, Pattern, Role
from lightning_cse.generation.writing import Writer
from lightning_cse.llm import dollars, price_of

_LETTERS: Final = 4
"""Letters of a token, in English."""
_FEWEST: Final = 30
"""Pairs of a pattern for an overlap; our choice, as fewer leave most bins empty."""
_MEASURES: Final = {"mer": "MER", "cosine": "cosine"}

# Before ------------------------------------------------------------------------------------------


def print_prompts(
    writer: Writer,
    sentences: Sequence[str],
    console: Console,
) -> None:
    """Print the requests for the first sentence, and estimate calls, tokens and cost for all.

    The estimate is for the case that no reply is rejected or in the cache.
    """
    roles = writer.pattern.roles
    endpoint = writer.llm.endpoint

    for role in roles:
        console.print(Rule(f"{role.name}, made from the {role.reference}", align="left"))
        given = sentences[0] if role.reference == SOURCE else f"<{role.reference}>"
        request = writer.request(role, given)

        for who, text in request.messages:
            console.print(f"[{who}]", style="bold")
            console.print(f"{text}\n")

        console.print(f"with {request.parameters}\n", style="dim")

    received = len(roles) * sum(map(len, sentences)) / _LETTERS
    sent = received + len(sentences) * sum(len(role.system) for role in roles) / _LETTERS
    cost = price_of(endpoint.price, sent, received) if endpoint.price else None
    console.print(
        Rule(align="left"),
        f"calls: {len(roles) * len(sentences):,}, if no reply is rejected",
        f"tokens: about {sent:,.0f} sent and {received:,.0f} received",
        f"cost: {dollars(cost)}",
        "nothing was sent; leave out show_prompts=true to send it",
        sep="\n",
    )


# Afterwards --------------------------------------------------------------------------------------


def summarise(
    pattern: Pattern,
    rows: Path,
    encoder: SentenceEncoder | None,
    *,
    most: int,
    seed: int,
) -> dict[str, Any]:
    """Compare rows with the pattern, and write ``summary.json`` and ``histograms.png`` beside them.

    For each role, the ``written`` pairs are anchor and sentence, and the ``pattern`` pairs are all
    those that its examples were drawn from; at most ``most`` of each are measured. The summary
    has their match error rates and, with an encoder, cosines. It also has the ``overlap`` of their
    histograms p and q, the sum of min(p, q) over the bins, which is null if the pattern has fewer
    than 30 pairs.

    Source: NGCSE, figure 7; Swain and Ballard 1991, "Color indexing", histogram intersection.
    Differs: the paper compares histograms by eye.
    """
    written, examples = _measured(pattern, rows, encoder, most, seed)
    sets = {"written": written, "pattern": examples}
    bins = bins_of(sets)
    draw_histograms(sets, rows.with_name("histograms.png"))
    roles: dict[str, Any] = {}

    for role, ours, theirs in zip(pattern.roles, written, examples, strict=True):
        roles[role.name] = {
            "written": describing.pair_summary(ours),
            "pattern": describing.pair_summary(theirs),
            "overlap": {name: _overlap(ours, theirs, name, bins.get(name)) for name in _MEASURES},
        }

    about = encoder and {"name": encoder.name, "pooling": encoder.pooling, **encoder.digests}
    summary = {
        "pattern": {"digest": pattern.digest, "examples": pattern.digests},
        "encoder": about,
        "seed": seed,
        "measured": most,
        "roles": roles,
        "figure": "histograms.png",
        "environment": runs.environment(),
    }
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    runs.write_atomic(rows.with_name("summary.json"), text + "\n")

    return summary


def _measured(
    pattern: Pattern,
    rows: Path,
    encoder: SentenceEncoder | None,
    most: int,
    seed: int,
) -> list[list[Pairs]]:
    """Return the measured pairs of each role, those that were written and those of the pattern."""
    cells = [json.loads(line) for line in rows.read_text(encoding="utf-8").split("\n") if line]
    drawn: list[list[Pairs]] = [[], []]

    for role in pattern.roles:
        pairs = [(row[ANCHOR], row[role.name]) for row in cells]
        drawn[0].append(_drawn(role, f"{ANCHOR} - {role.name}", pairs, most, seed))
        label = f"{role.name}: {role.examples.label}"
        drawn[1].append(_drawn(role, label, role.examples.pool, most, seed))

    return describing.measure(encoder, drawn, seed)


def _drawn(
    role: Role,
    label: str,
    pairs: Sequence[Pair],
    most: int,
    seed: int,
) -> Pairs:
    """Return at most ``most`` pairs, drawn by the seed."""
    shuffled = (pairs[place] for place in seeded_order(len(pairs), seed))

    return describing.drawn_pairs(describing.kind_of(role.name), label, shuffled, most)


def _overlap(
    written: Pairs,
    examples: Pairs,
    measure: str,
    edges: np.ndarray | None,
) -> float | None:
    """Return what the histograms of a measure share; None without it, or with too few pairs."""
    if edges is None or examples.total < _FEWEST:
        return None

    expected = shares(getattr(examples, measure), edges)
    measured = shares(getattr(written, measure), edges)
    return float(np.minimum(measured, expected).sum())


def print_summary(
    summary: Mapping[str, Any],
    provenance: Mapping[str, Any],
    console: Console,
) -> None:
    """Print the accepted replies by role, the rows beside the pattern, and the tokens and cost."""
    columns = ["role", "replies", "accepted"]
    for title in _MEASURES.values():
        columns += [f"{title}: written", "pattern", "overlap"]

    table = describing.table(*columns, left=1)
    table.add_column("rejected as")

    for role, counts in provenance["acceptance"]["roles"].items():
        measured = summary["roles"][role]
        cells = [f"{counts['asked']:,}", f"{counts['accepted']:,}"]

        for name in _MEASURES:
            cells += [describing.mean_cell(measured[side][name]) for side in ("written", "pattern")]
            overlap = measured["overlap"][name]
            cells.append("-" if overlap is None else f"{overlap:.2f}")

        reasons = [f"{reason} {count:,}" for reason, count in counts["rejected"].items()]
        table.add_row(role, *cells, "\n".join(reasons))

    describing.print_tables([table], console)
    sources = provenance["acceptance"]["sources"]
    encoder = summary["encoder"]
    console.print(
        "MER: match error rate; overlap: the area that both histograms share, 0 to 1; "
        f"cosine: {encoder['name'] if encoder else 'no encoder'}",
        f"rows: {sources['complete']:,}, {sources['given_up']:,} given up; "
        f"tokens: {sum(provenance['tokens'].values()):,}; cost: {dollars(provenance['cost'])}",
        sep="\n",
    )

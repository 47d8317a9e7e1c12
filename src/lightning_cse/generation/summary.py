"""Show the requests for LLM rows beforehand, and compare the rows with the pattern's examples afterwards."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.rule import Rule

from lightning_cse import runs
from lightning_cse.analysis import describing
from lightning_cse.analysis.histograms import Pairs, bins_of, draw_histograms, shares
from lightning_cse.data.drawing import seeded_order
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.generation.pattern import ANCHOR, SOURCE, Pattern
from lightning_cse.generation.writing import Writer
from lightning_cse.llm import dollars, price_of

_BYTES: Final = 4  # per token, in English
_FRAME: Final = 8  # tokens around the two messages
_FEWEST: Final = (
    30  # pairs for a histogram of the pattern; our choice, as fewer leave most bins empty
)
_DRAWS: Final = 500  # of two histograms from the same pairs, for two digits of the mean overlap


def print_prompts(
    writer: Writer, sentences: Sequence[str], finished: bool, console: Console
) -> None:
    """Print the requests for the first sentence; estimate calls, tokens and cost for all, if no reply is rejected."""
    roles, endpoint = writer.pattern.roles, writer.llm.endpoint
    for number, role in enumerate(roles, start=1):
        made_of = (
            "the source" if role.reference == SOURCE else f"the {role.reference} that was written"
        )
        console.print(
            Rule(f"{role.name} ({number} of {len(roles)}), made of {made_of}", align="left")
        )
        request = writer.request(
            role, sentences[0] if role.reference == SOURCE else f"<{role.reference}>"
        )
        for who, text in request.messages:
            console.print(f"[{who}]", style="bold")
            console.print(f"{text}\n")
        sent = json.dumps({"model": endpoint.model, **request.parameters}, ensure_ascii=False)
        console.print(f"with {sent}\n", style="dim")
    left, price = [] if finished else sentences, endpoint.price
    received = len(roles) * sum(len(text.encode()) for text in left) / _BYTES
    tokens = (
        received + len(left) * sum(len(role.system.encode()) / _BYTES + _FRAME for role in roles),
        received,
    )
    money = "unknown: llm.price is not set, as in llm.price={input: 0.5, output: 1.5} (USD per million tokens)"
    if price is not None:
        cost = dollars(price_of(price, *map(round, tokens)), least=2)
        money = f"about {cost}, at ${price['input']:g} and ${price['output']:g} per million tokens"
    console.print(
        Rule(align="left"),
        f"rows: {len(sentences):,}{', all written' if finished else ''}",
        f"calls: {len(roles) * len(left):,} to {endpoint.address}; fewer where replies are in the cache, more where "
        f"some are rejected (up to {writer.samples} for a role, then another sentence takes its place)",
        "tokens: about {:,.0f} sent and {:,.0f} received".format(
            *(float(f"{count:.2g}") for count in tokens)
        ),
        f"cost: {money}",
        "nothing was sent; leave out show_prompts=true to send it",
        sep="\n",
    )


def summarise(
    pattern: Pattern, rows: Path, encoder: SentenceEncoder | None, *, looked_at: int, seed: int
) -> dict[str, Any]:
    """Compare rows with the pattern, write ``summary.json`` and ``histograms.png`` beside them, and return the summary.

    For each role, the written pairs are anchor and sentence, and the pattern's pairs are all those that its examples
    were drawn from; at most ``looked_at`` of each are measured. The summary has their match error rates and, with an
    encoder, cosines. It also has the ``overlap`` of their histograms p and q, the sum of min(p, q) over the bins, and
    ``alike``, the mean overlap of two draws of the same sizes from the pattern's histogram. Both are null if the
    pattern has fewer than 30 pairs.

    Source: NGCSE, figure 7; Swain and Ballard 1991, "Color indexing", histogram intersection. Differs: the paper
    compares histograms by eye.
    """
    cells = [json.loads(line) for line in rows.read_text(encoding="utf-8").rstrip("\n").split("\n")]

    def drawn(role: str, label: str, pairs: Sequence[tuple[str, str]]) -> Pairs:
        some = (pairs[place] for place in seeded_order(len(pairs), seed))
        return describing.drawn_pairs(describing.kind_of(role), label, some, looked_at)

    names = [role.name for role in pattern.roles]
    written = [
        drawn(name, f"{ANCHOR} - {name}", [(row[ANCHOR], row[name]) for row in cells])
        for name in names
    ]
    shown = [
        drawn(one.name, f"{one.name}: {one.examples.label}", one.examples.pool)
        for one in pattern.roles
    ]
    ours, theirs = describing.measure(encoder, (written, shown), seed)
    compared = [
        pairs if pairs.there >= _FEWEST else replace(pairs, mer=(), cosine=()) for pairs in theirs
    ]
    sets = {"made": ours}
    if any(len(pairs.mer) for pairs in compared):
        sets["pattern"] = compared
    bins = bins_of(sets)
    roles: dict[str, Any] = {}
    for name, made, pairs, enough in zip(names, ours, theirs, compared, strict=True):
        sides = {"made": describing.pair_summary(made), "pattern": describing.pair_summary(pairs)}
        roles[name] = sides | _overlaps(made, enough, bins, seed)
    draw_histograms(sets, rows.with_name("histograms.png"))
    summary = {
        "pattern": {"name": pattern.name, "digest": pattern.digest, "examples": pattern.digests},
        "rows": {"file": rows.name, "sha256": hashlib.sha256(rows.read_bytes()).hexdigest()},
        "seed": seed,
        "looked_at": looked_at,
        "encoder": None
        if encoder is None
        else {"name": encoder.name, "pooling": encoder.pooling, **encoder.digests},
        "roles": roles,
        "figure": "histograms.png",
        "environment": runs.environment(),
    }
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    runs.write_atomic(rows.with_name("summary.json"), text + "\n")
    return summary


def _overlaps(
    made: Pairs, shown: Pairs, bins: Mapping[str, np.ndarray], seed: int
) -> dict[str, Any]:
    """Return the overlap of the histograms, and that of two draws from the pattern's histogram; None without pairs."""
    found: dict[str, Any] = {
        "overlap": {"mer": None, "cosine": None},
        "alike": {"mer": None, "cosine": None},
    }
    for name, edges in bins.items() if len(shown.mer) else ():
        its, random = shares(getattr(shown, name), edges), np.random.default_rng(seed)
        first, second = (
            random.multinomial(len(pairs.mer), its, _DRAWS) / len(pairs.mer)
            for pairs in (made, shown)
        )
        found["overlap"][name] = float(np.minimum(shares(getattr(made, name), edges), its).sum())
        found["alike"][name] = float(np.minimum(first, second).sum(axis=1).mean())
    return found


def print_summary(
    summary: Mapping[str, Any], provenance: Mapping[str, Any], console: Console
) -> None:
    """Print the accepted replies by role, how the rows compare with the pattern, and the tokens and cost."""
    accepted = describing.table("role", "asked", "accepted", left=1)
    accepted.add_column("rejected as")
    for role, found in provenance["acceptance"]["roles"].items():
        reasons = "\n".join(f"{reason} {count:,}" for reason, count in found["rejected"].items())
        accepted.add_row(role, f"{found['asked']:,}", f"{found['accepted']:,}", reasons)
    columns = [
        cell
        for name in ("MER", "cosine")
        for cell in (f"{name}: made", "pattern", "overlap (alike)")
    ]
    compared = describing.table("role", "rows", "pattern's pairs", *columns, left=1)
    for role, found in summary["roles"].items():
        cells = [f"{found[side]['looked_at']:,}" for side in ("made", "pattern")]
        for name in ("mer", "cosine"):
            shared, alike = found["overlap"][name], found["alike"][name]
            both = "-" if shared is None else f"{shared:.2f} ({alike:.2f})"
            cells += [
                describing.mean_cell(found["made"][name]),
                describing.mean_cell(found["pattern"][name]),
                both,
            ]
        compared.add_row(role, *cells)
    describing.print_tables([accepted, compared], console)
    sources, tokens, cost = (
        provenance["acceptance"]["sources"],
        provenance["tokens"],
        provenance["cost"],
    )
    encoder = "no encoder" if summary["encoder"] is None else summary["encoder"]["name"]
    console.print(
        f"MER: mean match error rate of words between {ANCHOR} and role; cosine: {encoder}",
        "overlap: the area that both histograms share, 0 to 1 (alike: two draws of the pattern share that much); no "
        f"overlap with patterns of fewer than {_FEWEST} pairs",
        f"rows: {sources['complete']:,}, {sources['given_up']:,} given up; tokens: {tokens['prompt']:,} sent, "
        f"{tokens['completion']:,} received; cost: {'unknown' if cost is None else dollars(cost)}",
        sep="\n",
    )

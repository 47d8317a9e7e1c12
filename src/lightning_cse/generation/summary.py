"""What is shown of LLM rows: before, what would be sent; afterwards, how they compare with the pattern's examples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.rule import Rule

from lightning_cse import runs
from lightning_cse.analysis.histograms import Pairs, PairSet, bins_of, draw_histograms, overlap, shares
from lightning_cse.analysis.measuring import (
    ROLES,
    Drawn,
    kind_of,
    mean_cell,
    measure,
    pair_summary,
    print_tables,
    table,
)
from lightning_cse.data.drawing import seeded_order
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.generation.pattern import ANCHOR, SOURCE, Pattern
from lightning_cse.generation.writing import Writer
from lightning_cse.llm import dollars, price_of

FIGURE: Final = "histograms.png"
SUMMARY: Final = "summary.json"

_BYTES: Final = 4  # of a token, in English
_FRAME: Final = 8  # tokens around the two messages
_FEWEST: Final = 30  # pairs that a histogram of the pattern is made of; our choice: fewer leave most bins empty
_DRAWS: Final = 500  # of two histograms of the same pairs; the mean overlap has two digits


def print_prompts(writer: Writer, sentences: Sequence[str], finished: bool, console: Console) -> None:
    """Print the requests for the first sentence, and estimate calls, tokens and money for all, if none is rejected."""
    roles, endpoint = writer.pattern.roles, writer.llm.endpoint
    for number, role in enumerate(roles, start=1):
        made_of = "the source" if role.reference == SOURCE else f"the {role.reference} that was written"
        console.print(Rule(f"{role.name} ({number} of {len(roles)}), made of {made_of}", align="left"))
        request = writer.request(role, sentences[0] if role.reference == SOURCE else f"<{role.reference}>")
        for who, text in request.messages:
            console.print(f"[{who}]", style="bold")
            console.print(f"{text}\n")
        sent = json.dumps({"model": endpoint.model, **request.parameters}, ensure_ascii=False)
        console.print(f"with {sent}\n", style="dim")
    console.print(Rule(align="left"))
    left = [] if finished else sentences
    received = len(roles) * sum(len(text.encode()) for text in left) / _BYTES
    tokens = received + len(left) * sum(len(role.system.encode()) / _BYTES + _FRAME for role in roles), received
    money = "unknown: llm.price is not set, as in llm.price={input: 0.5, output: 1.5} (USD per million tokens)"
    if (price := endpoint.price) is not None:
        cost = dollars(price_of(price, *map(round, tokens)), least=2)
        money = f"about {cost}, at ${price['input']:g} and ${price['output']:g} per million tokens"
    about = [f"{float(f'{count:.2g}'):,.0f}" for count in tokens]
    console.print(
        f"rows: {len(sentences):,}{', all written' if finished else ''}",
        f"calls: {len(roles) * len(left):,} to {endpoint.address}; fewer where replies are in the cache, more where they "
        f"are rejected (up to {writer.samples} for a role, then another sentence takes the place)",
        f"tokens: about {about[0]} sent and {about[1]} received",
        f"cost: {money}",
        "nothing was sent; without show_prompts=true, it is",
        sep="\n",
    )


def summarise(
    pattern: Pattern, rows: Path, encoder: SentenceEncoder | None, *, looked_at: int, seed: int
) -> dict[str, Any]:
    """Compare rows with the pattern, write ``summary.json`` and ``histograms.png`` beside them, return the summary.

    Of each role, the written pairs are anchor and sentence, the pattern's all that its examples were drawn from. The
    summary has their match error rates and cosines, and what their histograms share: ``overlap``, and ``alike``, the
    mean of two draws from the pattern's histogram that are as large. Both are None where the pattern has fewer than 30
    pairs. A summary of the same is returned as it is.

    Source: NGCSE, figure 7. Differs: the paper compares histograms by eye.

    Args:
        pattern: What was asked for.
        rows: The file of rows.
        encoder: What the cosines are of, without dropout; None: no cosines.
        looked_at: The most rows, and the most pairs of the pattern for each role.
        seed: Draws them.
    """
    data, path = rows.read_bytes(), rows.with_name(SUMMARY)
    identity = {
        "pattern": {"name": pattern.name, "digest": pattern.digest, "examples": pattern.digests},
        "rows": {"file": rows.name, "sha256": hashlib.sha256(data).hexdigest()},
        "seed": seed,
        "looked_at": looked_at,
        "encoder": None if encoder is None else {"name": encoder.name, "pooling": encoder.pooling, **encoder.digests},
    }
    if path.is_file() and rows.with_name(FIGURE).is_file():
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if {key: kept.get(key) for key in identity} == identity:
            return kept
    lines = data.decode().rstrip("\n").split("\n")
    cells = [json.loads(lines[number]) for number in seeded_order(len(lines), seed)[:looked_at]]
    written, drawn = [], []
    for role in pattern.roles:
        kind, pool = kind_of(role.name), role.examples.pool
        pairs = [pool[place] for place in seeded_order(len(pool), seed)[:looked_at]]
        both = [row[ANCHOR] for row in cells], [row[role.name] for row in cells]
        written.append(Drawn(kind, f"{ANCHOR} - {role.name}", *both, len(lines)))
        both = [first for first, _ in pairs], [second for _, second in pairs]
        drawn.append(Drawn(kind, f"{role.name}: {role.examples.label}", *both, len(pool)))
    ours, theirs = measure(encoder, (written, drawn), seed)
    compared = [v if d.there >= _FEWEST else Pairs(v.label, ()) for d, v in zip(drawn, theirs, strict=True)]
    sets = [_pair_set("made", pattern, ours)]
    if any(len(pairs.mer) for pairs in compared):
        sets.append(_pair_set("pattern", pattern, compared))
    bins = bins_of(sets)
    roles = {
        role.name: {
            "made": pair_summary(written[number], ours[number]),
            "pattern": pair_summary(drawn[number], theirs[number]),
            **_overlaps(ours[number], compared[number], bins, seed),
        }
        for number, role in enumerate(pattern.roles)
    }
    draw_histograms(sets, rows.with_name(FIGURE))
    summary = {**identity, "roles": roles, "figure": FIGURE, "environment": runs.environment()}
    runs.write_atomic(path, json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return summary


def _pair_set(name: str, pattern: Pattern, measured: Sequence[Pairs]) -> PairSet:
    """Return a row of the figure; a role that no method knows is neither positive nor negative."""
    kinds: dict[str | None, list[Pairs]] = {"positive": [], "negative": [], None: []}
    for role, pairs in zip(pattern.roles, measured, strict=True):
        kinds[next((kind for kind, names in ROLES.items() if role.name in names), None)].append(pairs)
    return PairSet(name, *kinds.values())


def _overlaps(made: Pairs, shown: Pairs, bins: Mapping[str, np.ndarray], seed: int) -> dict[str, Any]:
    """Return what the histograms share, and what those of as many of the pattern's pairs would; None without pairs."""
    found: dict[str, Any] = {"overlap": {"mer": None, "cosine": None}, "alike": {"mer": None, "cosine": None}}
    for name, edges in bins.items() if len(shown.mer) else ():
        its, random = shares(getattr(shown, name), edges), np.random.default_rng(seed)
        first, second = (random.multinomial(len(pairs.mer), its, _DRAWS) / len(pairs.mer) for pairs in (made, shown))
        found["overlap"][name] = overlap(shares(getattr(made, name), edges), its)
        found["alike"][name] = float(np.minimum(first, second).sum(axis=1).mean())
    return found


def print_summary(summary: Mapping[str, Any], provenance: Mapping[str, Any], console: Console) -> None:
    """Print what was accepted by role, how that compares with the pattern, and what it took."""
    accepted = table("role", "asked", "accepted", left=1)
    accepted.add_column("rejected as")
    for role, found in provenance["acceptance"]["roles"].items():
        reasons = "\n".join(f"{reason} {count:,}" for reason, count in found["rejected"].items())
        accepted.add_row(role, f"{found['asked']:,}", f"{found['accepted']:,}", reasons)
    columns = [cell for name in ("MER", "cosine") for cell in (f"{name}: made", "pattern", "overlap (alike)")]
    compared = table("role", "rows", "pattern's pairs", *columns, left=1)
    for role, found in summary["roles"].items():
        cells = [f"{found[side]['looked_at']:,}" for side in ("made", "pattern")]
        for name in ("mer", "cosine"):
            shared, alike = found["overlap"][name], found["alike"][name]
            both = "-" if shared is None else f"{shared:.2f} ({alike:.2f})"
            cells += [mean_cell(found["made"][name]), mean_cell(found["pattern"][name]), both]
        compared.add_row(role, *cells)
    print_tables([accepted, compared], console)
    encoder, tokens, cost = summary["encoder"], provenance["tokens"], provenance["cost"]
    unknown = "llm.price is not set" if provenance["price"] is None else "the endpoint reports no tokens"
    console.print(
        f"MER: mean match error rate of words, {ANCHOR} and role; cosine: {'-' if encoder is None else encoder['name']}",
        "overlap: the area that both histograms share, 0 to 1 (alike: that of two draws of the pattern, as large); - for "
        f"a pattern of fewer than {_FEWEST} pairs",
        "rows: {complete:,}, {given_up:,} given up".format_map(provenance["acceptance"]["sources"])
        + f"; tokens: {tokens['prompt']:,} sent, {tokens['completion']:,} received ({tokens['unmetered']:,} replies "
        f"without counts); cost: {f'unknown ({unknown})' if cost is None else dollars(cost)}",
        sep="\n",
    )

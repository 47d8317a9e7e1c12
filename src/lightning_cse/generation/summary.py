"""Show the requests for LLM rows beforehand, and compare the rows with the pattern afterwards."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
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
from lightning_cse.generation.examples import Pair
from lightning_cse.generation.pattern import ANCHOR, SOURCE, Pattern, Role
from lightning_cse.generation.writing import Writer
from lightning_cse.llm import dollars, price_of

_BYTES: Final = 4
"""Bytes of a token, in English."""
_FRAME: Final = 8
"""Tokens around the two messages."""
_FEWEST: Final = 30
"""Pairs for a histogram of the pattern; our choice, as fewer leave most bins empty."""
_DRAWS: Final = 500
"""Draws of two histograms from the same pairs, for two digits of the mean overlap."""
_MEASURES: Final = {"mer": "MER", "cosine": "cosine"}

Histograms = Mapping[str, np.ndarray]

# Before ------------------------------------------------------------------------------------------


def print_prompts(
    writer: Writer,
    sentences: Sequence[str],
    finished: bool,
    console: Console,
) -> None:
    """Print the requests for the first sentence, and estimate calls, tokens and cost for all.

    The estimate is for the case that no reply is rejected.
    """
    for number, role in enumerate(writer.pattern.roles, start=1):
        _print_prompt(
            writer,
            number,
            role,
            sentences[0],
            console,
        )

    console.print(
        Rule(align="left"),
        *_estimate(writer, sentences, finished),
        sep="\n",
    )


def _print_prompt(
    writer: Writer,
    number: int,
    role: Role,
    source: str,
    console: Console,
) -> None:
    is_first = role.reference == SOURCE
    reference = "the source" if is_first else f"the {role.reference} that was written"
    count = len(writer.pattern.roles)
    title = f"{role.name} ({number} of {count}), made from {reference}"
    console.print(Rule(title, align="left"))
    request = writer.request(role, source if is_first else f"<{role.reference}>")

    for who, text in request.messages:
        console.print(f"[{who}]", style="bold")
        console.print(f"{text}\n")

    parameters = {"model": writer.llm.endpoint.model, **request.parameters}
    console.print(f"with {json.dumps(parameters, ensure_ascii=False)}\n", style="dim")


def _estimate(
    writer: Writer,
    sentences: Sequence[str],
    finished: bool,
) -> Iterator[str]:
    """Yield the lines that estimate the cost of the rows."""
    roles = writer.pattern.roles
    endpoint = writer.llm.endpoint
    left = [] if finished else sentences
    length = sum(len(text.encode()) for text in left) / _BYTES
    received = len(roles) * length
    instructions = sum(len(role.system.encode()) / _BYTES + _FRAME for role in roles)
    sent = received + len(left) * instructions

    if endpoint.price is None:
        cost = (
            "unknown: llm.price is not set, as in llm.price={input: 0.5, output: 1.5} "
            "(USD per million tokens)"
        )
    else:
        price = endpoint.price
        money = dollars(price_of(price, round(sent), round(received)), least=2)
        cost = f"about {money}, at ${price['input']:g} and ${price['output']:g} per million tokens"

    yield f"rows: {len(sentences):,}{', all written' if finished else ''}"
    yield (
        f"calls: {len(roles) * len(left):,} to {endpoint.address}; fewer where replies are in the "
        f"cache, more where some are rejected (up to {writer.samples} for a role, then another "
        "sentence takes its place)"
    )
    yield f"tokens: about {_two_digits(sent)} sent and {_two_digits(received)} received"
    yield f"cost: {cost}"
    yield "nothing was sent; leave out show_prompts=true to send it"


def _two_digits(count: float) -> str:
    return f"{float(f'{count:.2g}'):,.0f}"


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
    histograms p and q, the sum of min(p, q) over the bins, and ``overlap_of_draws``, the mean
    overlap of two draws of the same sizes from the pattern's histogram. Both are null if the
    pattern has fewer than 30 pairs.

    Source: NGCSE, figure 7; Swain and Ballard 1991, "Color indexing", histogram intersection.
    Differs: the paper compares histograms by eye.
    """
    written, examples = _measured(
        pattern,
        rows,
        encoder,
        most,
        seed,
    )
    comparable = [_enough(pairs) for pairs in examples]
    sets = {"written": written}

    if any(len(pairs.mer) for pairs in comparable):
        sets["pattern"] = comparable

    bins = bins_of(sets)
    draw_histograms(sets, rows.with_name("histograms.png"))
    roles: dict[str, Any] = {}

    for place, role in enumerate(pattern.roles):
        roles[role.name] = {
            "written": describing.pair_summary(written[place]),
            "pattern": describing.pair_summary(examples[place]),
            **_overlaps(
                written[place],
                comparable[place],
                bins,
                seed,
            ),
        }

    summary = {
        "pattern": {
            "name": pattern.name,
            "digest": pattern.digest,
            "examples": pattern.digests,
        },
        "rows": {
            "file": rows.name,
            "sha256": hashlib.sha256(rows.read_bytes()).hexdigest(),
        },
        "seed": seed,
        "measured": most,
        "encoder": _identity(encoder),
        "roles": roles,
        "figure": "histograms.png",
        "environment": runs.environment(),
    }
    text = json.dumps(
        summary,
        indent=2,
        ensure_ascii=False,
        allow_nan=False,
    )
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
    lines = rows.read_text(encoding="utf-8").rstrip("\n").split("\n")
    cells = [json.loads(line) for line in lines]
    written = []
    examples = []

    for role in pattern.roles:
        pairs = [(row[ANCHOR], row[role.name]) for row in cells]
        label = f"{ANCHOR} - {role.name}"
        written.append(
            _drawn(
                role.name,
                label,
                pairs,
                most,
                seed,
            )
        )
        label = f"{role.name}: {role.examples.label}"
        examples.append(
            _drawn(
                role.name,
                label,
                role.examples.pool,
                most,
                seed,
            )
        )

    return describing.measure(
        encoder,
        (written, examples),
        seed,
    )


def _drawn(
    role: str,
    label: str,
    pairs: Sequence[Pair],
    most: int,
    seed: int,
) -> Pairs:
    """Return at most ``most`` pairs, drawn by the seed."""
    shuffled = (pairs[place] for place in seeded_order(len(pairs), seed))

    return describing.drawn_pairs(
        describing.kind_of(role),
        label,
        shuffled,
        most,
    )


def _enough(pairs: Pairs) -> Pairs:
    """Return the pairs, without their measures if there are too few for a histogram."""
    return (
        pairs
        if pairs.total >= _FEWEST
        else replace(
            pairs,
            mer=(),
            cosine=(),
        )
    )


def _identity(encoder: SentenceEncoder | None) -> dict[str, str] | None:
    if encoder is None:
        return None
    return {
        "name": encoder.name,
        "pooling": encoder.pooling,
        **encoder.digests,
    }


def _overlaps(
    written: Pairs,
    examples: Pairs,
    bins: Histograms,
    seed: int,
) -> dict[str, Any]:
    """Return the overlap of the histograms, and that of two draws from the pattern's histogram."""
    overlap: dict[str, float | None] = dict.fromkeys(_MEASURES)
    of_draws: dict[str, float | None] = dict.fromkeys(_MEASURES)

    if len(examples.mer):
        for name, edges in bins.items():
            expected = shares(getattr(examples, name), edges)
            measured = shares(getattr(written, name), edges)
            overlap[name] = float(np.minimum(measured, expected).sum())
            generator = np.random.default_rng(seed)
            first = _draws(generator, len(written.mer), expected)
            second = _draws(generator, len(examples.mer), expected)
            of_draws[name] = float(np.minimum(first, second).sum(axis=1).mean())

    return {"overlap": overlap, "overlap_of_draws": of_draws}


def _draws(
    generator: np.random.Generator,
    count: int,
    expected: np.ndarray,
) -> np.ndarray:
    """Return the shares of `_DRAWS` draws of ``count`` pairs from a histogram: (draws, bins)."""
    return generator.multinomial(count, expected, _DRAWS) / count


def print_summary(
    summary: Mapping[str, Any],
    provenance: Mapping[str, Any],
    console: Console,
) -> None:
    """Print the accepted replies by role, the rows beside the pattern, and the tokens and cost."""
    accepted = describing.table(
        "role",
        "replies",
        "accepted",
        left=1,
    )
    accepted.add_column("rejected as")

    for role, counts in provenance["acceptance"]["roles"].items():
        reasons = [f"{reason} {count:,}" for reason, count in counts["rejected"].items()]
        accepted.add_row(
            role,
            f"{counts['asked']:,}",
            f"{counts['accepted']:,}",
            "\n".join(reasons),
        )

    columns = ["role", "rows", "pattern's pairs"]
    for title in _MEASURES.values():
        columns += [
            f"{title}: written",
            "pattern",
            "overlap (of draws)",
        ]

    compared = describing.table(*columns, left=1)
    for role, measured in summary["roles"].items():
        compared.add_row(role, *_compared(measured))

    describing.print_tables([accepted, compared], console)

    sources = provenance["acceptance"]["sources"]
    tokens = provenance["tokens"]
    cost = provenance["cost"]
    encoder = summary["encoder"]
    console.print(
        f"MER: mean match error rate of words between {ANCHOR} and role; "
        f"cosine: {'no encoder' if encoder is None else encoder['name']}",
        "overlap: the area that both histograms share, 0 to 1 (in parentheses: what two draws of "
        f"the pattern share); no overlap with patterns of fewer than {_FEWEST} pairs",
        f"rows: {sources['complete']:,}, {sources['given_up']:,} given up; "
        f"tokens: {tokens['prompt']:,} sent, {tokens['completion']:,} received; "
        f"cost: {'unknown' if cost is None else dollars(cost)}",
        sep="\n",
    )


def _compared(measured: Mapping[str, Any]) -> Iterator[str]:
    """Yield the cells of a role: counts, then per measure both means and the overlap."""
    yield f"{measured['written']['measured']:,}"
    yield f"{measured['pattern']['measured']:,}"

    for name in _MEASURES:
        yield describing.mean_cell(measured["written"][name])
        yield describing.mean_cell(measured["pattern"][name])
        overlap = measured["overlap"][name]

        if overlap is None:
            yield "-"
        else:
            yield f"{overlap:.2f} ({measured['overlap_of_draws'][name]:.2f})"

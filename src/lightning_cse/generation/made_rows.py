"""What a language model wrote beside the pattern it was shown: whether the pattern came across."""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lightning_cse import runs
from lightning_cse.analysis.describing import (
    ROLES,
    Drawn,
    Kind,
    kind_of,
    mean_cell,
    measure,
    pair_summary,
    print_tables,
    table,
)
from lightning_cse.analysis.histograms import Pairs, PairSet, bins_of, draw_histograms, overlap, shares
from lightning_cse.data.corpora import read_bytes
from lightning_cse.data.drawing import seeded_order
from lightning_cse.data.parsers import checked_sentence, parse_object
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.errors import DataError
from lightning_cse.generation import ANCHOR, Pattern
from lightning_cse.llm import dollars
from lightning_cse.runs.machine import device_of

__all__ = ["look_at", "print_made"]

FIGURE: Final = "histograms.png"
SUMMARY: Final = "summary.json"

_MEASURES: Final = ("mer", "cosine")
_FEWEST: Final = 30  # pairs that a histogram of the pattern is made of; our choice: fewer leave most bins empty
_DRAWS: Final = 500  # of two histograms of the same pairs; the mean overlap has two digits
_REASONS: Final = 60  # characters of a table's line


def look_at(
    pattern: Pattern, rows: Path, encoder: SentenceEncoder | None, *, looked_at: int, seed: int, folder: Path
) -> dict[str, Any]:
    """Measure made pairs and the pattern's own, write ``summary.json`` and ``histograms.png``, and return the summary.

    Of each role, the pairs made are those that training sees, the anchor and the role's sentence, whatever sentence
    that was made of; the pattern's are all that its examples could have been. The summary says of both how match error
    rates and cosines are spread, and how much of their histograms they share, with the figure's bins: ``overlap``, and
    ``alike``, which is what two draws of the pattern's pairs share on average that are as large as the two looked at,
    and so what to expect of a pattern that came across. Both are None, and the figure leaves the pattern's pairs out,
    where its examples come of fewer than 30 pairs, such as those that stand in the pattern: their histogram tells
    nothing. A role's ``kind`` is None where no method knows it; the figure then has positive and negative pairs in one
    panel. If a summary of the same rows, pattern, encoder and draw is there, it is returned as it is; without an
    encoder, also one that has the cosines of whatever encoder.

    Source: NGCSE, figure 7.  Differs: the paper compares histograms by eye, and gives no number of theirs.

    Args:
        pattern: What was asked for.
        rows: The JSON lines that were written, with a sentence for the anchor and each role.
        encoder: What the cosines are of, without dropout; None: match error rates only.
        looked_at: At most so many rows, and so many of the pattern's pairs for each role.
        seed: Draws them.
        folder: Where the two files go.

    Raises:
        DataError: If the rows cannot be read, there is none, or one lacks a sentence, with file and line.
        EncoderError: If an embedding has a value that is not a finite number.
        LightningCSEError: If the disk is full.
    """
    data = read_bytes(rows)
    identity = {
        "pattern": {
            "name": pattern.name,
            "digest": pattern.digest,
            "pools": {role: pool.label for role, pool in pattern.pools.items()},
            "examples": dict(pattern.digests),
        },
        "rows": {"file": rows.name, "sha256": hashlib.sha256(data).hexdigest()},
        "seed": seed,
        "looked_at": looked_at,
        "fewest_pairs": _FEWEST,
        "encoder": None if encoder is None else _reading(encoder),
    }
    kept = _kept(folder, identity)
    if kept is not None:
        return kept
    made = _made(pattern, rows, data, looked_at, seed)
    shown = [_shown(pattern, role.name, looked_at, seed) for role in pattern.roles]
    measured = measure(encoder, (made, shown), seed)
    compared = [
        values if pairs.there >= _FEWEST else Pairs(values.label, ())
        for pairs, values in zip(shown, measured[1], strict=True)
    ]
    kinds = [_kind(role.name) for role in pattern.roles]
    sets = [_pair_set("made", kinds, measured[0])]
    if any(len(pairs.mer) for pairs in compared):
        sets.append(_pair_set("pattern", kinds, compared))
    bins = bins_of(sets)
    roles = {
        role.name: {
            "kind": kinds[number],
            "made": _told(made[number], measured[0][number], kinds[number]),
            "pattern": _told(shown[number], measured[1][number], kinds[number]),
            **_overlaps(measured[0][number], compared[number], bins, seed),
        }
        for number, role in enumerate(pattern.roles)
    }
    summary = {
        **identity,
        "bins": {key: {"from": edges[0], "to": edges[-1], "count": len(edges) - 1} for key, edges in bins.items()},
        "roles": roles,
        "device": None if encoder is None else device_of().type,
        "figure": FIGURE,
        "environment": runs.environment(),
    }
    draw_histograms(sets, folder / FIGURE)
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    runs.write_atomic(folder / SUMMARY, text + "\n")
    read: dict[str, Any] = json.loads(text)
    return read


def _reading(encoder: SentenceEncoder) -> dict[str, Any]:
    return {
        "name": encoder.name,
        **encoder.digests,
        "pooling": encoder.pooling,
        "max_length": encoder.max_length,
    }


def _kept(folder: Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the summary that is there, if it is what would be written, or that and cosines."""
    if not (folder / FIGURE).is_file():
        return None
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(summary, dict) or not {"roles", "encoder"} <= summary.keys():
        return None
    # An encoder that cannot be loaded today must not cost the cosines of one that was.
    decisive = identity.keys() - ({"encoder"} if identity["encoder"] is None else set())
    return summary if all(summary.get(key) == identity[key] for key in decisive) else None


def _made(pattern: Pattern, rows: Path, data: bytes, most: int, seed: int) -> list[Drawn]:
    """Return the pairs of some of the rows, by role."""
    if not data.strip():
        raise DataError(f"{rows}: no row")
    lines = data.rstrip(b"\r\n").split(b"\n")
    names = (ANCHOR, *(role.name for role in pattern.roles))
    columns: dict[str, list[str]] = {name: [] for name in names}
    drawn = seeded_order(len(lines), seed)[:most]
    for line in drawn:
        for name, sentence in zip(names, _sentences(lines[line], names, f"{rows}:{line + 1}"), strict=True):
            columns[name].append(sentence)
    return [
        Drawn(kind_of(role), f"{ANCHOR} - {role}", columns[ANCHOR], columns[role], len(lines)) for role in names[1:]
    ]


def _sentences(line: bytes, names: Sequence[str], where: str) -> list[str]:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not valid UTF-8 at byte {error.start + 1}") from None
    cells = parse_object(text, where)
    for name in names:
        if name not in cells:
            raise DataError(f"{where}: missing key {name!r}; keys found: {', '.join(cells) or 'none'}")
    return [checked_sentence(cells[name], name, where) for name in names]


def _shown(pattern: Pattern, role: str, most: int, seed: int) -> Drawn:
    """Return some of the pairs that the role's examples could have been."""
    pool = pattern.pools[role]
    pairs = [pool.pairs[place] for place in seeded_order(len(pool.pairs), seed)[:most]]
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    return Drawn(kind_of(role), f"{role}: {pool.label}", first, second, len(pool.pairs))


def _kind(role: str) -> Kind | None:
    """Return which kind of pair a role makes with the anchor; None if no method knows it."""
    return kind_of(role) if any(role in roles for roles in ROLES.values()) else None


def _pair_set(name: str, kinds: Sequence[Kind | None], measured: Sequence[Pairs]) -> PairSet:
    """Return the pairs of all roles as a row of the figure."""
    positive, negative, neither = (
        [pairs for kind, pairs in zip(kinds, measured, strict=True) if kind == wanted]
        for wanted in ("positive", "negative", None)
    )
    return PairSet(name, positive, negative, neither)


def _told(drawn: Drawn, pairs: Pairs, kind: Kind | None) -> dict[str, Any]:
    return pair_summary(drawn, pairs) | {"kind": kind}


def _overlaps(made: Pairs, shown: Pairs, bins: Mapping[str, np.ndarray], seed: int) -> dict[str, Any]:
    """Return what the histograms share, and what those of as many of the pattern's would; None where it has none."""
    found: dict[str, Any] = {"overlap": dict.fromkeys(_MEASURES), "alike": dict.fromkeys(_MEASURES)}
    if not len(shown.mer):
        return found
    for name, edges in bins.items():
        mine, its = shares(getattr(made, name), edges), shares(getattr(shown, name), edges)
        found["overlap"][name] = overlap(mine, its)
        found["alike"][name] = _alike(its, (len(made.mer), len(shown.mer)), seed)
    return found


def _alike(pattern: np.ndarray, sizes: tuple[int, int], seed: int) -> float:
    """Return the mean overlap of two histograms of so many values that are drawn from one."""
    random = np.random.default_rng(seed)
    first, second = (random.multinomial(size, pattern, _DRAWS) / size for size in sizes)
    return float(np.minimum(first, second).sum(axis=1).mean())


# ------------------------------------------------------------------------------------------------------ what is shown


def print_made(summary: Mapping[str, Any], provenance: Mapping[str, Any], console: Console) -> None:
    """Print what was accepted by role, how that compares with the pattern, and what it took.

    Args:
        summary: What `look_at` returned.
        provenance: What stands beside the rows.
        console: Where to; no number is cut where it is narrow.
    """
    print_tables([_acceptance_table(provenance["acceptance"]["roles"]), _pattern_table(summary)], console)
    for note in (*_notes(summary), _taken(provenance)):
        console.print(Text(note), soft_wrap=True)


def _acceptance_table(roles: Mapping[str, Any]) -> Table:
    made = table("role", "asked", "accepted", "rate", left=1)
    made.add_column("rejected as", no_wrap=True)
    for role, found in roles.items():
        asked, accepted = found["asked"], found["accepted"]
        rate = f"{100 * accepted / asked:.1f} %" if asked else "-"
        made.add_row(role, f"{asked:,}", f"{accepted:,}", rate, _reasons(found["rejected"]))
    return made


def _reasons(rejected: Mapping[str, int]) -> str:
    """Return reasons and counts, the commonest first, on lines that end between two of them."""
    told = [f"{reason} {count:,}" for reason, count in sorted(rejected.items(), key=lambda item: -item[1])]
    joined = ", ".join(each.replace(" ", "\N{NO-BREAK SPACE}") for each in told)
    return textwrap.fill(joined, _REASONS, break_on_hyphens=False).replace("\N{NO-BREAK SPACE}", " ")


def _pattern_table(summary: Mapping[str, Any]) -> Table:
    columns = [cell for name in ("MER", "cosine") for cell in (f"{name}: made", "pattern", "overlap (alike)")]
    made = table("role", "rows", "pattern's pairs", *columns, left=1)
    for role, found in summary["roles"].items():
        cells = []
        for name in _MEASURES:
            shared, alike = found["overlap"][name], found["alike"][name]
            cells += [mean_cell(found["made"][name]), mean_cell(found["pattern"][name])]
            cells.append("-" if shared is None else f"{shared:.2f} ({alike:.2f})")
        made.add_row(role, f"{found['made']['looked_at']:,}", f"{found['pattern']['looked_at']:,}", *cells)
    return made


def _notes(summary: Mapping[str, Any]) -> list[str]:
    encoder = summary["encoder"]
    cosine = "no cosines" if encoder is None else f"cosine: {encoder['name']}, pooling {encoder['pooling']}"
    few = [role for role, found in summary["roles"].items() if found["pattern"]["pairs"] < summary["fewest_pairs"]]
    notes = [
        f"MER: match error rate of words, mean over pairs of {ANCHOR} and role; {cosine}",
        "overlap: the area that the two histograms share, 0 to 1 "
        "(alike: what as many pairs would share that are all the pattern's)",
    ]
    if few:
        notes.append(
            f"no overlap: {', '.join(few)}, since fewer than {summary['fewest_pairs']} pairs of the pattern make no "
            "histogram; examples drawn from a corpus or a file (examples.from) have one"
        )
    return notes


def _taken(provenance: Mapping[str, Any]) -> str:
    """Return rows, tokens and cost on a line."""
    sources, tokens, cost = provenance["acceptance"]["sources"], provenance["tokens"], provenance["cost"]
    parts = [f"rows: {sources['complete']:,}, {sources['given_up']:,} given up"]
    untold = f" ({tokens['unmetered']:,} replies told none)" if tokens["unmetered"] else ""
    parts.append(f"tokens: {tokens['prompt']:,} sent, {tokens['completion']:,} received{untold}")
    unknown = "llm.price was not set" if provenance["price"] is None else "the endpoint told no tokens"
    parts.append(f"cost: unknown ({unknown})" if cost is None else f"cost: {dollars(cost)}")
    return "; ".join(parts)

"""The edit distance of two sentences, counted in words."""

from rapidfuzz.distance import Levenshtein


def match_error_rate(reference: str, hypothesis: str) -> float:
    r"""Return the match error rate of two sentences, from 0 (equal) to 1 (no word kept).

    .. math:: \mathrm{MER} = \frac{S + D + I}{S + D + I + H}

    with the substitutions :math:`S`, deletions :math:`D`, insertions :math:`I` and hits :math:`H`
    of an alignment with the fewest errors. White space separates words; they are compared as
    written. Two sentences without words are equal. If several alignments have the fewest errors,
    the one that rapidfuzz finds is used, as in jiwer, so swapping the two sentences can change the
    value.

    Source: Morris, Maier and Green 2004, "From WER and RIL to MER and WIL"; NGCSE, figure
    7.  Differs: a reference without words is allowed.

    Examples:
        >>> match_error_rate("a dog is running outside", "a dog is sleeping")  # 3 hits, 2 errors
        0.4
    """
    words = reference.split()
    edits = Levenshtein.editops(words, hypothesis.split()).as_list()
    insertions = sum(operation == "insert" for operation, _, _ in edits)
    total = len(words) + insertions  # S + D + H are the words of the reference

    return len(edits) / total if total else 0.0

"""The counts of all registrations by verdict and state, as one line."""

from collections.abc import Mapping

__all__ = ["RARE", "SAID", "total"]

SAID, RARE = ("CONFIRMED", "REFUTED", "INCONCLUSIVE"), ("SCREENED", "DEVIATED")
# The states of registrations without a verdict, with their labels.
OPEN = {
    "locked": "locked, not run",
    "unfinished": "claimed, unfinished",
    "amended": "amended",
    "withdrawn": "withdrawn",
    "INVALID": "INVALID",
    "cannot tell": "cannot tell",
}


def total(counts: Mapping[str, int]) -> str:
    """Format the counts. The three verdicts of a rule appear even if zero; other words only if their count is
    not.

    counts: of "registered" and "judged", of every verdict and state, and in "one_model" the CONFIRMED ones
    with one model.
    """
    said = [f"{counts[word]} {word}" for word in SAID] + _some(counts, {word: word for word in RARE})
    if counts["one_model"]:
        said[0] += f" ({counts['one_model']} for one model alone)"
    verdicts = f": {', '.join(said)}" if counts["judged"] else ""
    whole = f"{counts['registered']} registered, {counts['judged']} judged{verdicts}"
    return "; ".join([whole, *_some(counts, OPEN)])


def _some(counts: Mapping[str, int], words: Mapping[str, str]) -> list[str]:
    """Return the counts that are not zero, each with its label."""
    return [f"{counts[name]} {word}" for name, word in words.items() if counts[name]]

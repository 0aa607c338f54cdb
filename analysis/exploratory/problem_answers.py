"""The answers of all arms to one problem, and where an answer departs from another one.

Texts are the model's, character by character. A caller that prints them must escape them.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

__all__ = [
    "LEVELS",
    "Answer",
    "Divergence",
    "Piece",
    "ProblemAnswers",
    "RetainedTokens",
    "first_difference",
    "judged_score",
    "marked_length",
    "merge_levels",
    "share_level",
]

_WORD = re.compile(r"\S+")
LONGEST = 40  # characters of a word that is marked as one; in a longer word only the character is
LEVELS = ("none", "up to a third", "up to two thirds", "more", "all")  # of heads that retain a token


class Divergence(NamedTuple):
    """The first difference of two texts: the word at which they diverge, counted from 1, and the character,
    from 0, at which that word begins in both.
    """

    word: int
    character: int

    def __str__(self) -> str:
        return f"word {self.word} (character {self.character})"


class Piece(NamedTuple):
    """The text of a token, and the share of (layer, KV head) pairs in which a slot stores it."""

    text: str
    share: float


class RetainedTokens(NamedTuple):
    """The tokens that a lane retained, from decoding it again. same: whether that reproduced its record;
    said: that, as text.

    event: after which eviction step, from 1, of how many; step: new tokens fed by then; before: whether it is
    the last one before the lane's text diverges from the reference's. pieces: every token fed by then, of
    which the first `prompt` are the prompt's. after: the answer that was written later. remark: what the
    shares do not show.
    """

    same: bool
    said: str
    event: int
    events: int
    step: int
    before: bool
    pieces: tuple[Piece, ...]
    prompt: int
    after: str
    remark: str = ""

    @property
    def event_text(self) -> str:
        """The eviction step as text."""
        tokens_text = f"{self.step} new tokens" if self.step else "the prompt"
        remark_text = ", the last one before the two texts part" if self.before else ""
        return f"event {self.event} of {self.events}, after {tokens_text}{remark_text}"


class Answer(NamedTuple):
    """One lane. budget: as registered; slots: the resolved number, None if nothing is evicted.

    held: slots per KV head and layer, at the end of the prefill and after each fed token. events: of its
    record. parts: where its text diverges from the reference's; None if it does not, and for the reference.
    unkept: why `kept` is None; "" if it was not requested.
    """

    arm: str
    budget: str
    state: str
    reason: str
    text: str
    tokens: int
    stop: str | None
    answer: str | None
    grade: str | None
    why: str
    score: str | None
    worth: float | None
    prompt: str
    prompt_tokens: int
    slots: int | None
    held: tuple[float, ...]
    events: tuple[tuple[int, int, int], ...]
    parts: Divergence | None = None
    kept: RetainedTokens | None = None
    unkept: str = ""

    @property
    def mean_slots(self) -> float:
        """Slots per KV head and layer, mean over all steps; of a lane that succeeded."""
        return sum(self.held) / len(self.held)

    @property
    def eviction_count(self) -> int:
        """The number of eviction steps that reduced the slots."""
        return sum(before > after for _, before, after in self.events)

    @property
    def evictions_text(self) -> str:
        return "1 eviction" if self.eviction_count == 1 else f"{self.eviction_count} evictions"


class ProblemAnswers(NamedTuple):
    """The lanes of a study for a problem, one model and one seed.

    prompt: as text, with the prefix of the answer; None for the reason in `unbuilt`. gold: the right answers,
    empty if the problem could not be built. reference: the lane that others are compared with, the full
    cache's if it was recorded. others: options that show more of the records.
    """

    folder: str
    phase: str
    verdict: str
    problem: str
    model: str
    task: str
    seed: int
    prompt: str | None
    unbuilt: str
    gold: tuple[str, ...]
    reference: Answer | None
    full: bool
    answers: tuple[Answer, ...]
    remarks: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def reference_name(self) -> str:
        """The name of the reference."""
        if self.reference is None:
            return "nothing"
        return "the full cache" if self.full else self.reference.arm

    def to_json(self) -> dict[str, Any]:
        """Return the content as JSON values."""
        return {name: _to_json(value) for name, value in self._asdict().items()}

    def lost(self) -> list[Answer]:
        """Return the answers with a lower score than the reference's."""
        return [answer for answer in self.answers if _score_change(answer, self.reference) < 0]

    def gained(self) -> list[Answer]:
        return [answer for answer in self.answers if _score_change(answer, self.reference) > 0]


def _to_json(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _to_json(item) for name, item in value._asdict().items()}
    return [_to_json(item) for item in value] if isinstance(value, tuple) else value


def _score_change(answer: Answer, reference: Answer | None) -> float:
    if reference is None or reference.worth is None or answer.worth is None:
        return 0
    return answer.worth - reference.worth


def judged_score(body: Mapping[str, Any]) -> float | None:
    """Return the score that a judgement counts for the body of a record: None for a lane without a grade."""
    if body["state"] != "ok" or body["grade"] == "error":
        return None
    return float(body["score"]) if body["grade"] == "scored" else float(body["grade"] == "correct")


def first_difference(text: str, reference: str) -> Divergence | None:
    """Return where two texts diverge, None if they are equal: at the beginning of the first word that
    differs, or where one of them ends or has another white space.
    """
    if text == reference:
        return None
    shortest = min(len(text), len(reference))
    position = next((index for index in range(shortest) if text[index] != reference[index]), shortest)
    start = position
    if not (_is_at_word_end(text, position) and _is_at_word_end(reference, position)):
        while start and not text[start - 1].isspace() and position - start < LONGEST:
            start -= 1
        if position - start == LONGEST:
            start = position
    return Divergence(len(_WORD.findall(text[:start])) + 1, start)


def _is_at_word_end(text: str, position: int) -> bool:
    """Return whether the position is at the end of a word."""
    return position == len(text) or text[position].isspace()


def share_level(share: float) -> int:
    """Return the index into LEVELS of a share."""
    if share <= 0 or share >= 1:
        return int(share >= 1) * (len(LEVELS) - 1)
    return 1 + (share > 1 / 3) + (share > 2 / 3)


def marked_length(text: str, position: int) -> int:
    """Return how many characters to mark from a `Divergence` on: a word, or one white space instead of it."""
    if text[position : position + 1].isspace():
        return 1
    word = _WORD.match(text, position)
    return 0 if word is None else min(LONGEST, len(word[0]))


def merge_levels(pieces: Sequence[Piece]) -> list[tuple[str, int]]:
    """Merge neighbouring pieces of one level into one text."""
    levels = [share_level(piece.share) for piece in pieces]
    ends = [index for index, (a, b) in enumerate(pairwise(levels), 1) if a != b]
    starts = [0, *ends] if pieces else []
    return [
        ("".join(piece.text for piece in pieces[start:stop]), levels[start])
        for start, stop in zip(starts, [*ends, len(pieces)], strict=bool(pieces))
    ]

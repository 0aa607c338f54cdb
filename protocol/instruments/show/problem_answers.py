"""The answers of all arms to one problem, and which tokens they retained.

Texts are the model's, character by character. A caller that prints them must escape them.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from analysis.exploratory.text_difference import Divergence
from protocol.formats.text_tables import format_count

LEVELS = ("none", "up to a third", "up to two thirds", "more", "all")  # of heads that retain a token


class Piece(NamedTuple):
    """The text of a token, and the share of (layer, KV head) pairs in which a slot stores it."""

    text: str
    share: float


class RetainedTokens(NamedTuple):
    """The tokens that a lane retained, from decoding it again. same: whether that reproduced its record;
    said: that, as text.

    event: after which eviction step, from 1, of how many; step: new tokens fed by then; before: whether it is the last
    one before the lane's text diverges from the reference's. pieces: every token fed by then, of which the first
    `prompt` are the prompt's. after: the answer that was written later. remark: what the shares do not show.
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
        remark_text = ", the last one before the two texts differ" if self.before else ""
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
        return format_count(self.eviction_count, "eviction")


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

    @property
    def lanes(self) -> list[Answer]:
        """All lanes, the reference first."""
        return [*([] if self.reference is None else [self.reference]), *self.answers]

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


def share_level(share: float) -> int:
    """Return the index into LEVELS of a share."""
    if share <= 0 or share >= 1:
        return int(share >= 1) * (len(LEVELS) - 1)
    return 1 + (share > 1 / 3) + (share > 2 / 3)


def merge_levels(pieces: Sequence[Piece]) -> list[tuple[str, int]]:
    """Merge neighbouring pieces of one level into one text."""
    levels = [share_level(piece.share) for piece in pieces]
    ends = [index for index, (a, b) in enumerate(pairwise(levels), 1) if a != b]
    starts = [0, *ends] if pieces else []
    return [
        ("".join(piece.text for piece in pieces[start:stop]), levels[start])
        for start, stop in zip(starts, [*ends, len(pieces)], strict=bool(pieces))
    ]

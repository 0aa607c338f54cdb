"""The table [anatomy] of protocol.toml: which tokens of a model's answers are occluded, and how.

`protocol.instruments.anatomy.trace_file` derives the expected traces from the lock. Labels are those of EpiKV
(section 3.2): windows of 32 tokens every 16; a token is needed if any window over it changes the grade.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from protocol.formats.canonical import MAX_INTEGER
from protocol.formats.fields import Choice, Integer, Text, declaration, declare, optional, table_of
from protocol.formats.refusals import BadInput
from protocol.instruments.anatomy.fields import BEYOND, HALVES, ORACLE, PARTS, POSITION
from protocol.instruments.anatomy.trace_file import assign_half
from protocol.instruments.anatomy.windows import Occlude, Reading
from protocol.plan.field_kinds import Number
from protocol.plan.generation import TRUE

if TYPE_CHECKING:
    from protocol.plan.design import Design


WRITTEN = ("occlude", ("reasoning", "all"))  # the cases in which text of the model is occluded
MOST = 2**20  # tokens
TAIL = 64  # tokens


class Occlusion(NamedTuple):
    """The fields of [anatomy] that determine the occlusions of one trace."""

    window: int
    stride: int
    reading: Reading
    occlude: Occlude
    boundary: str | None
    tail: int | None
    cut: Decimal
    new_tokens: int
    slip: Decimal | None = None
    sampled: bool = False


@declaration(kw_only=True)
class Anatomy:
    """The table [anatomy]. A trace is an answer of the full cache to a development problem."""

    window: int = declare(Integer(1, MOST), "Tokens that are occluded at once.", 32)
    stride: int = declare(Integer(1, MOST), "Tokens from the beginning of one window to that of the next.", 16)
    reading: Reading = declare(
        Choice(*get_args(Reading), noun="value"),
        'What becomes of a window in the registered test: "padded", other tokens stand there and the '
        'text is read anew, or "dropped", its slots leave the cache. Both are always recorded.',
        "dropped",
    )
    occlude: Occlude = declare(
        Choice(*get_args(Occlude), noun="value"),
        'Which tokens may be occluded: "reasoning", what the model wrote before its answer, "prompt", '
        'the context of the problem, or "all".',
        "reasoning",
    )
    new_tokens: int = declare(Integer(1, MOST), "Most tokens of an answer after an occlusion.", 32)
    alpha: Decimal = declare(Number("0.0001", "0.2"), "Chance of a false finding, over all models and tasks.", 0.05)
    draws: int = declare(Integer(1000, 1_000_000), "Draws of the bootstrap over traces.", 2000)
    seed: int = declare(Integer(0, MAX_INTEGER), "Seed of these draws.", 7)
    boundary: str | None = optional(
        Text(r"\S(.{0,98}\S)?", "text of up to 100 characters, none of them a space at an end"),
        "The text whose last occurrence in what the model wrote begins its answer.",
        "\\boxed{",
        if_absent="the last `tail` tokens are the answer, as where the text does not occur",
        only_if=WRITTEN,
    )
    tail: int | None = optional(
        Integer(1, MOST),
        "Tokens at the end of a trace that are its answer where `boundary` finds none.",
        TAIL,
        if_absent=str(TAIL),
        only_if=WRITTEN,
    )
    cut: Decimal | None = optional(
        Number("0.01", "1"),
        "The share of its reasoning after which the model goes on by itself; 1: right before its answer.",
        0.5,
        if_absent="1",
        only_if=WRITTEN,
    )
    beyond: str | None = optional(
        Choice(*BEYOND, noun="value"),
        'What an agreement has to exceed to count as more than position: "parts", the position within the prompt '
        'and within the written text, each with a level and a slope, or "position", one slope for both.',
        PARTS,
        if_absent='parts; in studies that ship, "position"',
    )
    traces: int | None = optional(
        Integer(1, 1_000_000),
        "Development problems of each task and model, the first of the split.",
        100,
        if_absent="all",
    )

    slip: Decimal | None = optional(
        Number("0.01", "0.5"),
        "The share of its thought, of the tokens that the answer attends to least (SlipKV), that is dropped before "
        "the answer, of wrong answers too; as many are dropped by chance, and of those it attends to most.",
        0.3,
        if_absent="nothing is",
        only_if=WRITTEN,
    )
    sampled: bool | None = optional(
        TRUE,
        "The tokens of traces and continuations are drawn at the temperature and top_p of `[generation]`, with the "
        "noise of the first of `seeds`; every continuation of a problem has the noise of its trace.",
        True,
        if_absent="both are greedy, whatever the arms are",
    )

    def occlusion(self) -> Occlusion:
        """Return the settings for the occlusions of one trace, with defaults for absent fields."""
        return Occlusion(
            self.window,
            self.stride,
            self.reading,
            self.occlude,
            self.boundary,
            TAIL if self.tail is None else self.tail,
            Decimal(1) if self.cut is None else self.cut,
            self.new_tokens,
            self.slip,
            self.sampled is True,
        )


TABLE = replace(
    table_of(Anatomy),
    corrections=lambda: {
        **dict.fromkeys(("window_size", "width", "span"), "window"),
        **dict.fromkeys(("step", "hop", "shift"), "stride"),
        **dict.fromkeys(("max_new_tokens", "continuation", "output_tokens"), "new_tokens"),
        **dict.fromkeys(("problems", "dev", "max_traces", "n"), "traces"),
        **dict.fromkeys(("bootstrap", "reps", "resamples"), "draws"),
        **dict.fromkeys(("answer", "marker", "mark"), "boundary"),
    },
)


def faults(anatomy: Anatomy, design: "Design", evicting: Sequence[str]) -> Iterator[str]:
    """Yield one line, with the fix, for each fault of [anatomy] in a design. evicting: the arms that evict."""
    if anatomy.stride > anatomy.window:
        yield (
            f"anatomy.stride: {anatomy.stride} is more than the window of {anatomy.window}, so that tokens "
            f"between two windows are never occluded; write {anatomy.window} or less"
        )
    if anatomy.beyond == POSITION and anatomy.occlude == "all":
        yield (
            "anatomy.beyond: one slope leaves the step between prompt and written text, with which any signal agrees "
            f'that only tells them apart; write "{PARTS}", or occlude one of them'
        )
    if anatomy.slip is not None and anatomy.cut not in (None, Decimal(1)):
        yield f"anatomy.slip: is dropped right before the answer, not after {anatomy.cut} of the thought; leave out cut"
    if anatomy.sampled and design.generation.temperature == 0:
        yield "anatomy.sampled: nothing is drawn at temperature 0; leave sampled out, or set generation.temperature"
    if ORACLE in [arm.name for arm in design.arms]:
        yield f"arms.{ORACLE}: is what [anatomy] calls what its labels keep; name the arm otherwise"
    if not evicting:
        yield "anatomy: no arm evicts, and what arms keep is held against the labels; add one or leave it out"


def refuse_infeasible(anatomy: Anatomy, items: Mapping[str, Any], scored: Sequence[str]) -> None:
    """Raise BadInput for occlusions of answers that have scores, since a label is a grade that changed, and for a
    half without a development problem. items: by task, as in the lock. scored: the tasks with scores.
    """
    if scored:
        raise BadInput(
            f"anatomy: the answers of {scored[0]} have scores, and a label asks whether a right one turns "
            "wrong; leave [anatomy] out, or the task"
        )
    for name, item in items.items():
        halves = {assign_half(problem, item) for problem in item["dev"][: anatomy.traces]}
        if missing := [half for half in HALVES if half not in halves]:
            raise BadInput(
                f"anatomy: of the development problems of {name} none falls into the half {missing[0]!r} (by "
                "the MD5 of its id or its cluster); take more of them: dev of the task, or anatomy.traces"
            )

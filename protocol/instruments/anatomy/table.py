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
        'How a window is occluded in the registered test: "padded" replaces its tokens by others and reads '
        'the text again, "dropped" removes its slots from the cache. Both are always recorded.',
        "dropped",
    )
    occlude: Occlude = declare(
        Choice(*get_args(Occlude), noun="value"),
        'Which tokens may be occluded: "reasoning", what the model wrote before its answer, "prompt", '
        'the context of the problem, or "all".',
        "reasoning",
    )
    new_tokens: int = declare(Integer(1, MOST), "The most tokens of an answer after an occlusion.", 32)
    alpha: Decimal = declare(Number("0.0001", "0.2"), "Chance of a false finding, over all models and tasks.", 0.05)
    draws: int = declare(Integer(1000, 1_000_000), "Draws of the bootstrap over traces.", 2000)
    seed: int = declare(Integer(0, MAX_INTEGER), "Seed of these draws.", 7)
    boundary: str | None = optional(
        Text(r"\S(.{0,98}\S)?", "text of up to 100 characters, without a space at either end"),
        "The text whose last occurrence in what the model wrote begins its answer.",
        "\\boxed{",
        if_absent="the last `tail` tokens are the answer, as they are where the text does not occur",
        only_if=WRITTEN,
    )
    tail: int | None = optional(
        Integer(1, MOST),
        "The number of tokens at the end of a trace that count as its answer where `boundary` does not occur.",
        TAIL,
        if_absent=str(TAIL),
        only_if=WRITTEN,
    )
    cut: Decimal | None = optional(
        Number("0.01", "1"),
        "The share of its reasoning after which the model continues freely; 1: right before its answer.",
        0.5,
        if_absent="1",
        only_if=WRITTEN,
    )
    beyond: str | None = optional(
        Choice(*BEYOND, noun="value"),
        'How position is controlled for, so that agreement counts only beyond it: "parts" uses the position '
        'within the prompt and within the written text, each with a level and a slope; "position" uses one '
        "slope for both.",
        PARTS,
        if_absent='"parts"; in the studies that ship with kv-prereg, "position"',
    )
    traces: int | None = optional(
        Integer(1, 1_000_000),
        "The number of development problems of each task and model; the first of the split are taken.",
        100,
        if_absent="all",
    )

    slip: Decimal | None = optional(
        Number("0.01", "0.5"),
        "The share of the thought that is dropped before the answer: the tokens to which the answer attends "
        "least (SlipKV). For comparison as many are dropped at random, and as many to which it attends most. "
        "Wrong answers are treated alike.",
        0.3,
        if_absent="nothing is",
        only_if=WRITTEN,
    )
    sampled: bool | None = optional(
        TRUE,
        "Tokens of traces and continuations are sampled at the temperature and top_p of `[generation]`, with "
        "the noise of the first of `seeds`; every continuation has the noise of its trace.",
        True,
        if_absent="both are greedy, also if the arms sample",
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
            f"anatomy.stride: {anatomy.stride} is more than the window of {anatomy.window}, so tokens between "
            f"two windows would never be occluded; write {anatomy.window} or less"
        )
    if anatomy.beyond == POSITION and anatomy.occlude == "all":
        yield (
            "anatomy.beyond: one slope ignores the step between prompt and written text, so any signal that "
            f'merely separates the two would agree; write "{PARTS}", or occlude only one of them'
        )
    if anatomy.slip is not None and anatomy.cut not in (None, Decimal(1)):
        yield (
            f"anatomy.slip: drops tokens right before the answer, not after {anatomy.cut} of the thought; leave cut out"
        )
    if anatomy.sampled and design.generation.temperature == 0:
        yield "anatomy.sampled: nothing is sampled at temperature 0; leave sampled out, or set generation.temperature"
    if ORACLE in [arm.name for arm in design.arms]:
        yield (
            f"arms.{ORACLE}: this name is reserved in [anatomy] for the tokens that labels keep; give the arm "
            "another name"
        )
    if not evicting:
        yield (
            "anatomy: no arm evicts, so there are no kept tokens to compare with the labels; add an evicting "
            "arm, or leave [anatomy] out"
        )


def refuse_infeasible(anatomy: Anatomy, items: Mapping[str, Any], scored: Sequence[str]) -> None:
    """Raise BadInput for occlusions of answers that have scores, since a label is a grade that changed, and for a
    half without a development problem. items: by task, as in the lock. scored: the tasks with scores.
    """
    if scored:
        raise BadInput(
            f"anatomy: the answers of {scored[0]} have scores, but labels need answers that are right or "
            "wrong; leave out [anatomy] or the task"
        )
    for name, item in items.items():
        halves = {assign_half(problem, item) for problem in item["dev"][: anatomy.traces]}
        if missing := [half for half in HALVES if half not in halves]:
            raise BadInput(
                f"anatomy: no development problem of {name} falls into the half {missing[0]!r} (by the MD5 of "
                "its id or its cluster); take more problems: raise dev of the task, or anatomy.traces"
            )

"""The table [generation] of protocol.toml: how lanes are decoded."""

from decimal import Decimal
from typing import Any

from protocol.formats.fields import FLAG, Choice, Integer, Plain, declaration, declare, optional, table_of
from protocol.formats.registry import loader
from protocol.plan.field_kinds import Number, Recency, VisibleText

TRUE = Plain(lambda value: value is True, {"const": True}, "true, or leave it out")


@declaration()
class Preservation:
    """Slots that no evicting arm may drop."""

    prompt: bool = declare(FLAG, "Whether all tokens of the prompt are protected from eviction.", True)
    recent: int | str = declare(
        Recency(),
        "How many of the last slots of each head are protected: a number, or a share of the event's budget "
        "K, rounded down.",
        "min(128, K/4)",
    )
    lines: str | None = optional(
        VisibleText(r"\S(.*\S)?", "the beginning of a line, without spaces around it"),
        (
            "Lines of the answer that begin with this text are protected too: the latest ones that fit into "
            "what the other protected tokens leave of the budget, and at most half of the budget."
        ),
        "State:",
        if_absent="no line",
    )
    sinks: int | str | None = optional(
        Recency(),
        "How many of the first slots of each head are protected; written like `recent`.",
        "K/10",
        if_absent="no sinks",
    )


@declaration()
class Generation:
    """How lanes are decoded: sampling, batches, eviction schedule, device."""

    temperature: Decimal = declare(Number("0", "5"), "0 decodes greedily; a temperature above 0 samples.", 0)
    dtype: str = declare(
        Choice("float32", "bfloat16", corrections=loader("protocol.plan.aliases:DTYPES")),
        "The number format of weights and cache.",
        "float32",
    )
    device: str = declare(
        Choice("cpu", "cuda", corrections=loader("protocol.plan.aliases:DEVICES")),
        "The device on which the model runs.",
        "cpu",
    )
    threads: int = declare(Integer(1, 1024), "The number of threads of each process.", 2)
    top_p: Decimal | None = optional(
        Number("0.0001", "1"),
        "Nucleus sampling: the next token is drawn from the likeliest tokens whose probabilities sum to this share.",
        0.95,
        if_absent="1, all tokens",
    )
    problems_per_batch: int | None = optional(
        Integer(1, 1024),
        "The number of problems whose lanes are decoded together and recorded in one write.",
        4,
        if_absent="1",
    )
    lanes_per_batch: int | None = optional(
        Integer(1, 65_536),
        'How many of these lanes decode at once. With `kernel = "native"` no record depends on this number, '
        "and if it is left out each machine chooses.",
        64,
        if_absent="registering chooses a number that fits into free memory",
    )
    prefill_chunk: int | None = optional(
        Integer(1, 2**24), "The number of tokens of a prompt that are fed at once.", 512, if_absent="all"
    )
    interval: int | None = optional(
        Integer(1, 1_000_000),
        "Decode steps between the events of every arm that evicts and has no interval of its own.",
        128,
        if_absent="no event while decoding",
    )
    cadence: str | None = optional(
        Choice("slack", "exact"),
        '"slack": a lane grows to its budget plus one interval before slots are evicted. "exact": slots are '
        "evicted every `interval` steps.",
        "slack",
        if_absent="slack",
    )
    first_event: int | None = optional(
        Integer(0, 1_000_000),
        (
            "Decode steps before which no event fires, except the event at the end of the compressed prompt. 1: the "
            "first token of the answer is chosen before any event. 0: a question outside the context may be cut "
            "before the first token."
        ),
        0,
        if_absent="1",
    )
    prompt: str | None = optional(
        Choice("competes", "pinned", noun="value"),
        '"pinned" protects the tokens of the prompt at every event; otherwise they compete like all others.',
        "pinned",
        if_absent="competes",
    )
    preserve: Preservation | None = optional(
        table_of(Preservation),
        (
            "What every evicting arm protects instead of what its policy protects. The policy's own sinks "
            "and windows then compete like all other slots, even a window whose queries give the scores. "
            "Cannot be combined with `prompt`."
        ),
        if_absent="each policy protects its own slots",
    )
    think_only: bool | None = optional(
        TRUE,
        "No event fires once a lane has written the mark with which its model ends its thinking: the token "
        "`</think>` or, where there is none, a token that begins with `\\boxed`.",
        True,
        if_absent="events until the answer ends",
    )
    attention: str | None = optional(
        Choice("padded", "varlen", noun="value"),
        (
            'How new tokens attend to slots. "varlen" treats every KV head of a lane as a sequence with its '
            "own length, summed in an order that does not depend on the batch; it needs cuda and bfloat16. "
            '"padded" pads the heads of a pool to one length, with a mask.'
        ),
        "padded",
        if_absent='"varlen" on cuda in bfloat16 if the kernel supports the model\'s heads, otherwise "padded"',
    )
    kernel: str | None = optional(
        Choice("eager", "native", noun="value"),
        (
            'What computes the prefill and each decode step. "native" is C++ code, built on first use, whose '
            "numbers do not depend on the rest of the batch; it needs cpu and float32 and a model of type Llama, "
            'Qwen2 or Qwen3. "eager" is the model\'s own forward pass.'
        ),
        "native",
        if_absent="eager",
    )
    workers: int | None = optional(
        Integer(1, 256),
        "The number of processes that run batches in parallel, with `threads` each. No record depends on it.",
        2,
        if_absent="1",
    )

    @property
    def is_batch_invariant(self) -> bool:
        """Whether a lane's numbers are the same to the bit whoever decodes beside it."""
        return self.kernel == "native"

    @property
    def steps_before_eviction(self) -> int:
        """The number of decode steps before the first eviction."""
        return 1 if self.first_event is None else self.first_event

    def engine_settings(self) -> dict[str, Any]:
        """Return the arguments of `engine.run` that follow from this table alone, whichever prompts are decoded."""
        return {
            "temperature": float(self.temperature),
            "top_p": float(1 if self.top_p is None else self.top_p),
            "prefill_chunk": self.prefill_chunk,
            "first_event": self.steps_before_eviction,
            "attention": self.attention,
            "kernel": self.kernel,
        }

"""The table [cost] of protocol.toml: measurements of time and memory, separate from accuracy.

`protocol.instruments.cost.measurement_file` derives from the lock what each repetition runs, in which order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from protocol.formats.canonical import MAX_INTEGER
from protocol.formats.fields import Integer, ListOf, declaration, declare, optional, table_of
from protocol.formats.suggestions import unknown_message
from protocol.plan.budget import Budget, BudgetKind
from protocol.plan.field_kinds import VisibleText

if TYPE_CHECKING:
    from protocol.plan.design import Design

MOST = 2**24  # tokens in a prompt or an answer


@declaration(kw_only=True)
class Cost:
    """Prompts are random tokens of a fixed length and stop tokens are ignored, so that every arm does the same work."""

    prompt_tokens: tuple[int, ...] = declare(
        ListOf(Integer(2, MOST), 1), "Lengths of the synthetic prompts.", [512, 1024]
    )
    new_tokens: int = declare(
        Integer(2, MOST),
        "New tokens of every lane. The first comes from the prefill; decoding feeds all except the last.",
        128,
    )
    lanes: tuple[int, ...] = declare(ListOf(Integer(1, 65_536), 1), "The numbers of lanes that decode at once.", [1, 8])
    repetitions: int = declare(Integer(1, 1000), "Timed runs of each arm, budget, length and number of lanes.", 5)
    warm_ups: int = declare(Integer(1, 100), "Warm-up runs before each timed run; the first measures memory.", 1)
    seed: int = declare(Integer(0, MAX_INTEGER), "Seed of the prompts, and of the order within a repetition.", 7)
    arms: tuple[str, ...] | None = optional(
        ListOf(VisibleText(), 1), "The arms.", ["full", "crystal"], if_absent="all arms"
    )
    budgets: tuple[Budget, ...] | None = optional(
        ListOf(BudgetKind(), 1), "The budgets, each a registered one.", [0.3], if_absent="all budgets"
    )
    fits_in: int | None = optional(
        Integer(1, MAX_INTEGER),
        (
            "The memory limit, in bytes, by which the largest fitting number of lanes is reported: on CUDA "
            "it applies to the peak of reserved memory, on a CPU to the peak of keys and values."
        ),
        8_589_934_592,
        if_absent="all memory of the device",
    )


TABLE = replace(
    table_of(Cost),
    corrections=lambda: {
        **dict.fromkeys(("batch_size", "batch_sizes", "batches", "concurrency"), "lanes"),
        **dict.fromkeys(("context", "contexts", "context_length", "prompt_length", "prompt"), "prompt_tokens"),
        **dict.fromkeys(("max_new_tokens", "output_tokens"), "new_tokens"),
        **dict.fromkeys(("repeats", "reps", "runs", "trials"), "repetitions"),
        **dict.fromkeys(("warmup", "warmups", "warm_up"), "warm_ups"),
        **dict.fromkeys(("memory", "limit", "memory_limit"), "fits_in"),
    },
)


def faults(cost: Cost, design: "Design", evicting: Sequence[str]) -> Iterator[str]:
    """Yield one line, with the fix, for each fault of [cost] with regard to the arms and budgets of a design."""
    arms, budgets = [arm.name for arm in design.arms], design.budgets
    budget_texts = [str(budget) for budget in cost.budgets or ()]
    for name in cost.arms or ():
        if name not in arms:
            yield "cost.arms: " + unknown_message("arm", name, arms)
    for budget in budget_texts:
        if budget not in (registered := [str(allowed) for allowed in budgets]):
            yield f"cost.budgets: {budget} is not registered; name one of {', '.join(registered)}"
    lists: dict[str, Sequence[object]] = {
        "prompt_tokens": cost.prompt_tokens,
        "lanes": cost.lanes,
        "arms": cost.arms or (),
        "budgets": budget_texts,
    }
    for field, values in lists.items():
        for twice in sorted({str(value) for value in values if values.count(value) > 1}):
            yield f"cost.{field}: {twice} occurs twice; name each once"

"""Eviction counts of every arm from its records: eviction steps, idle lanes, and the ratios of papers.

The memory of a lane is in its record, whose `cache` summarizes the trajectory (docs/records.md). The memory
without eviction follows from the tokens that were fed. Papers use different definitions of a "ratio": each
has a name here, and all of them are reported side by side.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from analysis.judgement.arm_text import press_arms
from protocol.formats import runners
from protocol.formats.record_fields import count_evictions
from protocol.formats.vocabulary import FULL

CELL_FIELDS = ("model", "task", "budget", "arm")
FAILED = "failed"  # the state of a lane
MASKED = "it keeps every slot, although it may mask some, so that nothing is shown at its budget"
ALTERED = (
    "it keeps every slot, but stores slots in another form than the full cache or has another prompt, "
    "so that nothing is shown about its eviction"
)
CellKey: TypeAlias = tuple[str, str, str, str]


class LaneMemory(NamedTuple):
    """The memory of one successful lane. Slots are per KV head and layer.

    question: tokens of a question that is fed after the first eviction step; None if unknown.
    evicting: eviction steps that removed slots; fired: all of them.
    """

    prompt: int
    budget: int | None
    generated: int
    fed: int
    question: int | None
    prefill_end: Fraction
    mean: Fraction
    peak: Fraction
    mean_bytes: int
    peak_bytes: int
    evicting: int
    fired: int

    @property
    def unevicted(self) -> Fraction | None:
        """Slots at the end without eviction: the prompt, the question and every token that was fed."""
        return None if self.question is None else Fraction(self.prompt + self.question + self.fed)

    @property
    def unevicted_mean(self) -> Fraction | None:
        """Mean slots without eviction over the end of the prefill, a later question, and each fed token."""
        if self.question is None:
            return None
        begun, moments = self.prompt + self.question, self.fed + 1
        grown = Fraction(moments * (2 * begun + self.fed), 2)
        return (grown + self.prompt) / (moments + 1) if self.question else grown / moments


class Ratio(NamedTuple):
    """A ratio of sums over lanes, of two fields of `LaneMemory`. full: whether `under` is that of the full cache's lane
    with the same problem and seed.
    """

    text: str
    over: str
    under: str
    full: bool = False


RATIOS: Mapping[str, Ratio] = MappingProxyType(
    {
        "prefill": Ratio(
            "slots at the end of the prefill over tokens of the prompt: 1 - compression_ratio of kvpress",
            "prefill_end",
            "prompt",
        ),
        "budget/prompt": Ratio(
            "the budget over tokens of the prompt, whatever the cache size while decoding", "budget", "prompt"
        ),
        "budget/text": Ratio(
            "the budget over tokens of prompt and answer, at the end of the answer", "budget", "unevicted"
        ),
        "budget/answer": Ratio(
            "the budget over tokens of the full cache's answer, without the prompt: the ratio of R-KV",
            "budget",
            "generated",
            full=True,
        ),
        "mean": Ratio("mean slots over time, relative to the same text without eviction", "mean", "unevicted_mean"),
        "mean/full": Ratio(
            "mean slots relative to the full cache, each on its own answer: longer answers need more slots",
            "mean",
            "mean",
            full=True,
        ),
        "peak": Ratio("peak slots relative to the same text without eviction", "peak", "unevicted"),
        "peak/full": Ratio("peak slots relative to the full cache, each on its own answer", "peak", "peak", full=True),
        "bytes/full": Ratio(
            "mean bytes of keys and values relative to the full cache, as allocated",
            "mean_bytes",
            "mean_bytes",
            full=True,
        ),
        "peak bytes/full": Ratio(
            "peak bytes of keys and values relative to the full cache, as allocated",
            "peak_bytes",
            "peak_bytes",
            full=True,
        ),
    }
)
# Memory of an arm relative to its registered budget.
OF_BUDGET: Mapping[str, Ratio] = MappingProxyType(
    {
        "prefill_end": Ratio("at the end of the prefill", "prefill_end", "budget"),
        "mean": Ratio("mean over time", "mean", "budget"),
        "peak": Ratio("peak", "peak", "budget"),
    }
)


def count_arms(recorded: Iterable[Mapping[str, Any]], content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each (model, task, budget, arm), in the order of the records: successful `lanes`,
    `never`, those in which no eviction step removed slots, `events` that removed slots per lane (mean, least,
    most), `fired`, the mean number of all eviction steps, the mean budget `slots`, and, each a Fraction or
    None, `of_budget` and `ratios` by the names above.

    `failed` counts failed lanes, which enter nothing else; `press` says whether the arm runs a press.

    recorded: bodies of records of one phase. content: of the protocol in the lock. Nothing is known of a study that
    another harness runs.
    """
    if runners.TABLE in content:
        return []
    outside = {task["name"] for task in content["tasks"] if task["query"] == "outside"}
    pressed, failed = press_arms(content), Counter[CellKey]()
    questions: dict[tuple[str, str], int] = {}
    arms: dict[CellKey, dict[tuple[int, str], LaneMemory]] = {}
    for body in recorded:
        cell, problem, cell_key = body["cell"], body["problem"], _cell_key(body)
        if body["state"] == "ok":
            if cell["task"] in outside and not count_evictions(body["cache"]["events"]):
                questions[cell["model"], problem] = _question_tokens(body)
            arms.setdefault(cell_key, {})[cell["seed"], problem] = _lane_memory(body)
        elif body["state"] == FAILED:
            failed[cell_key] += 1
    for (model, task, *_), lanes in arms.items():
        if task in outside:
            lanes |= {key: lane._replace(question=questions.get((model, key[1]))) for key, lane in lanes.items()}
    full_lanes: dict[tuple[str, str], Mapping[tuple[int, str], LaneMemory]] = {}
    for (model, task, budget, _), lanes in arms.items():
        if budget == FULL:
            full_lanes.setdefault((model, task), lanes)
    return [
        _arm_row(cell_key, lanes, full_lanes.get(cell_key[:2], {}))
        | {"failed": failed[cell_key], "press": cell_key[-1] in pressed}
        for cell_key, lanes in arms.items()
    ]


def _cell_key(body: Mapping[str, Any]) -> CellKey:
    cell = body["cell"]
    return cell["model"], cell["task"], cell["budget"], cell["arm"]


def never_evicted(row: Mapping[str, Any]) -> bool:
    """Return whether an arm with a budget never evicted."""
    return bool(row["budget"] != FULL and row["never"] == row["lanes"])


def eviction_warnings(rows: Sequence[Mapping[str, Any]], altered: Container[str] = ()) -> list[str]:
    """Return a line for each cell in which an arm with a budget never evicted, and one line for all cells in
    which only some lanes did not evict. altered: from `arm_text.altered_arms`.
    """
    unchanged = "it is the full cache under another name, so that nothing is shown about its policy"
    lines = [
        f"arm {row['arm']} evicted nothing in any of {row['lanes']} lanes at {row['budget']} "
        f"({row['model']}, {row['task']}): "
        + (MASKED if row["press"] else ALTERED if row["arm"] in altered else unchanged)
        for row in rows
        if never_evicted(row)
    ]
    partly = [row for row in rows if row["budget"] != FULL and 0 < row["never"] < row["lanes"]]
    if partly:
        shares = sorted(100 * row["never"] / row["lanes"] for row in partly)
        least, most = (f"{share:.0f}" for share in (shares[0], shares[-1]))
        arms, budgets = (", ".join(dict.fromkeys(row[name] for row in partly)) for name in ("arm", "budget"))
        is_other = any(row["press"] or row["arm"] in altered for row in partly)
        lines.append(
            f"{least if least == most else f'{least} to {most}'} % of the lanes of {arms} at {budgets} "
            f"evicted nothing: in these, the arm {'keeps every slot' if is_other else 'is the full cache'}"
        )
    lines += [
        f"arm {row['arm']} failed in {row['failed']} of {row['failed'] + row['lanes']} lanes at "
        f"{row['budget']} ({row['model']}, {row['task']}): the memory of the failed lanes is not counted"
        for row in rows
        if row["failed"]
    ]
    return lines


def _question_tokens(body: Mapping[str, Any]) -> int:
    """Return the tokens of a separate question: the peak of a lane without eviction minus its prompt and the
    tokens that were fed.
    """
    return int(Fraction(body["cache"]["peak"]) - body["prompt_tokens"] - _fed_tokens(body))


def _fed_tokens(body: Mapping[str, Any]) -> int:
    """Return how many new tokens were fed: the last one is not if the lane reached its token limit."""
    return int(body["tokens"]) - int(body["stop"] == "length")


def _lane_memory(body: Mapping[str, Any]) -> LaneMemory:
    """Return the memory of a lane whose question is part of the prompt."""
    cache = body["cache"]
    return LaneMemory(
        prompt=body["prompt_tokens"],
        budget=body["slots"],
        generated=body["tokens"],
        fed=_fed_tokens(body),
        question=0,
        prefill_end=Fraction(cache["prefill_end"]),
        mean=Fraction(cache["mean"]),
        peak=Fraction(cache["peak"]),
        mean_bytes=cache["mean_bytes"],
        peak_bytes=cache["peak_bytes"],
        evicting=count_evictions(cache["events"]),
        fired=len(cache["events"]),
    )


Lanes: TypeAlias = Mapping[tuple[int, str], LaneMemory]  # key: seed and problem


def _arm_row(cell_key: CellKey, lanes: Lanes, full_lanes: Lanes) -> dict[str, Any]:
    """Return the row of one arm. full_lanes: of the full cache in this model and task, possibly empty."""
    memories = list(lanes.values())
    events = [lane.evicting for lane in memories]
    pairs = [(lane, full_lanes[key]) for key, lane in lanes.items() if key in full_lanes]
    alone = [(lane, lane) for lane in memories]
    budgets = [lane.budget for lane in memories if lane.budget is not None]
    return {
        **dict(zip(CELL_FIELDS, cell_key, strict=True)),
        "lanes": len(memories),
        "never": events.count(0),
        "events": {"mean": Fraction(sum(events), len(events)), "least": min(events), "most": max(events)},
        "fired": Fraction(sum(lane.fired for lane in memories), len(memories)),
        "slots": Fraction(sum(budgets), len(budgets)) if budgets else None,
        "of_budget": {name: _sum_ratio(ratio, alone) for name, ratio in OF_BUDGET.items()},
        "ratios": {name: _sum_ratio(ratio, pairs if ratio.full else alone) for name, ratio in RATIOS.items()},
    }


def _sum_ratio(ratio: Ratio, pairs: Sequence[tuple[LaneMemory, LaneMemory]]) -> Fraction | None:
    """Return the ratio of sums; None if a lane lacks a value, and without lanes."""
    over = [getattr(lane, ratio.over) for lane, _ in pairs]
    under = [getattr(reference, ratio.under) for _, reference in pairs]
    if None in over or None in under or not sum(under):
        return None
    return Fraction(sum(over)) / Fraction(sum(under))

"""Eviction counts of every arm from its records: eviction steps, idle lanes, and the ratios of papers.

The memory of a lane is in its record, whose `cache` summarizes the trajectory (docs/records.md). The memory
without eviction follows from the tokens that were fed. Papers use different definitions of a "ratio": each
has a name here, and all of them are reported side by side.
"""

import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from analysis.studies import plain_files
from analysis.studies.arms import presses

__all__ = ["OF_BUDGET", "RATIOS", "Held", "bodies", "counted", "idle", "removed", "warnings"]

PLACE = ("model", "task", "budget", "arm")
FAILED = "failed"  # the state of a lane
MASKED = "it holds every slot, whether or not it masks some, so that nothing is shown at its budget"
UNLIKE = (
    "it holds every slot and stores it otherwise than the full cache, or was asked otherwise, so that "
    "nothing is shown of its evicting"
)
FULL = "full"  # the budget of arms that never evict
Place: TypeAlias = tuple[str, str, str, str]


class Held(NamedTuple):
    """The memory of one successful lane. Slots are per KV head and layer.

    question: tokens of a question that is fed after the first eviction step; None if unknown.
    evicting: eviction steps that removed slots; fired: all of them.
    """

    prompt: int
    budget: int | None
    generated: int
    fed: int
    asked: int | None
    prefill_end: Fraction
    mean: Fraction
    peak: Fraction
    mean_bytes: int
    peak_bytes: int
    evicting: int
    fired: int

    @property
    def whole(self) -> Fraction | None:
        """Slots at the end without eviction: the prompt, the question and every token that was fed."""
        return None if self.asked is None else Fraction(self.prompt + self.asked + self.fed)

    @property
    def whole_mean(self) -> Fraction | None:
        """Mean slots without eviction over the end of the prefill, a later question, and each fed token."""
        if self.asked is None:
            return None
        begun, moments = self.prompt + self.asked, self.fed + 1
        grown = Fraction(moments * (2 * begun + self.fed), 2)
        return (grown + self.prompt) / (moments + 1) if self.asked else grown / moments


class Ratio(NamedTuple):
    """A ratio of sums over lanes: of `over` to `under`. full: whether `under` is measured on the lane of the
    full cache with the same problem and seed.
    """

    words: str
    over: Callable[[Held], Any]
    under: Callable[[Held], Any]
    full: bool = False


RATIOS: Mapping[str, Ratio] = MappingProxyType(
    {
        "prefill": Ratio(
            "slots at the end of the prefill by tokens of the prompt: 1 - compression_ratio of kvpress",
            lambda lane: lane.prefill_end,
            lambda lane: lane.prompt,
        ),
        "budget/prompt": Ratio(
            "the budget by tokens of the prompt, whatever is held while decoding",
            lambda lane: lane.budget,
            lambda lane: lane.prompt,
        ),
        "budget/text": Ratio(
            "the budget by tokens of prompt and answer, at the end of the answer",
            lambda lane: lane.budget,
            lambda lane: lane.whole,
        ),
        "budget/answer": Ratio(
            "the budget by tokens of the full cache's answer: R-KV's, which leaves the prompt out",
            lambda lane: lane.budget,
            lambda lane: lane.generated,
            full=True,
        ),
        "mean": Ratio(
            "mean slots over all moments by those of the same text with nothing evicted",
            lambda lane: lane.mean,
            lambda lane: lane.whole_mean,
        ),
        "mean/full": Ratio(
            "mean slots by those of the full cache, each on its own answer: longer answers hold more",
            lambda lane: lane.mean,
            lambda lane: lane.mean,
            full=True,
        ),
        "peak": Ratio(
            "most slots at any moment by those of the same text with nothing evicted",
            lambda lane: lane.peak,
            lambda lane: lane.whole,
        ),
        "peak/full": Ratio(
            "most slots at any moment by the full cache's, each on its own answer",
            lambda lane: lane.peak,
            lambda lane: lane.peak,
            full=True,
        ),
        "bytes/full": Ratio(
            "mean bytes of keys and values by the full cache's, as allocated",
            lambda lane: lane.mean_bytes,
            lambda lane: lane.mean_bytes,
            full=True,
        ),
        "peak bytes/full": Ratio(
            "most bytes of keys and values by the full cache's, as allocated",
            lambda lane: lane.peak_bytes,
            lambda lane: lane.peak_bytes,
            full=True,
        ),
    }
)
# Memory of an arm relative to its registered budget.
OF_BUDGET: Mapping[str, Ratio] = MappingProxyType(
    {
        "prefill_end": Ratio(
            "at the end of the prefill", lambda lane: lane.prefill_end, lambda lane: lane.budget
        ),
        "mean": Ratio("mean over all moments", lambda lane: lane.mean, lambda lane: lane.budget),
        "peak": Ratio("most at any moment", lambda lane: lane.peak, lambda lane: lane.budget),
    }
)


def bodies(records: Path) -> Iterator[dict[str, Any]]:
    """Yield the bodies of the records in a folder, by shard and line."""
    for _, _, line in plain_files.lines(records, "shard-*.jsonl"):
        if line.endswith(b"\n"):
            yield json.loads(line)["body"]


def removed(events: Iterable[Sequence[int]]) -> int:
    """Count the eviction steps that removed slots. Each event: step, slots before, slots after."""
    return sum(before > after for _, before, after in events)


def counted(recorded: Iterable[Mapping[str, Any]], content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each (model, task, budget, arm), in the order of the records: successful `lanes`,
    `never`, those in which no eviction step removed slots, `events` that removed slots per lane (mean, least,
    most), `fired`, the mean number of all eviction steps, the mean budget `slots`, and, each a Fraction or
    None, `of_budget` and `ratios` by the names above.

    `failed` counts failed lanes, which enter nothing else; `press` says whether the arm runs a press.

    recorded: bodies of records of one phase. content: of the protocol in the lock.
    """
    outside = {task["name"] for task in content["tasks"] if task["query"] == "outside"}
    pressed, failed = presses(content), Counter[Place]()
    asked: dict[tuple[str, str], int] = {}
    arms: dict[Place, dict[tuple[int, str], Held]] = {}
    for body in recorded:
        cell, problem, place = body["cell"], body["problem"], _place(body)
        if body["state"] == "ok":
            if cell["task"] in outside and not removed(body["cache"]["events"]):
                asked[cell["model"], problem] = _asked(body)
            arms.setdefault(place, {})[cell["seed"], problem] = _held(body)
        elif body["state"] == FAILED:
            failed[place] += 1
    for (model, task, *_), lanes in arms.items():
        if task in outside:
            lanes |= {key: lane._replace(asked=asked.get((model, key[1]))) for key, lane in lanes.items()}
    whole: dict[tuple[str, str], Mapping[tuple[int, str], Held]] = {}
    for (model, task, budget, _), lanes in arms.items():
        if budget == FULL:
            whole.setdefault((model, task), lanes)
    return [
        _row(place, lanes, whole.get(place[:2], {}))
        | {"failed": failed[place], "press": place[-1] in pressed}
        for place, lanes in arms.items()
    ]


def _place(body: Mapping[str, Any]) -> Place:
    cell = body["cell"]
    return cell["model"], cell["task"], cell["budget"], cell["arm"]


def idle(row: Mapping[str, Any]) -> bool:
    """Return whether an arm with a budget never evicted."""
    return bool(row["budget"] != FULL and row["never"] == row["lanes"])


def warnings(rows: Sequence[Mapping[str, Any]], unlike: Container[str] = ()) -> list[str]:
    """Return a line for each cell in which an arm with a budget never evicted, and one line for all cells in
    which only some lanes did not evict. altered: from `arm_text.altered_arms`.
    """
    whole = "the full cache under another name, no result about its policy"
    lines = [
        f"arm {row['arm']} evicted nothing in any of {row['lanes']} lanes at {row['budget']} "
        f"({row['model']}, {row['task']}): "
        + (MASKED if row["press"] else UNLIKE if row["arm"] in unlike else whole)
        for row in rows
        if idle(row)
    ]
    partly = [row for row in rows if row["budget"] != FULL and 0 < row["never"] < row["lanes"]]
    if partly:
        shares = sorted(100 * row["never"] / row["lanes"] for row in partly)
        least, most = (f"{share:.0f}" for share in (shares[0], shares[-1]))
        arms, budgets = (", ".join(dict.fromkeys(row[name] for row in partly)) for name in ("arm", "budget"))
        lines.append(
            f"{least if least == most else f'{least} to {most}'} % of the lanes of {arms} at {budgets} "
            "evicted nothing: there the arm "
            + (
                "holds every slot"
                if any(row["press"] or row["arm"] in unlike for row in partly)
                else "is the full cache"
            )
        )
    lines += [
        f"arm {row['arm']} failed in {row['failed']} of {row['failed'] + row['lanes']} lanes at "
        f"{row['budget']} ({row['model']}, {row['task']}): what it held there is not counted"
        for row in rows
        if row["failed"]
    ]
    return lines


def _asked(body: Mapping[str, Any]) -> int:
    """Return the tokens of a separate question: the peak of a lane without eviction minus its prompt and the
    tokens that were fed.
    """
    return int(Fraction(body["cache"]["peak"]) - body["prompt_tokens"] - _fed(body))


def _fed(body: Mapping[str, Any]) -> int:
    """Return how many new tokens were fed: the last one is not if the lane reached its token limit."""
    return int(body["tokens"]) - int(body["stop"] == "length")


def _held(body: Mapping[str, Any]) -> Held:
    """Return the memory of a lane whose question is part of the prompt."""
    cache = body["cache"]
    return Held(
        prompt=body["prompt_tokens"],
        budget=body["slots"],
        generated=body["tokens"],
        fed=_fed(body),
        asked=0,
        prefill_end=Fraction(cache["prefill_end"]),
        mean=Fraction(cache["mean"]),
        peak=Fraction(cache["peak"]),
        mean_bytes=cache["mean_bytes"],
        peak_bytes=cache["peak_bytes"],
        evicting=removed(cache["events"]),
        fired=len(cache["events"]),
    )


Lanes: TypeAlias = Mapping[tuple[int, str], Held]  # key: seed and problem


def _row(place: Place, lanes: Lanes, whole: Lanes) -> dict[str, Any]:
    """Return the row of one arm. full_lanes: of the full cache in this model and task, possibly empty."""
    every = list(lanes.values())
    events = [lane.evicting for lane in every]
    pairs = [(lane, whole[key]) for key, lane in lanes.items() if key in whole]
    alone = [(lane, lane) for lane in every]
    budgets = [lane.budget for lane in every if lane.budget is not None]
    return {
        **dict(zip(PLACE, place, strict=True)),
        "lanes": len(every),
        "never": events.count(0),
        "events": {"mean": Fraction(sum(events), len(events)), "least": min(events), "most": max(events)},
        "fired": Fraction(sum(lane.fired for lane in every), len(every)),
        "slots": Fraction(sum(budgets), len(budgets)) if budgets else None,
        "of_budget": {name: _ratio(ratio, alone) for name, ratio in OF_BUDGET.items()},
        "ratios": {name: _ratio(ratio, pairs if ratio.full else alone) for name, ratio in RATIOS.items()},
    }


def _ratio(ratio: Ratio, pairs: Sequence[tuple[Held, Held]]) -> Fraction | None:
    """Return the ratio of sums; None if a lane lacks a value, and without lanes."""
    over = [ratio.over(own) for own, _ in pairs]
    under = [ratio.under(other) for _, other in pairs]
    if None in over or None in under or not sum(under):
        return None
    return Fraction(sum(over)) / Fraction(sum(under))

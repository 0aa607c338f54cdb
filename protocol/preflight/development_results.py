"""How the arms answered development problems: counts, failures of the gate, arms with the same records."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from analysis.rules import full_cache_gate
from protocol.evidence.records import Record
from protocol.formats.vocabulary import FULL, RERUN_SUFFIX
from protocol.plan.design import Design

LANES_THRESHOLD = 0.95  # arms are alike if this share of recorded lanes has the same text and memory

LaneKey: TypeAlias = tuple[str, ...]  # model, task, problem, budget, seed


class AlikeArms(NamedTuple):
    """Two arms that recorded lanes hardly distinguish. same: lanes with the same text and the same memory."""

    arms: tuple[str, str]
    same: int
    lanes: int


def count_answers(bodies: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Count the lanes that ran, and how many of them were correct, truncated at the token limit, without an answer, or
    failed; and the excluded ones, which did not run. With partial scores `correct` is the sum of the scores, as text.
    """
    bodies_list = list(bodies)
    answers = _summarize_answers(bodies_list)
    return {
        "lanes": answers.lanes,
        "correct": answers.correct if isinstance(answers.correct, int) else f"{float(answers.correct):.6f}",
        "truncated": answers.truncated,
        "no_answer": answers.no_answer,
        "failed": sum(body["state"] == "failed" for body in bodies_list),
        "excluded": len(bodies_list) - answers.lanes,
    }


def summarize_cells(recorded: Iterable[Record]) -> list[dict[str, Any]]:
    """Return one row per (model, task, budget, arm): as `count_answers`, and for a repeated arm its discordance."""
    groups: dict[tuple[str, ...], dict[tuple[str, int], dict[str, Any]]] = defaultdict(dict)
    for record in recorded:
        body, cell = record["body"], record["body"]["cell"]
        cell_key = (cell["model"], cell["task"], cell["budget"], cell["arm"])
        groups[cell_key][body["problem"], cell["seed"]] = body
    rows = []
    for (model, task, budget, arm), bodies in sorted(groups.items()):
        row = {"model": model, "task": task, "budget": budget, "arm": arm, **count_answers(bodies.values())}
        if arm.endswith(RERUN_SUFFIX):
            first = groups[model, task, budget, arm.removesuffix(RERUN_SUFFIX)]
            row["discordant"] = sum(
                any(first[key].get(name) != body.get(name) for name in ("text", "divergence"))
                for key, body in bodies.items()
            )
        rows.append(row)
    return rows


def format_shares(row: Mapping[str, Any]) -> str:
    """Return the counts of `count_answers` as shares of the lanes that ran."""
    lanes = row["lanes"]
    if not lanes:
        return f"{row['excluded']} excluded"
    correct = row["correct"]
    text = f"{correct:>4}/{lanes:<4} " if isinstance(correct, int) else f"{lanes:>4} lanes, mean score"
    text += f"{float(correct) / lanes:>6.1%}"
    for name, label in (("truncated", "truncated"), ("no_answer", "no answer")):
        text += f"  {row[name] / lanes:>6.1%} {label}"
    return text + "".join(f"  {row[name]} {name}" for name in ("failed", "excluded") if row[name])


def gate_warnings(protocol: Design, bodies: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each model and task whose full cache would fail its gate; empty without a gate."""
    gate = protocol.content().get("gate")
    if gate is None:
        return []
    lanes = [body for body in bodies if body["cell"]["budget"] == FULL]
    full_lanes = [body for body in lanes if not body["cell"]["arm"].endswith(RERUN_SUFFIX)]
    if not full_lanes:
        return ["gate: the full cache does not run in this probe; kv-prereg rehearse shows which accuracy it reaches"]
    messages = []
    for model, task in itertools.product(protocol.models, (task.name for task in protocol.tasks)):
        task_lanes = [body for body in full_lanes if (body["cell"]["model"], body["cell"]["task"]) == (model, task)]
        messages += [
            f"gate would FAIL on {model}, {task}: {shortfall}"
            for shortfall in full_cache_gate.shortfalls(
                _summarize_answers(task_lanes), full_cache_gate.gate_requirement(gate, model, task)
            )
        ]
    return messages


def find_alike_arms(recorded_lanes: Iterable[Record]) -> list[AlikeArms]:
    """Return the arms whose lanes nearly all have the same text, or divergence from the same text, and the same memory
    at every eviction, in lanes where either dropped anything. Records do not name slots: on easy problems other slots
    may give the same.
    """
    by_arm: dict[str, dict[LaneKey, tuple[str, ...]]] = defaultdict(dict)
    for body in (record["body"] for record in recorded_lanes):
        cell, cache = body["cell"], body["cache"]
        if cache is None or cell["arm"].endswith(RERUN_SUFFIX):
            continue
        if any(slots_before > slots_after for _, slots_before, slots_after in cache["events"]):
            key = (cell["model"], cell["task"], body["problem"], cell["budget"], str(cell["seed"]))
            by_arm[cell["arm"]][key] = (body["text"], str(body.get("divergence")), str(cache["events"]), cache["mean"])
    pairs = []
    for first_arm, second_arm in itertools.combinations(by_arm, 2):
        first, second = by_arm[first_arm], by_arm[second_arm]
        lanes = first.keys() | second.keys()
        same_lanes = sum(first.get(lane) == second.get(lane) for lane in lanes)
        if same_lanes >= LANES_THRESHOLD * len(lanes):
            pairs.append(AlikeArms((first_arm, second_arm), same_lanes, len(lanes)))
    return pairs


def _summarize_answers(bodies: Iterable[Mapping[str, Any]]) -> full_cache_gate.AnswerCounts:
    return full_cache_gate.count_answers(
        (body["state"], body["grade"], body["stop"], body.get("score")) for body in bodies
    )

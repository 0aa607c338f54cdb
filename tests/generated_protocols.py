"""Protocols drawn over all fields that a verdict depends on, with the problems that their lock would have."""

import random
from decimal import Decimal
from typing import Any, NamedTuple

from analysis.rules import RULES
from analysis.stats.methods import MARGIN_METHODS, METHODS
from protocol.formats.fields import Fault
from protocol.plan import checks, settings_grid
from protocol.plan.design import DESIGN, Design

MODELS = ("chain-qwen2", "chain-llama", "hf:a/b@" + 40 * "0")
TASKS = ("needle-256", "association-256", "chain", "math500")
POLICIES = ("snapkv", "h2o", "streaming", "random", "tova", "knorm", "keydiff", "1d", "1d_div", "crystal-token-level")
BUDGETS = (
    (16, 24, 32),
    (Decimal("0.2"), Decimal("0.5"), Decimal("0.8")),
    ("0.1 of full", "0.3 of full"),
    ("48 KiB", "96 KiB"),
    ("bytes of 32", "bytes of 64"),
    (16, Decimal("0.5"), "0.3 of full"),
)


class Drawn(NamedTuple):
    design: Design
    items: dict[str, Any]
    scored: list[str]


def draw(seed: int) -> Drawn | None:
    """A protocol and its problems; None where a check of the design refuses it, as registering would."""
    rng = random.Random(seed)
    document = _document(rng)
    try:
        design = settings_grid.expand_grids(DESIGN.read(document, ""))
        checks.check(design)
    except Fault:
        return None
    names = [task.name for task in design.tasks]
    counts = METHODS[design.decision.method].needs_counts  # of right and wrong answers, problem by problem
    scored = [name for name in names if not counts and rng.random() < 0.3]
    items = {name: _items(rng, has_clusters=not counts and rng.random() < 0.4) for name in names}
    return Drawn(design, items, scored)


def _items(rng: random.Random, *, has_clusters: bool) -> dict[str, Any]:
    ids = [f"{level}/{number}" for level in ("easy", "hard") for number in range(rng.choice((4, 9, 110)))]
    item: dict[str, Any] = {"manifest": "0" * 64, "dev": ["d/0", "d/1", "d/2", "d/3"], "confirm": ids}
    if has_clusters:
        clusters = rng.choice((5, 6, 8))
        item["clusters"] = {name: f"c{number % clusters}" for number, name in enumerate(ids + item["dev"])}
    if rng.random() < 0.3:
        item["levels"] = {name: name.partition("/")[0] for name in ids}
    return item


def _some(rng: random.Random, values: Any, least: int, most: int) -> list[Any]:
    return rng.sample(list(values), min(len(values), rng.randint(least, most)))


def _document(rng: random.Random) -> dict[str, Any]:
    names = rng.sample(["one", "two", "three", "four", "five", "1d", "a-b", "c.d", "e+f"], 7)
    has_full = rng.random() < 0.9
    arms: dict[str, Any] = {"full": {"policy": "full"}} if has_full else {}
    arms |= {name: {"policy": rng.choice(POLICIES)} for name in names}
    for name in names[3:5]:  # settings of one policy, which a drawing maps
        if rng.random() < 0.4:
            arms[name] = {"policy": "snapkv", "set": {"scoring.window": rng.choice((4, 8))}}
    models = _some(rng, MODELS, 1, 2)
    rule = rng.choice(list(RULES))
    against = _some(rng, names[1:4], 1, 3)
    if rng.random() < 0.4 or rule == "smallest_lossless":
        against = ["full"] if rule == "smallest_lossless" or rng.random() < 0.7 else ["full", *against]
    has_sweep = rng.random() < 0.3
    rest = [name for name in names[1:] if name not in against and not (has_sweep and name == names[5])]
    has_margin = any(field.name == "margin" for field in RULES[rule].fields)
    method = rng.choice(MARGIN_METHODS if has_margin else list(METHODS))
    decision: dict[str, Any] = {
        "rule": rule,
        "subject": names[0],
        "against": against,
        "alpha": Decimal("0.05"),
        "method": method,
        "cache_tolerance": Decimal(rng.choice(("0.01", "0.02"))),
        "memory": rng.choice(("slots", "bytes", "total")),
        "missing": rng.choice(("inconclusive", "wrong")),
    }
    if METHODS[method].draws:
        decision |= {"draws": 1000, "seed": 7}
    if rng.random() < 0.5 and rest:
        decision["beside"] = _some(rng, rest[:-1], 1, 2)
    values: dict[str, Any] = {
        "margin": Decimal("0.1"),
        "lead_share": Decimal("0.3"),
        "at_least": 1,
        "primary_model": models[0],
        "transfer_model": models[-1],
        "others": rest[-1:],
    }
    decision |= {field.name: values[field.name] for field in RULES[rule].fields if field.without is None}
    decision |= {
        field.name: values[field.name]
        for field in RULES[rule].fields
        if field.without is not None and rng.random() < 0.5
    }
    document: dict[str, Any] = {
        "title": rng.choice(("A study", "a & b, 'so' $x_1$ {%raw%} \\frac", "é" * 90)),
        "question": "Is it better?",
        "models": models,
        "seeds": _some(rng, range(9), 1, 3),
        "budgets": _some(rng, rng.choice(BUDGETS), 1, 3),
        "tasks": [
            {"name": name, "query": rng.choice(("inside", "outside")), "max_new_tokens": 8}
            for name in _some(rng, TASKS, 1, 2)
        ],
        "arms": arms,
        "generation": {"temperature": Decimal("0.6"), "dtype": "float32", "device": "cpu", "threads": 1},
        "decision": decision,
    }
    if rng.random() < 0.5:
        document["generation"]["interval"] = 8
        if rng.random() < 0.3:
            document["generation"]["think_only"] = True
    if has_full:
        document["gate"] = {"accuracy": Decimal("0.5"), "truncated": Decimal("0.1")}
    if has_sweep:
        document["sweep"] = {
            "name": "chosen",
            "candidates": [names[0], names[5]],
            "baseline": rng.choice(names[1:4]),
            "seeds": [1],
            "tolerance": Decimal("0.005"),
        }
        decision["subject"] = "chosen"
    if rng.random() < 0.3:
        document["claims"] = {
            "a-claim": {"arm": rng.choice(rest), "says": rng.choice(("worse", "better"))},
            "another": {
                "arm": rng.choice(rest),
                "says": "same",
                "margin": Decimal("0.05"),
                "parent": rng.choice(["full", *names]),
            },
        }
    if rng.random() < 0.2:
        document["exclude"] = {"prompt_tokens_above": 100}
    if rng.random() < 0.1:
        document["randomness"] = {"source": "beacon", "name": "drand quicknet", "round": 7}
    return document

"""Protocols drawn over all fields that a verdict depends on, with the problems that their lock would have."""

import random
from decimal import Decimal
from typing import Any, NamedTuple
from unittest import mock

from analysis.rules import RULES
from analysis.stats.methods import MARGIN_METHODS, METHODS
from policies.catalogue import CATALOGUE
from protocol.formats.fields import Fault
from protocol.formats.runners import find_design_table
from protocol.formats.vocabulary import ISO_CACHE
from protocol.plan import checks, settings_grid
from protocol.plan.design import DESIGN, Design
from protocol.presses import pressed

MODELS = ("chain-qwen2", "chain-llama", "hf:a/b@" + 40 * "0")
OWN_TASK = {"name": "own", "file": "own.jsonl", "grader": "choice", "chance": Decimal("0.25"), "population": "exams"}
EVEN_TASK = OWN_TASK | {"name": "even", "file": "even.jsonl", "chance": Decimal("0.5")}  # yes or no
OWN_TASKS = {"own": OWN_TASK, "even": EVEN_TASK}
TASKS = ("own", "even", "needle-256", "association-256", "needle-topics-1024", "chain", "math500")
POLICIES = ("snapkv", "h2o", "streaming", "random", "tova", "knorm", "keydiff", "1d", "1d_div", "crystal-token-level")
SETTINGS = {"snapkv": ("scoring.window", (4, 8, 16)), "crystal": ("scoring.max_trunk", (16, 24, 32))}
BUDGETS = (
    (16, 24, 32),
    (Decimal("0.2"), Decimal("0.5"), Decimal("0.8")),
    ("0.1 of full", "0.3 of full"),
    ("48 KiB", "96 KiB"),
    ("bytes of 32", "bytes of 64"),
    (16, Decimal("0.5"), "0.3 of full"),
    tuple(range(32, 112, 8)),
)
NEAR = {"0.1 of full": "0.11 of full", "0.3 of full": "0.31 of full", "48 KiB": "50 KiB", "96 KiB": "98 KiB"} | {
    "bytes of 32": "bytes of 33",
    "bytes of 64": "bytes of 66",
}  # the neighbour of a budget that is a text
COUNTS = (1, 4, 9, 110)  # held-out problems of a level


class Drawn(NamedTuple):
    design: Design
    items: dict[str, Any]
    scored: list[str]


def draw(seed: int) -> Drawn | None:
    """A protocol and its problems; None where a check of the design refuses it, as registering would. Of seven, one is
    of a study that another harness runs.
    """
    rng = random.Random(seed)
    document = _document(rng) if rng.random() < 6 / 7 else _outside_document(rng)
    try:
        with any_press():
            design = find_design_table(document, DESIGN).read(document, "")
            if design.sweep is not None and design.sweep.grid is not None:
                design = settings_grid.expand_grids(design)
            checks.check(design)
    except Fault:
        return None
    names = [task.name for task in design.tasks]
    counts = METHODS[design.decision.method].needs_counts  # of right and wrong answers, problem by problem
    scored = [name for name in names if not counts and rng.random() < 0.3]
    if document.get("anatomy"):
        scored = []  # refused: a label is a grade that changed
    items = {name: _items(rng, name, has_clusters=not counts and rng.random() < 0.4) for name in names}
    return Drawn(design, items, scored)


def any_press() -> Any:
    """A context in which every press of kvpress is built as if it were installed, and does nothing."""
    part = pressed.AsThePress()
    parts = dict.fromkeys(("scoring", "selection", "routing", "state", "protect"), part)
    return mock.patch.object(pressed, "build_press_policy", return_value=pressed.Pressed(**parts))


def _items(rng: random.Random, task: str, *, has_clusters: bool) -> dict[str, Any]:
    """Items of a task: a level may have one problem, and clusters may be of very unequal size."""
    families = ("needle/256/0", "needle/1024/0.5") if task == "needle-256" else ("easy", "hard")
    ids = [f"{family}/{number}" for family in families for number in range(rng.choice(COUNTS))]
    ids += [f"{families[0]}/further/{number}" for number in range(4 - len(ids))]
    item: dict[str, Any] = {"manifest": "0" * 64, "dev": ["d/0", "d/1", "d/2", "d/3"], "confirm": ids}
    if has_clusters:
        clusters = rng.choice((5, 6, 8, len(ids)))
        share = rng.choice((1.0, 0.5))  # of the problems, dealt evenly; the others are all of the first cluster
        dealt = {name: f"c{number % clusters if number < share * len(ids) else 0}" for number, name in enumerate(ids)}
        item["clusters"] = dealt | {name: f"c{number % clusters}" for number, name in enumerate(item["dev"])}
    if rng.random() < 0.3:
        item["levels"] = {name: name.split("/")[-2] for name in ids}
    return item


def _some(rng: random.Random, values: Any, least: int, most: int) -> list[Any]:
    return rng.sample(list(values), min(len(values), rng.randint(least, most)))


def _rarely(rng: random.Random, large: int, usual: int) -> int:
    return large if rng.random() < 0.1 else usual


def _arm(rng: random.Random) -> dict[str, Any]:
    """An arm: often a usual policy, sometimes with a setting, any policy of the catalogue, or a press."""
    kind = rng.random()
    if kind < 0.15:
        policy = rng.choice(list(SETTINGS))
        path, values = SETTINGS[policy]
        return {"policy": policy, "set": {path: rng.choice(values)}}
    if kind < 0.35:
        return {"policy": rng.choice(list(CATALOGUE))}
    if kind < 0.4:
        return {
            "policy": rng.choice(("snapkv", "streaming")),
            "set": {"state": rng.choice(("q8_0", "q4_0", "token-4"))},
        }
    if kind < 0.43:
        return {"press": "kvpress:" + rng.choice(("SnapKVPress", "KnormPress"))}
    return {"policy": rng.choice(POLICIES)}


def _document(rng: random.Random) -> dict[str, Any]:
    names = rng.sample(["one", "two", "three", "four", "five", "1d", "a-b", "c.d", "e+f"], 7)
    has_full = rng.random() < 0.9
    arms: dict[str, Any] = {"full": {"policy": "full"}} if has_full else {}
    arms |= {name: _arm(rng) for name in names}
    models = _some(rng, MODELS, 1, _rarely(rng, 3, 2))
    budgets = _some(rng, rng.choice(BUDGETS), 1, _rarely(rng, 10, 2))
    tasks = _some(rng, TASKS, 1, _rarely(rng, 3, 2))
    rule = rng.choice(list(RULES))
    against = _some(rng, names[1:4], 1, 3)
    if rng.random() < 0.4 or rule == "smallest_lossless":
        against = ["full"] if rule == "smallest_lossless" or rng.random() < 0.7 else ["full", *against]
    has_sweep = rng.random() < 0.3
    rest = [name for name in names[1:] if name not in against and not (has_sweep and name == names[5])]
    document: dict[str, Any] = {
        "title": rng.choice(("A study", "a & b, 'so' $x_1$ {%raw%} \\frac", "é" * 90, "<script>$ & $</script> 1 < 2")),
        "question": "Is it better?",
        "models": models,
        "seeds": _some(rng, range(9), 1, 3),
        "budgets": budgets,
        "tasks": [
            {"query": rng.choice(("inside", "outside")), "max_new_tokens": rng.choice((1, 8))}
            | OWN_TASKS.get(name, {"name": name})
            for name in tasks
        ],
        "arms": arms,
        "generation": _generation(rng),
        "decision": _decision(rng, rule, names[0], against, rest, models, len(models) * len(tasks) * len(budgets)),
    }
    if has_full:
        document["gate"] = {"accuracy": Decimal("0.5"), "truncated": Decimal("0.1")}
        place: dict[str, Any] = {"model": models[0], "task": tasks[-1]}
        other = rng.choice(({"accuracy": Decimal("0.2")}, {"published": Decimal("0.8"), "margin": Decimal("0.05")}))
        document["gate"] |= {"places": [place | other]} if rng.random() < 0.3 else {}
    if has_sweep:
        document["sweep"] = {
            "name": "chosen",
            "candidates": [names[0], names[5]],
            "baseline": rng.choice(names[1:4]),
            "seeds": _some(rng, range(9), 1, 2),
            "tolerance": Decimal("0.005"),
        }
        if "set" not in arms[names[5]] and (settings := SETTINGS.get(arms[names[5]].get("policy", ""))):
            document["sweep"]["grid"] = {names[5]: {settings[0]: list(settings[1])}}
        document["decision"]["subject"] = "chosen"
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
    if rng.random() < 0.2:
        beacon = {"source": "beacon", "name": "drand quicknet", "round": 7}
        document["randomness"] = rng.choice((beacon, {"source": "local"}))
    if rng.random() < 0.3:
        document["neighbours"] = [_near(budget) for budget in budgets]
    if rng.random() < 0.2:
        document["cite"] = {rng.choice([*arms]): "earlier"}
        document["randomness"] = {"source": "cited"}
    if rng.random() < 0.3:
        document.pop("randomness", None)
    if rng.random() < 0.1:
        document["cost"] = {"prompt_tokens": [64], "new_tokens": 4, "lanes": [1, 2], "repetitions": 1, "warm_ups": 1}
        document["cost"]["seed"] = 7
    if rng.random() < 0.1:
        occlude = rng.choice(("reasoning", "prompt", "all"))
        document["anatomy"] = {"window": 8, "stride": 4, "reading": "dropped", "occlude": occlude, "new_tokens": 8}
        document["anatomy"] |= {"alpha": Decimal("0.05"), "draws": 1000, "seed": 7}
    return document


def _near(budget: Any) -> Any:
    """A budget a little above this one."""
    if isinstance(budget, str):
        return NEAR[budget]
    return budget + (max(1, budget // 32) if isinstance(budget, int) else Decimal("0.02"))


def _outside_document(rng: random.Random) -> dict[str, Any]:
    """The protocol of a study that another harness runs: one model, two to four ways to run it."""
    names = rng.sample(["one", "two", "three", "a-b"], rng.randint(2, 4))
    tasks = [
        {"name": name, "file": f"{name}.jsonl", "chance": rng.choice((0, Decimal("0.25"), Decimal("0.5")))}
        | rng.choice(({}, {"draw": 210}, {"scores": True}))
        for name in rng.sample(["sums", "exams"], rng.randint(1, 2))
    ]
    decision = _decision(
        rng, rng.choice(("superior", "non_inferior", "equivalent")), names[0], names[1:], [], ["m"], len(tasks)
    )
    for field in ("cache_tolerance", "memory", "unmatched"):
        decision.pop(field, None)
    document = {
        "title": "Outputs of others",
        "question": "Is it better?",
        "models": ["m"],
        "seeds": _some(rng, range(9), 1, 3),
        "runner": {"kind": "outside"},
        "tasks": tasks,
        "arms": {name: {"command": "run it"} for name in names},
        "decision": decision,
    }
    return document | ({"randomness": {"source": "local"}} if any("draw" in task for task in tasks) else {})


def _generation(rng: random.Random) -> dict[str, Any]:
    generation: dict[str, Any] = {
        "temperature": rng.choice((Decimal(0), Decimal("0.6"))),
        "dtype": rng.choice(("float32", "bfloat16")),
        "device": "cpu",
        "threads": 1,
    }
    if rng.random() < 0.5:
        generation["interval"] = 8
        generation |= rng.choice(({}, {}, {"think_only": True}, {"first_event": 0}, {"cadence": "exact"}))
    lines = {"lines": "State:"} if "interval" in generation else {}
    preserve = {"preserve": {"prompt": True, "recent": rng.choice((4, "K/4"))} | rng.choice(({}, lines))}
    generation |= rng.choice(({}, {}, {"prompt": "pinned"}, preserve))
    if generation["dtype"] == "float32" and rng.random() < 0.3:
        generation["kernel"] = "native"
    return generation


def _decision(
    rng: random.Random, rule: str, subject: str, against: list[str], rest: list[str], models: list[str], places: int
) -> dict[str, Any]:
    """places: cells of a model, task and budget."""
    has_margin = any(field.name == "margin" for field in RULES[rule].fields)
    method = rng.choice(MARGIN_METHODS if has_margin else list(METHODS))
    decision: dict[str, Any] = {
        "rule": rule,
        "subject": subject,
        "against": against,
        "alpha": Decimal(rng.choice(("0.05", "0.2", "0.001"))),
        "method": method,
        "cache_tolerance": Decimal(rng.choice(("0", "0.01", "0.02", "0.02"))),
        "memory": rng.choice(("slots", "bytes", "total")),
        "missing": rng.choice(("inconclusive", "wrong")),
    }
    if METHODS[method].draws:
        decision |= {"draws": 1000, "seed": 7}
    if rng.random() < 0.4:
        decision["unmatched"] = rng.choice(("void", ISO_CACHE))
    if rng.random() < 0.5 and rest:
        decision["beside"] = _some(rng, rest[:-1], 1, 2)
    values: dict[str, Any] = {
        "margin": Decimal(rng.choice(("0.1", "0.01"))),
        "lead_share": Decimal("0.3"),
        "at_least": rng.choice((1, places * len(against))),
        "primary_model": models[0],
        "transfer_model": models[-1],
        "others": rest[-1:],
    }
    if rng.random() < 0.3:
        decision["looks"] = rng.choice(([50, 100], [30, 60, 200], [200, 400, 800]))
        decision |= {} if method == "betting" else {"spending": rng.choice(("pocock", "obrien-fleming"))}
    named = [field for field in RULES[rule].fields if field.without is None or rng.random() < 0.5]
    return decision | {field.name: values[field.name] for field in named}

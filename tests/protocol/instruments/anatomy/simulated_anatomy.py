"""A registration with an anatomy in it, made up from a generator: what judging and drawing it is tried on.

    simulated_anatomy.written(folder, rng, planted=("key_norm", 1), strength=2.0)

writes FOLDER/lock.json (what reading an anatomy needs of it), anatomy/traces.jsonl, chained, and its side
files. Labels and signals are those of `simulated_traces`; what arms keep follows
their skill, and answers follow what they keep where `helps` is not 0.
"""

import hashlib
import json
import string
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from simulated_traces import TraceSettings, simulate_trace

LAYERS = 2
PER_LAYER = ("hidden_change", "key_norm", "attention_received")
SIGNALS = [(name, layer) for name in PER_LAYER for layer in range(LAYERS)]
SIGNALS += [("scoring:keen", 0), ("scoring:blind", None), ("position", None)]
ARMS = {"keen": 2.0, "fair": 1.0, "dull": 0.5, "blind": 0.0, "contrary": -1.0}  # arm -> skill
ORACLE = "oracle-occlusion"
PIECES = ("12", " plus", " is", ".", " ", "\n", "7", " so", ",", "<|im_end|>")
PROMPT, CONTROL = 20, "so it is \\boxed{4}"


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def half_of(problem: str) -> str:
    return ("choose", "test")[int(hashlib.md5(problem.encode()).hexdigest(), 16) % 2]


def named(task: str, number: int) -> str:
    """An id whose MD5 puts even numbers into the choosing half, odd ones into the testing half."""
    names = (f"{task}/{number:03d}{letter}" for letter in string.ascii_lowercase)
    return next(name for name in names if half_of(name) == ("choose", "test")[number % 2])


def lock_of(
    models: Sequence[str], tasks: Sequence[str], problems: int, clusters: int | None, anatomy: Mapping[str, Any]
) -> dict[str, Any]:
    items: dict[str, Any] = {}
    for task in tasks:
        dev = [named(task, number) for number in range(problems)]
        items[task] = {"dev": dev, "confirm": [f"{task}/held-out"], "manifest": "0" * 64}
        if clusters:
            items[task]["clusters"] = {one: named("c", number % clusters) for number, one in enumerate(dev)}
    content = {
        "title": "A made-up anatomy",
        "models": list(models),
        "tasks": [{"name": task} for task in tasks],
        "budgets": [32, 64],
        "arms": {"full": {"policy": "full"}} | {arm: {"policy": arm} for arm in ARMS},
        "anatomy": dict(anatomy),
    }
    return {"name": "made-up", "protocol": {"content": content}, "items": items}


def settings(**own: Any) -> dict[str, Any]:
    """[anatomy] as a lock has it: decimals as text."""
    return {
        "window": 32,
        "stride": 16,
        "reading": "padded",
        "occlude": "reasoning",
        "boundary": "\\boxed{",
        "tail": 64,
        "cut": "1",
        "new_tokens": 8,
        "alpha": "0.05",
        "draws": 400,
        "seed": 7,
    } | own


def written(
    folder: Path,
    rng: np.random.Generator,
    *,
    planted: tuple[str, int | None] | None = None,
    strength: float = 2.0,
    nature: TraceSettings = TraceSettings(tokens=128, window=16, stride=8),  # noqa: B008
    problems: int = 24,
    models: Sequence[str] = ("tiny",),
    tasks: Sequence[str] = ("chain",),
    only_model: str | None = None,
    clusters: int | None = None,
    states: Mapping[int, str] = {},
    halves: Sequence[str] = ("choose", "test"),
    helps: float = 0.0,
    anatomy: Mapping[str, Any] = {},
) -> Path:
    """planted: the (signal, layer) that is higher where a token is needed, in `only_model` or in all; None:
    nothing is. states: number of a problem -> the state that its trace ends in, where not "labelled".
    halves: those that are recorded. helps: what the share of needed tokens that an arm keeps adds to the
    chance of a right answer, from none (chance one half) to all.
    clusters: their number, an even one: numbers go to them in turn, and each stands in one half.
    """
    own = settings(window=nature.window, stride=nature.stride, **anatomy)
    lock = canonical(lock_of(models, tasks, problems, clusters, own)) + b"\n"
    (folder / "anatomy" / "values").mkdir(parents=True)
    (folder / "lock.json").write_bytes(lock)
    trends = rng.uniform(-nature.trend, nature.trend, len(SIGNALS))
    chain, lines = hashlib.sha256(lock).hexdigest(), []
    order = [(half, model, task) for half in halves for model in models for task in tasks]
    for half, model, task in order:
        for number in range(problems):
            if number % 2 != ("choose", "test").index(half):
                continue
            knows = planted if only_model in (None, model) else None
            body, side = _traced(rng, nature, trends, knows, strength, states.get(number, "labelled"), helps)
            body |= {"model": model, "task": task, "problem": named(task, number), "half": half}
            if side is not None:
                (folder / "anatomy" / "values" / body["values"]["sha256"]).write_bytes(side)
            chain = hashlib.sha256(chain.encode() + canonical(body)).hexdigest()
            line = {"body": body, "sha256": hashlib.sha256(canonical(body)).hexdigest(), "chain": chain}
            lines.append(canonical(line) + b"\n")
    (folder / "anatomy" / "traces.jsonl").write_bytes(b"".join(lines))
    return folder


def packed(table: np.ndarray) -> bytes:
    """Little-endian float32 of 12 significant bits, zlib."""
    bits = np.ascontiguousarray(table, dtype="<f4").view("<u4")
    nan = np.isnan(table)
    rounded = ((bits + np.uint32(1 << 11)) & np.uint32(0xFFFFF000)).view("<f4")
    return zlib.compress(np.where(nan, np.float32("nan"), rounded).astype("<f4").tobytes(), 6)


def _traced(
    rng: np.random.Generator,
    nature: TraceSettings,
    trends: np.ndarray,
    planted: tuple[str, int | None] | None,
    strength: float,
    state: str,
    helps: float,
) -> tuple[dict[str, Any], bytes | None]:
    answer = {"prompt": "0" * 64, "prompt_tokens": PROMPT, "text": CONTROL, "grade": "correct"}
    if state not in ("labelled", "unmoved"):
        wrong = {"grade": "wrong"} if state == "wrong" else {}
        return {"state": state, "reason": f"made up as {state}", **answer, **wrong}, None
    knows = np.array([signal == planted for signal in SIGNALS])
    made = simulate_trace(nature._replace(strength=strength), trends, knows, rng)
    n, start = PROMPT + nature.tokens, PROMPT
    if state == "unmoved":
        made = made._replace(
            windows=[(a, b, False) for a, b, _ in made.windows], label=np.zeros(nature.tokens, dtype=np.int8)
        )
    signals = np.full((len(SIGNALS), n), np.nan)
    signals[:, start:] = made.signals
    signals[SIGNALS.index(("position", None))] = np.arange(n)
    signals[:-1, :start] = rng.normal(size=(len(SIGNALS) - 1, start))
    signals[SIGNALS.index(("hidden_change", 0)), 0] = np.nan  # the first token has nothing before it
    kept, rows = [], []
    for arm, skill in [*ARMS.items(), (ORACLE, np.inf)]:
        for budget in (32, 64):
            score = rng.normal(size=(LAYERS, nature.tokens))
            score = score + (skill * made.label if np.isfinite(skill) else 1e6 * made.label)
            share = (score >= np.sort(score, axis=1)[:, [-budget]]).mean(axis=0)
            needed = made.label == 1
            recall = float(share[needed].mean()) if needed.any() else 1.0
            right = rng.random() < 0.5 * (1 - abs(helps)) + helps * recall + max(0.0, -helps)
            grade = {"text": CONTROL, "grade": "correct" if right else "wrong"}
            kept.append({"arm": arm, "budget": str(budget), "slots": budget, **grade, "needed": None})
            rows.append(np.concatenate([np.zeros(start), share]))
    side = packed(np.concatenate([signals, np.array(rows)]).astype("<f4"))
    one = [[start + a, start + b, "4" if not c else "5", "wrong" if c else "correct"] for a, b, c in made.windows]
    body = {
        "state": state,
        "reason": "",
        **answer,
        "tokens": n,
        "span": [start, n],
        "pieces": ["<|im_start|>"] * start + [PIECES[i] for i in rng.integers(0, len(PIECES), nature.tokens)],
        "control": {"text": CONTROL, "grade": "correct"},
        "windows": {"padded": one, "dropped": one},
        "kept": kept,
        "values": {
            "sha256": hashlib.sha256(side).hexdigest(),
            "signals": [list(signal) for signal in SIGNALS],
            "kept": len(kept),
        },
    }
    return body, side

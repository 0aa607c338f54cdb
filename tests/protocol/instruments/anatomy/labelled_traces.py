"""Made-up traces, as lines of anatomy/traces.jsonl have them, with their values: packed by hand."""

import hashlib
import struct
import time
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

LOCK = "a" * 64
PROMPT, TOKENS, WINDOW, STRIDE = 8, 20, 4, 3
SPAN = [PROMPT, TOKENS - 1]  # the last token is never occluded
WINDOWS = [(8, 12), (11, 15), (14, 18), (15, 19)]  # by hand: every third token, and one that ends with the span
SIGNALS = [["position", None], ["key_norm", 0], ["key_norm", 1], ["scoring:h2o", None]]
KEPT = [("h2o", "0.5", 4), ("h2o", "6", 6), ("oracle-occlusion", "0.5", 4), ("oracle-occlusion", "6", 6)]
PROBLEMS = [f"dev/{number}" for number in range(6)]
ANATOMY: dict[str, Any] = {
    "window": WINDOW,
    "stride": STRIDE,
    "reading": "dropped",
    "occlude": "reasoning",
    "new_tokens": 4,
    "alpha": "0.05",
    "draws": 1000,
    "seed": 7,
}
CONTENT: dict[str, Any] = {
    "protocol": {
        "content": {
            "models": ["tiny"],
            "budgets": ["0.5", "6"],
            "tasks": [{"name": "t", "query": "inside"}],
            "arms": {"full": {}, "h2o": {}},
            "anatomy": ANATOMY,
        }
    },
    "grid": [["tiny", "t", "full", "full", 0], ["tiny", "t", "0.5", "h2o", 0], ["tiny", "t", "6", "h2o", 0]],
    "items": {"t": {"dev": PROBLEMS, "confirm": ["held/1"]}},
}


SLIPPED = {"answer": 2, **{name: {"text": "17", "grade": "correct"} for name in ("bottom", "random", "top")}}


class Line(NamedTuple):
    body: dict[str, Any]
    values: bytes  # as they lie on the disk


def half(problem: str) -> str:
    return "choose" if hashlib.md5(problem.encode()).digest()[-1] % 2 == 0 else "test"


def rows(moved: bool = True, tokens: int = TOKENS) -> list[list[float]]:
    """Position, three signals, and of four arms what they kept; the last token stays with all of them.

    By hand, what the oracle keeps: of a trace that moved, the one window that changes the grade; else the
    four first tokens, which no window covers; what is left over is of these, the later first, or the latest.
    """
    kept = [[1.0] * slots + [0.0] * (tokens - 1 - slots) + [1.0] for *_, slots in KEPT]
    kept[0] = [0.5] * 8 + [0.0] * (tokens - 9) + [1.0]  # half of the heads keep the first eight
    by_hand = ((14, 15, 16, 17), (2, 3, 14, 15, 16, 17)) if moved else ((0, 1, 2, 3), (0, 1, 2, 3, 17, 18))
    kept[2:] = [[float(at in here or at == tokens - 1) for at in range(tokens)] for here in by_hand]
    return [[float(at) for at in range(tokens)], *(3 * [[0.25] * tokens]), *kept]


def packed(numbers: list[list[float]]) -> bytes:
    return zlib.compress(b"".join(struct.pack(f"<{len(row)}f", *row) for row in numbers))


def line(model: str, task: str, problem: str, state: str = "labelled", **other: Any) -> Line:
    """other: replaces fields, by name."""
    body: dict[str, Any] = {
        "registration": LOCK,
        "attempt": 1,
        "model": model,
        "task": task,
        "problem": problem,
        "half": half(problem),
        "state": state,
        "reason": "" if state == "labelled" else f"it is {state}",
        "time": "2026-11-23T04:00:00+00:00",
        "prompt": "b" * 64,
        "prompt_tokens": PROMPT,
        "text": "17",
        "grade": "wrong" if state == "wrong" else "correct",
    }
    if body["half"] == "test":
        body |= {"attempt": 2, "chosen": "c" * 64}
    if state not in ("labelled", "unmoved"):
        return Line(body | other, b"")
    numbers, signals = rows(state == "labelled"), SIGNALS
    if "slip" in other:  # the eleven tokens of the thought, of which 30 % are three
        attention = [float("nan")] * PROMPT + [0.0625] * (TOKENS - PROMPT)
        numbers, signals = [*numbers[:4], attention, *numbers[4:]], [*SIGNALS, ["answer_attention", None]]
    values = packed(numbers)
    changed = "wrong" if state == "labelled" else "correct"
    grades = ["correct", "correct", changed, "correct"]
    body |= {
        "tokens": TOKENS,
        "span": list(SPAN),
        "pieces": TOKENS * ["x"],
        "control": {"text": "17", "grade": "correct"},
        "windows": {
            "padded": [[*window, "17", "correct"] for window in WINDOWS],
            "dropped": [
                [*window, "17" if grade == "correct" else "4", grade]
                for window, grade in zip(WINDOWS, grades, strict=True)
            ],
        },
        "kept": [
            {"arm": arm, "budget": budget, "slots": slots, "needed": None, "text": "17", "grade": "correct"}
            for arm, budget, slots in KEPT
        ],
        "values": {"sha256": hashlib.sha256(values).hexdigest(), "signals": signals, "kept": len(KEPT)},
    }
    return Line(body | other, values)


def traced_slowly(folder: str) -> int:
    """The command in this process, each of whose traces takes a fifth of a second."""
    from protocol import anatomy
    from protocol.instruments.anatomy.run import trace_record

    real = trace_record.occlude_traces

    def slow(*asked: Any) -> Iterator[trace_record.TraceLine]:
        for one in real(*asked):
            time.sleep(0.2)
            yield one

    trace_record.occlude_traces = slow
    return anatomy.main([folder])

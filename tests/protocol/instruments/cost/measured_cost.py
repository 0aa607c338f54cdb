"""Made-up measurements of time and memory, as lines of cost/<machine>.jsonl have them."""

from decimal import Decimal
from typing import Any

from protocol.instruments.cost import measurement_file
from protocol.instruments.cost.measurement_file import ExpectedLine, Measurement, Point

LOCK = "a" * 64
COST = {"prompt_tokens": [100], "new_tokens": 11, "lanes": [1, 4], "repetitions": 3, "warm_ups": 1, "seed": 7}
CONTENT: dict[str, Any] = {
    "protocol": {
        "content": {
            "models": ["tiny"],
            "budgets": ["0.5", "20"],
            "arms": {"full": {}, "h2o": {}},
            "generation": {"device": "cpu"},
            "cost": COST,
        }
    },
    "grid": [["tiny", "t", "full", "full", 0], ["tiny", "t", "0.5", "h2o", 0], ["tiny", "t", "20", "h2o", 0]],
}
MACHINE = {
    "host": "here",
    "system": "Linux",
    "processor": "one",
    "cores": 2,
    "memory": 2**34,
    "device": "cpu",
    "torch": "2",
    "threads": 1,
    "clock": "perf_counter",
}
HEADS, SLOT, WEIGHTS = 4, 64, 10_000
SLOTS = {"full": None, "0.5": 50, "20": 20}


def body(due: ExpectedLine, seconds: float = 0.5, **other: Any) -> dict[str, Any]:
    """Seconds of prefill; decoding takes twice as long. `other` replaces parts, by name."""
    point: Point = due.point
    slots = SLOTS[point.budget]
    held = point.lanes * HEADS * (slots or point.prompt_tokens)
    room = held * SLOT + point.lanes * HEADS * COST["new_tokens"] * SLOT

    def phase(tokens: int, taken: float) -> dict[str, Any]:
        text = f"{taken:.9f}"
        rate = f"{Decimal(tokens) / Decimal(text):.3f}"
        own = {"tokens": tokens, "seconds": text, "cpu_seconds": text, "tokens_per_second": rate}
        return own | {"rss_peak": 10**9}

    return {
        "attempt": 1,
        "repetition": due.repetition,
        "point": point._asdict(),
        "state": "ok",
        "reason": "",
        "slots": slots,
        "prompts": f"{point.lanes:064x}",
        "prefill": phase(point.lanes * point.prompt_tokens, seconds),
        "decode": phase(point.lanes * (COST["new_tokens"] - 1), 2 * seconds),
        "memory": {
            "weights": WEIGHTS,
            "heads": HEADS,
            "slot": SLOT,
            "held": held,
            "room": room,
            "room_peak": room,
            "rss_before": 10**9,
        },
        "load": {"before": "0.50", "after": "1.00"},
        "time": "2026-11-23T04:00:00+00:00",
    } | other


def whole(seconds: Any = lambda due: 0.5) -> Measurement:
    """All that is due; seconds: of the prefill of a line."""
    bodies = [body(due, seconds(due)) for due in measurement_file.expected_lines(CONTENT)]
    return Measurement(measurement_file.file_name(MACHINE), MACHINE, LOCK, bodies, "b" * 64, 0)

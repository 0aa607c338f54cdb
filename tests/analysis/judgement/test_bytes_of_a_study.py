"""The judge on arms whose slots take unequal bytes: what was registered as memory decides, and the other is told."""

import pytest
import study

from analysis.judge import judge

PROBLEMS = 60
SLOTS = {"bytes of 64": 64.0, "bytes of 128": 128.0}
SIZES = {"full": 256, "snapkv": 256, "crystal": 160}  # bytes of a slot of one head


def judged(folder, held, **decision):
    """held: slots of the subject, by budget, of 160 bytes; the comparator's take 256. Four heads."""
    content = study.content(**{"against": ["snapkv"], "at_least": 1, "method": "t", "memory": "bytes"} | decision)
    content |= {"seeds": [0], "budgets": list(SLOTS), "arms": {arm: {"policy": arm} for arm in SIZES}}

    def record(place):
        _, _, budget, arm, _, problem = place
        slots = 200.0 if arm == "full" else held[budget] if arm == "crystal" else SLOTS[budget]
        right = int(problem[1:]) % 10 < {"bytes of 64": 4, "bytes of 128": 8}.get(budget, 9)
        sizes = {"mean_bytes": int(4 * slots * SIZES[arm])}
        return {"grade": "correct" if right else "wrong", "cache": study.cache(slots) | sizes}

    arms = {arm: {"bytes": size} for arm, size in SIZES.items()}
    told = {"slot_bytes": {"tiny": {"heads": 4, "width": 32, "arms": arms}}}
    return judge(study.write(folder / "study", content, PROBLEMS, record, **told))


def told(found, words):
    return [sentence for sentence in found["does_not_prove"] if words in sentence]


def test_equal_slots_of_unequal_bytes_do_not_match(tmp_path):
    found = judged(tmp_path, SLOTS)
    assert found["verdict"] != "CONFIRMED"
    for row in found["contrasts"]:
        assert (row["matched"], row["cache_ratio"]) == (False, "0.625000")
        assert row["memory"]["ratios"]["slots"] == "1.000000"
        assert row["memory"]["by"] == "bytes"
    assert told(found, "Anything at equal memory in 2 of 2 contrasts")
    assert not told(found, "Equal memory in every sense; at most, the subject differed in mean slots")


def test_equal_bytes_match_and_slots_are_told_beside(tmp_path):
    found = judged(tmp_path, {"bytes of 64": 102.4, "bytes of 128": 204.8})
    for row in found["contrasts"]:
        assert (row["matched"], row["cache_ratio"], row["isocache"]["why"]) == (True, "1.000000", "matched")
        assert (row["memory"]["ratios"]["slots"], row["memory"]["ratios"]["held bytes"]) == ("1.600000", "1.000000")
    assert told(found, "mean slots by +60.00 %")
    assert not told(found, "Anything at equal memory in")


def test_unmatched_arms_are_interpolated_at_equal_bytes(tmp_path):
    """115.2 slots of 160 bytes are 72 of 256: an eighth of the way from 64 to 128, where the comparator has
    40 + 5 of 100 right.
    """
    row = judged(tmp_path, {"bytes of 64": 115.2, "bytes of 128": 204.8})["contrasts"][0]
    assert (row["matched"], row["cache_ratio"]) == (False, "1.125000")
    at_equal = row["isocache"]["interpolated"]
    assert (at_equal["weight"], at_equal["between"]) == ("0.125000", list(SLOTS))
    assert float(at_equal["difference"]) == pytest.approx(-0.05)


def test_a_lock_that_does_not_say_what_slots_take_has_no_bytes_of_them(tmp_path):
    content = study.content(memory="bytes", against=["snapkv"], at_least=1)
    record = lambda place: {"cache": study.cache(64.0)}  # noqa: E731
    (row,) = judge(study.write(tmp_path / "study", content, 20, record))["contrasts"]
    assert "held bytes" not in row["memory"]["ratios"]

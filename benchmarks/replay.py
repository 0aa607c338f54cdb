"""What `audit --replay` costs and finds, on a judged study whose models are here.

Lanes are drawn, decoded again, and decoded with shaken weights. Then each drawn record is made up in two
ways: with what another lane of its problem recorded, and with one digit in place of a character of its text.

    python -m benchmarks.replay registrations/alpha-chain --lanes 40
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import table
from protocol.evidence.held_out_guard import JudgedHeldOut
from protocol.evidence.registration import Registration
from protocol.formats import files
from protocol.recompute import replay
from protocol.run import lane_comparison, redecode
from protocol.workspace.study import open_study

NONCE = "0123456789abcdef"
MADE_UP = 4  # of each kind, of a lane
OTHER = ("text", "tokens", "stop", "answer", "grade", "cache")


def main(argv: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.replay", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("folder", type=Path)
    made.add_argument("--lanes", type=int, default=20, help="default 20")
    arguments = made.parse_args(argv)
    study = Registration(arguments.folder)
    opened = open_study(study, files.cache_home())
    decoder = redecode.Decoder(opened, replay.confirmed_design(opened), JudgedHeldOut(study.lock, study.folder))
    draw = random.Random(5)
    honest, parted, words, seconds = Counter[str](), 0, Counter[tuple[str, str]](), list[float]()
    everything = [record["body"] for record in study.confirm_records]
    for record in replay.draw_lanes(study.confirm_records, arguments.lanes, NONCE):
        body, started = record["body"], time.perf_counter()
        plain = decoder.decode(body)
        seconds.append(time.perf_counter() - started)
        shaken = [decoder.decode(body, shake) for shake in redecode.draw_perturbations(NONCE)]
        honest[lane_comparison.classify_lane(body, plain, iter(shaken), compare_bytes=False).word] += 1
        parted += sum(lane_comparison.find_difference(plain, one, compare_bytes=True) is not None for one in shaken)
        for kind, forged in made_up(body, everything, draw):
            words[kind, lane_comparison.classify_lane(forged, plain, iter(shaken), compare_bytes=False).word] += 1
    lanes = sum(honest.values())
    print(f"{arguments.folder.name}: {lanes} lanes, median {statistics.median(seconds):.2f} s a lane\n")
    rows = [["honest", *(str(honest[word]) for word in WORDS)]]
    for kind in dict.fromkeys(kind for kind, _ in words):
        rows.append([kind, *(str(words[kind, word]) for word in WORDS)])
    print(table(["records", *WORDS], rows))
    print(f"\n{parted} of {6 * lanes} decodings with shaken weights part from the plain one")
    return 0


WORDS = ("same", "shaken", "edge", "beyond")


def made_up(
    body: Mapping[str, Any], everything: Sequence[Mapping[str, Any]], draw: random.Random
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Only those that say something else than the honest record."""
    problem = [one for one in everything if one["problem"] == body["problem"]]
    others = [one for one in problem if any(one[name] != body[name] for name in OTHER)]
    for other in draw.sample(others, min(MADE_UP, len(others))):
        yield "another lane's", {**body, **{name: other[name] for name in OTHER}}
    for _ in range(MADE_UP if body["text"] else 0):
        at, digit = draw.randrange(len(body["text"])), str(draw.randrange(10))
        text = body["text"][:at] + digit + body["text"][at + 1 :]
        if text != body["text"]:
            yield "a digit changed", {**body, "text": text}


if __name__ == "__main__":
    sys.exit(main())

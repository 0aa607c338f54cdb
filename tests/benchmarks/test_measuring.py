"""What the benchmark scripts rest on: turns, ratios, a true account of memory, and help that answers."""

import importlib
from types import SimpleNamespace

import pytest
import torch

from benchmarks import memory, pairs, report
from benchmarks.pairs import Ratio
from benchmarks.setting import Subject, every_signal, needs_by_policy
from benchmarks.signals import ALL, NONE, contenders
from policies import Calibrated

SCRIPTS = ("sweep", "signals", "memory", "decode")


def test_contenders_take_turns_and_every_second_round_goes_backwards(capsys):
    order = []

    def contender(name, seconds):
        return lambda: order.append(name) or seconds.pop(0)

    times = pairs.alternate({"a": contender("a", [9.0, 2.0, 3.0, 8.0]), "b": contender("b", [9.0, 1.0, 1.0, 2.0])}, 3)
    assert "".join(order) == "abbaabba"
    assert times.seconds == {"a": (2.0, 3.0, 8.0), "b": (1.0, 1.0, 2.0)}, "the first round warms up"
    assert times.ratio("a", "b") == Ratio(3.0, 2.0, 4.0), "by round: 2/1, 3/1, 8/2"
    assert "round 3 of 3: a: 8.000 s" in capsys.readouterr().err


def test_a_target_says_by_how_much_it_is_missed():
    assert report.at_most(2.4, 2.5) == "at most 2.50: met"
    assert report.at_most(2.75, 2.5) == "at most 2.50: missed by 0.25"
    assert report.at_least(7.4, 5) == "at least 5.00: met"
    assert report.at_least(94.0, 95, "{:.1f} %") == "at least 95.0 %: missed by 1.0 %"


def test_the_account_of_memory_is_what_was_held_at_once():
    def act():
        first = torch.ones(1_000_000)
        second = first * 2
        del first
        return second + 1

    found = memory.account(act, "cpu")
    # Never more than two of the three at once, and a few scalars.
    assert 8_000_000 <= found.peak < 8_000_100
    assert 4_000_000 in found.sizes


def test_growth_is_the_slope_between_logarithms():
    assert memory.growth("extra", [2**20, 2**21, 2**22], [1, 2, 4])[-2:] == ["1.00", "at most 1.10: met"]
    assert memory.growth("extra", [2**20, 2**22], [1, 2])[-2:] == ["2.00", "at most 1.10: missed by 0.90"]


@pytest.mark.parametrize(
    ("calibrated", "first", "q_stats"), [((), False, False), (("text",), True, False), (("traces",), False, True)]
)
def test_a_policy_whose_statistics_the_model_lacks_is_left_out(calibrated, first, q_stats):
    network = SimpleNamespace(config=SimpleNamespace(num_hidden_layers=4))
    subject = Subject("a model", network, frozenset(), None, statistics=dict.fromkeys(calibrated))
    needed = needs_by_policy(subject)
    assert ("1d" in needed, "q_stats" in needed) == (first, q_stats)
    assert {"full", "snapkv", "crystal"} <= needed.keys()
    every = set(every_signal(subject))
    assert not any(isinstance(signal, Calibrated) for signal in every), "nothing is measured for these"
    sets = contenders(every, needed)
    assert (sets[NONE], sets[ALL]) == (frozenset(), every)
    assert {*needed.values()} <= {*sets.values()}


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_answers_help(script, capsys):
    with pytest.raises(SystemExit) as done:
        importlib.import_module(f"benchmarks.{script}").main(["--help"])
    assert done.value.code == 0
    assert f"python -m benchmarks.{script}" in capsys.readouterr().out

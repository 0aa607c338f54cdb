"""What happened, in which order, and what the rule said of it, is told otherwise."""

from collections.abc import Callable
from typing import Any

from rewrite_cases import named
from rewriting import Rewrite


def moved(rewrite: Rewrite, event: str, to: int) -> None:
    """The first line of an event stands elsewhere in the ledger."""
    line = next(line for line in rewrite.lines if line["event"] == event)
    rewrite.lines.remove(line)
    rewrite.lines.insert(to, line)


@named("A2", "ledger", "lists|begins")
def the_claim_was_taken_before_the_lock(rewrite):
    """The claim was there first."""
    moved(rewrite, "claim", 0)


@named("A2", "ledger", "held-out problems were read before the claim")
def held_out_problems_were_opened_before_the_claim(rewrite):
    """They were opened as the protocol asks."""
    moved(rewrite, "held-out", 1)


@named("A2", "grid", "never opened")
def held_out_problems_were_never_opened(rewrite):
    """Nobody read them."""
    rewrite.lines = [line for line in rewrite.lines if line["event"] != "held-out"]


@named("A2", "grid", "for a purpose that is not allowed")
def held_out_problems_were_opened_for_another_purpose(rewrite):
    """They were looked at to learn from them."""
    for body in rewrite.entries("held-out"):
        body["purpose"] = "gold self-check"


@named("A2", "grid", "needle-768 were read, but that task is not registered")
def held_out_problems_of_another_task_were_opened_too(rewrite):
    """Only what was registered was opened."""
    at = next(at for at, line in enumerate(rewrite.lines) if line["event"] == "held-out")
    again = {**rewrite.lines[at], "body": {"task": "needle-768", "purpose": "confirm"}}
    rewrite.lines.insert(at, again)


@named("A2", "grid", "were read twice, or outside any attempt")
def held_out_problems_were_opened_twice(rewrite):
    """They were opened once, when they were run."""
    at = next(at for at, line in enumerate(rewrite.lines) if line["event"] == "held-out")
    rewrite.lines.insert(at, rewrite.lines[at])


@named("A2", "grid", "were read twice, or outside any attempt")
def held_out_problems_were_opened_before_the_attempt(rewrite):
    """They were opened when they were run."""
    moved(rewrite, "attempt", 5)


@named("A2", "probe", "does not end where it began")
def a_probe_ended_after_the_claim(rewrite):
    """All of the probe came before the claim."""
    moved(rewrite, "probed", 5)


@named("A2", "verdict", "kv-prereg confirm", status="unfinished")
def a_verdict_is_taken_out(rewrite):
    """It is sealed, and waits for its verdict."""
    del rewrite.lines[-1]


@named("A2", "seal", "kv-prereg confirm", status="unfinished")
def a_seal_is_taken_out(rewrite):
    """It was never finished."""
    del rewrite.lines[-2:]


@named("A2", "claim", "attempt")
def an_attempt_is_taken_out(rewrite):
    """It ran in one go, without an attempt."""
    rewrite.lines = [line for line in rewrite.lines if line["event"] != "attempt"]


@named("A2", "claim", "attempt")
def an_attempt_found_records_that_were_not_there(rewrite):
    """An earlier attempt had recorded half of it."""
    rewrite.entries("attempt")[0]["records"] = 52


@named("A2", "probe", "attempt|ledger")
def a_probe_is_forgotten(rewrite):
    """Nothing was probed before the claim."""
    rewrite.lines = [line for line in rewrite.lines if line["event"] not in ("probe", "probed")]


@named("A4", "judgement", "verdict")
def the_verdict_has_another_word(rewrite):
    """The claim is confirmed."""
    rewrite.later["verdict"] = lambda verdict: verdict["judged"].update(verdict="CONFIRMED")


@named("A10", "judgement|verdict", "verdict")
def the_word_is_none_that_a_rule_gives(rewrite):
    """The claim is proven."""
    rewrite.later["verdict"] = lambda verdict: verdict["judged"].update(verdict="PROVEN")


JUDGE = b"""
import pathlib, sys
pathlib.Path(sys.argv[1], "was-here").write_text("x")
pathlib.Path(__file__).with_name("was-here").write_text("x")
print("everything held; CONFIRMED, ANCHORED")
"""


@named("A3", "judgement", "analysis/judge.py")
def the_locked_judge_writes_and_prints(rewrite):
    """Nothing: the author's code has run on the reader's machine."""
    rewrite.sources["analysis/judge.py"] = JUDGE
    the_verdict_has_another_word.edit(rewrite)


@named("A4", "judgement", "analysis/rules/superior.py")
def the_locked_rule_always_confirms(rewrite):
    """The locked code judges alike: the claim is confirmed."""
    own = rewrite.member("analysis/rules/superior.py")
    rewrite.sources["analysis/rules/superior.py"] = own + b"\nCONFIRM = True\n"
    the_verdict_has_another_word.edit(rewrite)


def behind_a_comment(rewrite: Rewrite, change: Callable[[dict[str, Any]], None]) -> None:
    """The analysis is one that nobody knows, and the verdict is as it could have said."""
    rewrite.sources["analysis/judge.py"] = rewrite.member("analysis/judge.py") + b"\n# Another version.\n"
    rewrite.later["verdict"] = lambda verdict: change(verdict["judged"])


@named("A4", "judgement", "does_not_prove 0 entries")
def the_limits_are_emptied_behind_a_comment(rewrite):
    """It proves everything: another version of the analysis said so."""
    behind_a_comment(rewrite, lambda judged: judged.update(does_not_prove=[]))


@named("A4", "judgement", r"contrasts\[0\].low")
def an_interval_is_narrowed_behind_a_comment(rewrite):
    """The interval is narrower than the records bear, within what another method could have given."""

    def narrow(judged: dict[str, Any]) -> None:
        row = judged["contrasts"][0]
        low, high = float(row["low"]), float(row["high"])
        assert high > low
        row["low"] = f"{low + 0.05 * (high - low):.6f}"

    behind_a_comment(rewrite, narrow)


@named("A2", "selection", "after the selection", study="sweep")
def a_candidate_was_probed_after_it_was_chosen(rewrite):
    """The selection rests on all that was probed."""
    at = next(at for at, line in enumerate(rewrite.lines) if line["event"] == "selection")
    rewrite.lines[at + 1 : at + 1] = [{**rewrite.lines[1], "body": {"number": 2, "records": len(rewrite.probed) - 1}}]
    rewrite.probed[-1].costs["attempt"] = 2


@named("A2", "grades", "grade", study="sweep")
def a_probed_candidate_answers_everything(rewrite):
    """random is the best candidate by far."""
    for lane in rewrite.of("random", "probe"):
        lane.body |= {"grade": "correct", "answer": "1234", "grade_reason": ""}


@named("A2", "sense|probe", "should run first", study="sweep")
def a_candidate_was_probed_on_fewer_problems(rewrite):
    """Only the problems that went well were probed."""
    gone = rewrite.probed[0].problem
    rewrite.lanes["probe"] = [lane for lane in rewrite.probed if lane.problem != gone]


@named("A2", "sense", "slots|growth|summary", study="sweep")
def a_probed_candidate_held_less(rewrite):
    """random needs ten slots."""
    for lane in rewrite.of("random", "probe"):
        lane.body["cache"]["mean"] = "10.000000"


@named("A6", "ledger", "line.time: is")
def a_time_of_the_ledger_is_prose(rewrite):
    """Somebody approved of it."""
    for line in rewrite.lines:
        line["time"] += ", approved"

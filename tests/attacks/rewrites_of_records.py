"""What lanes did is made to be something else, and counted and judged as if it had been so."""

from rewrite_cases import named


@named("A2", "grades", "grade")
def every_grade_of_the_subject_is_flipped(rewrite):
    """crystal answers everything."""
    for lane in rewrite.of("crystal"):
        lane.body |= {"grade": "correct", "answer": "1234", "grade_reason": ""}


@named("A2", "grades", "timeout", status="cannot tell")
def no_answer_is_made_a_timeout(rewrite):
    """The comparator was never verified in time."""
    for lane in rewrite.of("random"):
        lane.body |= {"grade": "timeout", "answer": "1"}


@named("A2", "grades", "error", status="cannot tell")
def no_answer_is_made_an_error_of_the_grader(rewrite):
    """The lanes of the comparator have no grade."""
    for lane in rewrite.of("random"):
        lane.body |= {"grade": "error", "grade_reason": "the grader crashed"}


@named("A2", "grades", "answer")
def another_answer_was_extracted(rewrite):
    """The text had an answer, which was wrong."""
    rewrite.of("full")[0].body |= {"answer": "7", "grade": "wrong", "grade_reason": ""}


@named("A2", "grades", "grade")
def the_text_of_a_truncated_answer_is_completed(rewrite):
    """The answer came within its 24 tokens."""
    for lane in rewrite.of("crystal"):
        lane.body["text"] += " and so on and so on, one word after the other, the answer is 1"


@named("A2", "grades", "grade")
def texts_are_exchanged_between_problems(rewrite):
    """Each answer stands with the problem that it answers."""
    lanes = rewrite.of("full")
    told = next(lane for lane in lanes if lane.body["answer"] is not None)
    other = next(lane for lane in lanes if lane.body["answer"] is None)
    told.body["text"], other.body["text"] = other.body["text"], told.body["text"]


@named("A2", "sense", "one prompt")
def an_arm_read_another_prompt(rewrite):
    """All arms were asked the same."""
    for lane in rewrite.of("crystal"):
        lane.body["prompt"] = "0123456789abcdef" * 4


@named("A2", "sense", "own prompts", status="cannot tell")
def two_problems_had_one_prompt(rewrite):
    """They were two problems."""
    first, second = rewrite.of("full")[0].problem, rewrite.of("full")[1].problem
    digest = next(lane.body["prompt"] for lane in rewrite.confirmed if lane.problem == first)
    for lane in rewrite.confirmed:
        if lane.problem == second:
            lane.body["prompt"] = digest


@named("A2", "probe", "a held-out prompt was probed")
def a_held_out_prompt_had_been_probed(rewrite):
    """What was probed had not been held out."""
    rewrite.probed[0].body["prompt"] = rewrite.confirmed[0].body["prompt"]


@named("A2", "records", "decode_seconds")
def a_lane_ended_before_it_began(rewrite):
    """It took less than no time."""
    rewrite.of("crystal")[0].costs["decode_seconds"] = "-1.0"


@named("A2", "sense", "order")
def lines_stand_in_another_order(rewrite):
    """The lanes ran in this order."""
    rewrite.confirmed.reverse()


def unmeasured(lane, state, reason):
    """No number is left of a lane that did not end well."""
    lane.body |= {"state": state, "reason": reason, "text": "", "tokens": 0, "stop": None, "answer": None}
    lane.body |= {"grade": None, "grade_reason": "", "cache": None, "trajectory": None}
    lane.body["batch"].pop("joined", None)
    lane.costs.pop("decode_seconds", None)
    lane.trajectory = None


@named("A2", "grid", "registered records are missing")
def a_bad_lane_is_left_out(rewrite):
    """All that ran is there."""
    del rewrite.lanes["confirm"][0]


@named("A2", "claim", "attempt")
def an_aborted_attempt_is_merged_into_the_next(rewrite):
    """It ran in one go, and recorded its first lanes in a second attempt."""
    for lane in rewrite.confirmed:
        lane.costs["attempt"] = 2


@named("A2", "grid", "is not registered")
def a_record_is_of_a_development_problem(rewrite):
    """A problem that was probed was held out."""
    dev = rewrite.lock["items"]["needle-256"]["dev"][0]
    first = rewrite.confirmed[0].body["problem"]
    for lane in rewrite.confirmed:
        if lane.body["problem"] == first:
            lane.body["problem"] = dev
            lane.body["batch"]["problems"] = [dev]


@named("A2", "sense", "growth")
def slots_held_are_halved_everywhere(rewrite):
    """crystal held half of what the comparators held."""
    for lane in rewrite.of("crystal"):
        lane.trajectory["held"] = [each // 8 * 4 for each in lane.trajectory["held"]]
        _summarised(lane)


def _summarised(lane):
    """`cache` as the trajectory gives it."""
    held, heads = lane.trajectory["held"], lane.trajectory["heads"]

    def slots(total, moments):
        micro = (2 * total * 10**6 + heads * moments) // (2 * heads * moments)
        return f"{micro // 10**6}.{micro % 10**6:06d}"

    lane.body["cache"] |= {
        "mean": slots(sum(held), len(held)),
        "peak": slots(max(held), 1),
        "prefill_end": slots(held[0], 1),
    }

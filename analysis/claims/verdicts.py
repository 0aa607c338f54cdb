"""The level and verdict of each claim of a file, and whether the values of each table are possible."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from analysis.claims import rounding
from analysis.claims.expression import ExpressionError, decide
from analysis.claims.levels import Level
from analysis.claims.paper_file import UNITS, Claim, ClaimError, Paper, Table
from analysis.claims.quantity import Answer, ImpossibleCell
from analysis.claims.rounding import Range

MAX_COMPARISONS = 3  # comparisons that are printed for a claim
MAX_DRAWS = 64  # draws a problem up to which all are tried

VERDICTS: Mapping[Level, Mapping[bool | None, str]] = MappingProxyType(
    {
        Level.TRANSCRIBED: {True: "alike", False: "differs"},
        Level.ARITHMETIC: {True: "follows", False: "does not follow", None: "open"},
        Level.INFERENCE: {True: "supported", False: "not supported", None: "undecidable"},
    }
)
UNCHECKED = ("no test", "not printed")  # verdicts of the level "none"

SENTENCES = {
    "alike": "The sentence prints the same number as the table.",
    "differs": "The sentence and the table print different numbers.",
    "follows": "This is computed from the printed numbers alone, without statistical inference.",
    "does not follow": "The printed numbers contradict it.",
    "open": "The printed numbers are rounded too much to decide it.",
    "supported": "The printed numbers support it, whatever the paper does not print.",
    "not supported": "At this n, chance alone often gives a difference this small, whatever the pairing of answers.",
    "undecidable": "It depends on numbers that are not printed: which problems each arm solved.",
    "not printed": "The paper does not print the numbers that would decide it.",
}


class Finding(NamedTuple):
    """The verdict on one claim. level: "transcribed", "arithmetic", "inference", or "none" if no printed number decides
    it. verdict: one of VERDICTS or UNCHECKED. numbers: the comparisons that decide. because: one sentence.
    """

    claim: Claim
    level: str
    verdict: str
    numbers: str
    because: str


class TableFinding(NamedTuple):
    """The check of one table. impossible: the cells that no count of answers gives. because: one sentence."""

    table: Table
    impossible: tuple[str, ...]
    because: str


def judge_claims(paper: Paper) -> list[Finding]:
    """Judge every claim. Raises ClaimError for a form that cannot be evaluated, naming the claim."""
    return [_judge_claim(paper, claim) for claim in paper.claims]


def judge_tables(paper: Paper) -> list[TableFinding]:
    return [_judge_table(table) for table in paper.tables.values()]


def _judge_claim(paper: Paper, claim: Claim) -> Finding:
    try:
        field = "holds"
        holds = carried = decide(claim.holds, paper, paper.names)
        if claim.carried:
            field = "carried"
            carried = decide(claim.carried, paper, paper.names)
    except ExpressionError as error:
        if isinstance(error.__cause__, ImpossibleCell):
            return Finding(
                claim, "none", UNCHECKED[0], str(error.__cause__), "It compares a number that is impossible."
            )
        raise ClaimError(
            f"{paper.path}: claim {claim.id}: {field}: {error}; correct the form; python -m pydoc "
            "analysis.claims.expression lists what a form may contain"
        ) from error
    _check_levels(paper, claim, holds, carried)
    unprinted = holds.truth is None and any(reason.startswith("not printed") for reason in holds.reasons)
    decisive = holds if holds.truth is False or unprinted or claim.cannot else carried
    verdict = VERDICTS[decisive.level][decisive.truth] if decisive.level else UNCHECKED[1]
    level, because = decisive.level.name.lower(), ""
    if unprinted:
        level, verdict = "none", UNCHECKED[1]
    elif claim.cannot and holds.truth is not False:
        level, verdict, because = "none", UNCHECKED[0], claim.cannot
    because = claim.note or because or SENTENCES[verdict]
    return Finding(claim, level, verdict, _format_reasons(decisive.reasons), because)


def _check_levels(paper: Paper, claim: Claim, holds: Answer, carried: Answer) -> None:
    """Refuse a claim that compares only literals, and one that is `carried` without a test."""
    prefix = f"{paper.path}: claim {claim.id}: "
    if holds.level is Level.LITERAL and holds.truth is not None:
        raise ClaimError(
            f"{prefix}holds compares no printed number; transcribe the numbers that it compares into a table"
        )
    if claim.carried and carried.level is not Level.INFERENCE:
        raise ClaimError(f"{prefix}carried uses no test or interval of printed numbers; use one")


def _format_reasons(reasons: Sequence[str]) -> str:
    more = f"; and {len(reasons) - MAX_COMPARISONS} more" if len(reasons) > MAX_COMPARISONS else ""
    return "; ".join(reasons[:MAX_COMPARISONS]) + more


def _judge_table(table: Table) -> TableFinding:
    names = [name for name in table.values if table.n[name] is not None]
    if table.kind not in ("answers", "differences"):
        because = {
            "scores": "Means of graded scores: every value is possible.",
            "counts": "Counts and settings are exact.",
            "measures": "Measurements: every value is possible.",
        }[table.kind]
        return TableFinding(table, (), because)
    if not names:
        return TableFinding(table, (), "The number of problems is not printed, so that every value is possible.")
    ends = {name: _share_range(table, name) for name in names}
    if table.draws is None:
        return TableFinding(table, (), _describe_unknown_draws(table, ends))
    impossible = tuple(name for name in names if not rounding.counts(ends[name], (table.n[name] or 1) * table.draws))
    return TableFinding(table, impossible, _describe_known_draws(table, ends, impossible))


def _share_range(table: Table, name: str) -> Range:
    printed, scale = table.printed_range(name), UNITS[table.unit]
    assert printed is not None  # the parser refuses words in such a table
    return Range(printed.low / scale, printed.high / scale)


def _describe_known_draws(table: Table, ends: dict[str, Range], impossible: tuple[str, ...]) -> str:
    noun = "differences" if table.kind == "differences" else "means"
    draws = table.draws or 1
    kinds = {(ends[name].high - ends[name].low, (table.n[name] or 1) * draws) for name in ends}
    chance = max(float(rounding.chance(unit, answers)) for unit, answers in kinds)
    text = f"{len(ends) - len(impossible)} of {len(ends)} values are possible {noun}."
    for n in sorted({table.n[name] or 1 for name in impossible}):
        names = [name for name in impossible if table.n[name] == n]
        values = ", ".join(f"{table.values[name]} ({name})" for name in names)
        fitting = _possible_draws({name: ends[name] for name in names}, table)
        suggestion = f"; they would be possible with {fitting[0]} draws per problem" if fitting else ""
        text += (
            f" These cannot come from {n} problems with {draws} answer{'s' * (draws > 1)} each: {values}{suggestion}."
        )
    remark = ", so that the check is weak." if chance > 0.5 else "."
    return f"{text} By chance, {100 * chance:.0f} % of random decimals of this form would pass{remark}"


def _describe_unknown_draws(table: Table, ends: dict[str, Range]) -> str:
    fitting = _possible_draws(ends, table)
    if not fitting:
        return (
            f"The number of draws is not printed, and no number up to {MAX_DRAWS} per problem makes all values "
            "possible."
        )
    few = ", ".join(map(str, fitting[:5])) + (" or more" if len(fitting) > 5 else "")
    return f"The number of draws is not printed; all values are possible with {few} answers per problem."


def _possible_draws(ends: dict[str, Range], table: Table) -> list[int]:
    """Return the draws a problem at which all these values are possible."""
    return [
        draws
        for draws in range(1, MAX_DRAWS + 1)
        if all(rounding.counts(mean, (table.n[name] or 1) * draws) for name, mean in ends.items())
    ]

"""A registration in the forms of the OSF (its preregistration headings) and AsPredicted (nine questions).

Headings: OSF Preregistration, version 3. Questions: aspredicted.org, in the OSF's version 3 of them.
"""

from collections.abc import Iterable, Sequence

from protocol.evidence.lock.lock import Lock
from protocol.evidence.run.ledger import Entry
from protocol.texts import sentences as say

__all__ = ["as_predicted", "osf"]

_Part = tuple[str, Iterable[str]]

_NOT_YET = "No, no data have been collected for this study yet."
_PROCEDURE = (
    "One program runs every cell of the locked grid on every held-out problem, after a claim has been "
    "written and entered in the ledger. Each attempt, aborted ones included, is a line there; a "
    "finished record is never rewritten."
)
_COMPLICATED = (
    "It's complicated. We have already collected some data but explain in Question 8 why readers may "
    "consider this a valid pre-registration nevertheless."
)


def osf(held: Lock, entries: Sequence[Entry]) -> str:
    """Return Markdown with the OSF's headings, from only the lock and its ledger."""
    lock = held.content
    existing = (
        "Registration following analysis of the data"
        if say.before(lock)
        else "Registration prior to creation of data"
    )
    pages: dict[str, list[_Part]] = {
        "Study Information": [
            ("Title", [_title(held)]),
            ("Hypotheses", say.hypothesis(lock)),
        ],
        "Design Plan": [
            ("Study type", ["Experiment: arms are run on the same problems; no human subjects."]),
            (
                "Blinding",
                ["No blinding is involved in this study. Grading and judging are done by locked programs."],
            ),
            ("Study design", say.conditions(lock)),
            (
                "Randomization",
                ["Nothing is assigned at random: all arms see all problems.", *say.seeds(lock)],
            ),
        ],
        "Sampling Plan": [
            ("Existing Data", [existing]),
            ("Explanation of existing data", say.looked(lock)),
            ("Data collection procedures", [_PROCEDURE]),
            ("Sample size", say.sample(lock)),
            ("Sample size rationale", say.power(lock)),
            (
                "Stopping rule",
                ["None: every registered lane runs once, and an interrupted run is completed."],
            ),
        ],
        "Variables": [
            (
                "Manipulated variables",
                ["The eviction policy (the arm) and its budget, as listed under study design."],
            ),
            ("Measured variables", say.measured(lock)),
            ("Indices", ["Accuracy is the mean over problems of the mean over seeds."]),
        ],
        "Analysis Plan": [
            ("Statistical models", say.analysis(lock)),
            ("Transformations", ["None."]),
            ("Inference criteria", say.inference(lock)),
            ("Data exclusion", say.exclusions(lock)),
            ("Missing data", say.missing(lock)),
            ("Exploratory analysis", say.exploratory(lock)),
        ],
        "Other": [
            ("What is frozen", say.where(lock, held.digest)),
            ("Registered settings", [_bullets(say.numbers(lock))]),
            ("Since locking", [_bullets(say.since(entries))]),
        ],
    }
    parts = [f"# {_title(held)}", _origin(held)]
    for page, questions in pages.items():
        parts += [f"## {page}", *(_section("###", *question) for question in questions)]
    return "\n\n".join(parts) + "\n"


def as_predicted(held: Lock, entries: Sequence[Entry]) -> str:
    """Return Markdown with AsPredicted's nine questions, from only the lock and its ledger."""
    lock = held.content
    collected = _COMPLICATED if say.before(lock) else _NOT_YET
    questions: list[_Part] = [
        ("Data collection. Have any data been collected for this study already?", [collected]),
        (
            "Hypothesis. What's the main question being asked or hypothesis being tested in this study?",
            say.hypothesis(lock),
        ),
        (
            "Dependent variable. Describe the key dependent variable(s) specifying how they will be "
            "measured.",
            say.measured(lock),
        ),
        ("Conditions. How many and which conditions will participants be assigned to?", say.conditions(lock)),
        (
            "Analyses. Specify exactly which analyses you will conduct to examine the main "
            "question/hypothesis.",
            [*say.analysis(lock), *say.inference(lock)],
        ),
        (
            "Outliers and Exclusions. Describe exactly how outliers will be defined and handled, and your "
            "precise rule(s) for excluding observations.",
            [*say.exclusions(lock), *say.missing(lock)],
        ),
        (
            "Sample Size. How many observations will be collected or what will determine sample size? No "
            "need to justify decision, but be precise about exactly how the number will be determined.",
            [*say.sample(lock), *say.power(lock)],
        ),
        (
            "Other. Anything else you would like to pre-register? (e.g., secondary analyses, variables "
            "collected for exploratory purposes, unusual analyses planned?)",
            [
                *say.looked(lock),
                *say.seeds(lock),
                *say.exploratory(lock),
                *say.where(lock, held.digest),
                _bullets([*say.numbers(lock), *(f"ledger: {line}" for line in say.since(entries))]),
            ],
        ),
        ("Name. Give a title for this AsPredicted pre-registration.", [_title(held)]),
    ]
    parts = [f"# {_title(held)}", _origin(held)]
    parts += [
        _section("##", f"{number}) {name}", said) for number, (name, said) in enumerate(questions, start=1)
    ]
    return "\n\n".join(parts) + "\n"


def _title(held: Lock) -> str:
    return " ".join(held.content["protocol"]["content"]["title"].split())


def _origin(held: Lock) -> str:
    return (
        f"Written by `kv-prereg export` from `lock.json` of `{held.content['name']}`, SHA-256 "
        f"`{held.digest}`; nothing was added by hand. That the files hold is for `kv-prereg audit`."
    )


def _section(level: str, name: str, said: Iterable[str]) -> str:
    return "\n\n".join([f"{level} {name}", *said])


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)

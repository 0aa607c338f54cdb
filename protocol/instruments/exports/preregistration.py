"""A registration in the forms of the OSF (its preregistration headings) and AsPredicted (nine questions).

Headings: OSF Preregistration, version 3. Questions: aspredicted.org, in the OSF's version 3 of them.
"""

from collections.abc import Iterable, Sequence

from protocol.evidence.ledger import Entry
from protocol.formats.escape import escape_tags
from protocol.instruments.exports import lock_sentences as say
from protocol.lock.lock import Lock

_Part = tuple[str, Iterable[str]]

_NOT_YET = "No, no data have been collected for this study yet."
_COMPLICATED = (
    "It's complicated. We have already collected some data but explain in Question 8 why readers may "
    "consider this a valid pre-registration nevertheless."
)


def format_osf(lock: Lock, entries: Sequence[Entry]) -> str:
    """Return Markdown with the OSF's headings, from only the lock and its ledger."""
    content = lock.content
    existing = (
        "Registration following analysis of the data"
        if say.has_prior_records(content)
        else "Registration prior to creation of data"
    )
    pages: dict[str, list[_Part]] = {
        "Study Information": [("Title", [_title(lock)]), ("Hypotheses", say.hypothesis(content))],
        "Design Plan": [
            ("Study type", ["Experiment: arms are run on the same problems; no human subjects."]),
            ("Blinding", ["No blinding is involved in this study. Grading and judging are done by locked programs."]),
            ("Study design", say.conditions(content)),
            ("Randomization", ["Nothing is assigned at random: all arms see all problems.", *say.seeds(content)]),
        ],
        "Sampling Plan": [
            ("Existing Data", [existing]),
            ("Explanation of existing data", say.prior_looks(content)),
            ("Data collection procedures", say.procedure(content)),
            ("Sample size", say.sample(content)),
            ("Sample size rationale", say.power(content)),
            ("Stopping rule", [say.stopping_rule(content)]),
        ],
        "Variables": [
            ("Manipulated variables", say.manipulated(content)),
            ("Measured variables", say.outcomes(content)),
            ("Indices", ["Accuracy is the mean over problems of the mean over seeds."]),
        ],
        "Analysis Plan": [
            ("Statistical models", say.analysis(content)),
            ("Transformations", ["None."]),
            ("Inference criteria", say.inference(content)),
            ("Data exclusion", say.exclusions(content)),
            ("Missing data", say.missing(content)),
            ("Exploratory analysis", say.exploratory(content)),
        ],
        "Other": [
            ("What is frozen", say.frozen_items(content, lock.digest)),
            ("Registered settings", [_bullets(say.settings(content))]),
            ("Since locking", [_bullets(say.ledger_history(entries))]),
        ],
    }
    parts = [f"# {_title(lock)}", _origin(lock)]
    for page, questions in pages.items():
        parts += [f"## {page}", *(_section("###", *question) for question in questions)]
    return escape_tags("\n\n".join(parts)) + "\n"


def format_as_predicted(lock: Lock, entries: Sequence[Entry]) -> str:
    """Return Markdown with AsPredicted's nine questions, from only the lock and its ledger."""
    content = lock.content
    collected = _COMPLICATED if say.has_prior_records(content) else _NOT_YET
    questions: list[_Part] = [
        ("Data collection. Have any data been collected for this study already?", [collected]),
        (
            "Hypothesis. What's the main question being asked or hypothesis being tested in this study?",
            say.hypothesis(content),
        ),
        (
            "Dependent variable. Describe the key dependent variable(s) specifying how they will be measured.",
            say.outcomes(content),
        ),
        ("Conditions. How many and which conditions will participants be assigned to?", say.conditions(content)),
        (
            "Analyses. Specify exactly which analyses you will conduct to examine the main question/hypothesis.",
            [*say.analysis(content), *say.inference(content)],
        ),
        (
            "Outliers and Exclusions. Describe exactly how outliers will be defined and handled, and your "
            "precise rule(s) for excluding observations.",
            [*say.exclusions(content), *say.missing(content)],
        ),
        (
            "Sample Size. How many observations will be collected or what will determine sample size? No "
            "need to justify decision, but be precise about exactly how the number will be determined.",
            [*say.sample(content), *say.power(content)],
        ),
        (
            "Other. Anything else you would like to pre-register? (e.g., secondary analyses, variables "
            "collected for exploratory purposes, unusual analyses planned?)",
            [
                *say.prior_looks(content),
                *say.seeds(content),
                *say.exploratory(content),
                *say.frozen_items(content, lock.digest),
                _bullets([*say.settings(content), *(f"ledger: {line}" for line in say.ledger_history(entries))]),
            ],
        ),
        ("Name. Give a title for this AsPredicted pre-registration.", [_title(lock)]),
    ]
    parts = [f"# {_title(lock)}", _origin(lock)]
    parts += [
        _section("##", f"{number}) {name}", paragraphs) for number, (name, paragraphs) in enumerate(questions, start=1)
    ]
    return escape_tags("\n\n".join(parts)) + "\n"


def _title(lock: Lock) -> str:
    return " ".join(lock.content["protocol"]["content"]["title"].split())


def _origin(lock: Lock) -> str:
    return (
        f"Written by `kv-prereg export` from `lock.json` of `{lock.content['name']}`, SHA-256 "
        f"`{lock.digest}`; nothing was added by hand. `kv-prereg audit` checks whether the files are intact."
    )


def _section(level: str, name: str, paragraphs: Iterable[str]) -> str:
    return "\n\n".join([f"{level} {name}", *paragraphs])


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)

"""Sentences about a lock, from which registration texts are composed."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from analysis.rules import RULES
from analysis.rules.rule import against_full
from analysis.stats.methods import METHODS, resampled, together
from analysis.studies import arms, full_use, opened, same_kept
from protocol.evidence.run.ledger import Entry
from protocol.texts import gate, known, slots

_SOURCES = {
    "nonce": "a number that the registered auditor draws and signs after the lock",
    "beacon": "a public beacon's value of after the lock",
    "anchor": "the hash of the Bitcoin block that anchors the lock",
}
_HELD = {
    "slots": "mean slots",
    "bytes": "mean bytes",
    "total": "mean bytes, with those of the policy's own state,",
}
_QUERY = {"inside": "is compressed together with", "outside": "follows after the compression of"}


def hypothesis(lock: Mapping[str, Any]) -> list[str]:
    content, decision = _content(lock), _decision(lock)
    said = [_line(content["question"])]
    if rule := RULES.get(decision["rule"]):
        return [*said, rule.words.hypothesis(decision, lock["checks"])]
    return [
        *said,
        f"What is tested of {decision['subject']} against {_list(decision['against'])} is the rule "
        f"{decision['rule']!r}, over {lock['checks']['tests']} contrasts, with the numbers registered below.",
    ]


def inference(lock: Mapping[str, Any]) -> list[str]:
    """Describe the committed rule with all its numbers."""
    decision, level, family = _decision(lock), lock["checks"]["corrected_alpha"], lock["checks"]["tests"]
    said = [
        f"The rule is {lock['rule']['name']!r} of {lock['rule']['source']}, whose bytes are locked (SHA-256 "
        f"{lock['rule']['sha256']}). Alpha is {decision['alpha']}, two-sided; there are {family} contrasts, "
        f"and the Bonferroni level of one of them is {level}. There is one look, at all records."
    ]
    if rule := RULES.get(decision["rule"]):
        said += rule.words.criteria(decision, lock["checks"])
    said += ["INCONCLUSIVE: otherwise.", *gate.said(lock)]
    return [*said, *_memory(lock)]


def _memory(lock: Mapping[str, Any]) -> list[str]:
    """Say when two arms count as equal in memory; locks older than gates compare only mean slots."""
    decision = _decision(lock)
    held, tolerance = _HELD[decision.get("memory", "slots")], f"{float(decision['cache_tolerance']):.4g}"
    if against_full(decision):
        return [
            f"Memory is unequal on purpose. Where the full cache's {held}, as measured, do not exceed the "
            f"other arm's by more than {tolerance} of them, nothing is saved: that contrast neither confirms "
            "nor refutes.",
        ]
    neither = "A contrast without that is neither won nor lost, and rules CONFIRMED out."
    if "gate" not in _content(lock):
        return [
            "Both arms held the same memory where neither arm's mean slots, as measured, exceed the other's "
            f"by more than {tolerance} of them. {neither}"
        ]
    return [
        f"Both arms held the same memory where neither arm's {held}, as measured, exceed the other's by more "
        f"than {tolerance} of them, nor differ by more than that problem by problem, on average. {neither}",
        "Within that, a win or a loss has to exceed what the difference of memory may have bought: for 1 % "
        "of it two accuracy points, or twice the steepest slope between the comparator's measured accuracies "
        "next to its budget if that is more.",
    ]


def numbers(lock: Mapping[str, Any]) -> list[str]:
    """Return every registered setting of decision and generation as `field = value`."""
    return [
        f"{table}.{field} = {_value(value)}"
        for table in ("gate", "generation", "decision", "sweep", "exclude", "randomness")
        for field, value in sorted(_content(lock).get(table, {}).items())
    ]


def _value(value: Any) -> str:
    if isinstance(value, list):
        return _list(map(_value, value))
    if isinstance(value, Mapping):
        return f"({_list(f'{field} {inner}' for field, inner in sorted(value.items()))})"
    return str(value)


def conditions(lock: Mapping[str, Any]) -> list[str]:
    content, decision = _content(lock), _decision(lock)
    named = [f"{name} ({arms.words(arm)})" for name, arm in content["arms"].items()]
    cells = len(lock["grid"])
    said = [
        f"{len(named)} arms: {_list(named)}. Models: {_list(content['models'])}. Budgets: "
        f"{_list(content['budgets'])} (with a point: share of the prompt's tokens; whole: slots per KV head "
        f"and layer{_of_full(lock)}{slots.forms(lock)}). Seeds: {_list(content['seeds'])}. "
        f"That makes {cells} cells.",
        *(
            f"Task {task['name']}: at most {task['max_new_tokens']} new tokens; the question "
            f"{_QUERY.get(task['query'], 'stands ' + task['query'])} the context."
            for task in content["tasks"]
        ),
        *full_use.words(lock.get(full_use.FIELD, {})),
        *slots.words(lock),
        *(f"{said[0].upper()}{said[1:]}." for said in arms.apart(lock)),
        f"Within problems: every arm answers every held-out problem, from {_prompts(lock)}. The "
        f"subject is {decision['subject']}, compared with {_list(decision['against'])}.",
    ]
    if sweep := content.get("sweep"):
        said.append(
            f"{sweep['name']} is one of {_list(sweep['candidates'])}: the earliest whose mean accuracy on "
            f"the development problems is within {sweep['tolerance']} of the best. It is chosen after the "
            "lock and before a held-out problem is read."
        )
    return said


def _prompts(lock: Mapping[str, Any]) -> str:
    if not (said := arms.asked(lock)):
        return "one and the same prompt"
    return f"one prompt but for what arms ask beside it ({_list(said)})"


def measured(lock: Mapping[str, Any]) -> list[str]:
    scored = _scored(lock)
    return [
        "Primary outcome: the difference in accuracy, the share of held-out problems answered correctly, "
        "subject minus comparator, paired by problem. A locked grader compares each answer with the known "
        "one; its grades are correct, wrong, no answer, timeout (counted as not correct) and error (no "
        "grade).",
        *(
            f"Answers of {_list(scored)} have the grade scored and a score from 0 to 1; of them the accuracy "
            "is the mean score."
            for _ in scored[:1]
        ),
        "Memory: slots per KV head and layer, counted after the prefill and after each decode step, and "
        "averaged over the generation; bytes and peaks are kept beside.",
    ]


def analysis(lock: Mapping[str, Any]) -> list[str]:
    decision = _decision(lock)
    method = METHODS.get(decision["method"])
    words = decision["method"] if method is None else method.words.format(**decision)
    level = "are those of max-t" if method and method.family else "have the Bonferroni level"
    clusters = [
        f"The problems of {task} come in {together(item)}: whole clusters stand in place of "
        "problems wherever one is resampled or counted, and the difference stays the mean over problems."
        for task, item in lock["items"].items()
        if "clusters" in item
    ]
    return [
        f"Each contrast is one (model, task, budget, comparator): {lock['checks']['tests']} of them. Seeds "
        f"of a problem are averaged first, so the problem is the unit. The method is {words}; the "
        f"simultaneous intervals {level}.",
        *clusters,
    ]


def exclusions(lock: Mapping[str, Any]) -> list[str]:
    above = _content(lock).get("exclude", {}).get("prompt_tokens_above")
    if above is None:
        outliers = "every score counts as it is" if _scored(lock) else "an answer is correct or it is not"
        return [f"No problem is excluded, and there are no outliers: {outliers}."]
    return [
        f"A problem whose context has more than {above} tokens under a model's tokenizer is excluded for "
        "that model, in all arms alike, before anything is generated. Nothing else is excluded."
    ]


def missing(lock: Mapping[str, Any]) -> list[str]:
    rule = _decision(lock)["missing"]
    meaning = {
        "inconclusive": "a registered lane without a grade, wherever it lies, makes the verdict INCONCLUSIVE",
        "wrong": (
            "a lane that failed or has no grade counts as not correct; a lane that was not run makes the "
            "verdict INCONCLUSIVE"
        ),
    }
    return [f"decision.missing = {rule}: {meaning.get(rule, 'as the locked rule defines it')}."]


def sample(lock: Mapping[str, Any]) -> list[str]:
    """Return the numbers of problems and lanes, all known in advance."""
    items = lock["items"]
    lanes = sum(len(items[cell[1]]["confirm"]) for cell in lock["grid"])
    each = [
        f"{task} has {len(item['confirm'])} held-out problems ({len(item['dev'])} more are for development; "
        f"split manifest {item['manifest']})"
        for task, item in items.items()
    ]
    return [
        f"{'; '.join(each)}. The ids are in the lock. With {len(lock['grid'])} cells these are {lanes} "
        "lanes, each run once: there is no stopping rule, and nothing can be seen of the result before all "
        "are recorded."
    ]


def power(lock: Mapping[str, Any]) -> list[str]:
    said, items = [], lock["items"].values()
    clusters = {len(resampled(item)) for item in items if "clusters" in item}
    problems = {len(resampled(item)) for item in items if "clusters" not in item}
    for size, check in lock["checks"]["problems"].items():
        effects = [
            f"{effect if effect != 'none' else 'none at all'} where {float(share):.0%} of the problems differ"
            for share, effect in check["minimal_detectable_effect"].items()
        ]
        what = _units(int(size), problems, clusters)
        said.append(
            f"With {size} {what}, the smallest difference in accuracy found with 80 % power at the level "
            f"of one contrast is {'; '.join(effects)}. On simulated null data the method's type-I error is "
            f"{check['type_one_over_nominal']} times the nominal one."
        )
    if clusters:
        said.append(
            "A number of clusters is looked at as so many problems: what holds where the answers of a "
            "cluster are all alike."
        )
    if scored := _scored(lock):
        said.append(
            "These numbers are of simulated answers that are right or wrong; no scores, as those of "
            f"{_list(scored)}, were simulated."
        )
    if "rule" in lock["checks"]:
        said.append(
            "Before locking, the rule was run on synthetic data that must give each verdict: checks.rule."
        )
    return said


def _units(size: int, problems: Container[int], clusters: Container[int]) -> str:
    """Return whether problems or clusters of this number are resampled."""
    words = [word for word, of in (("problems", problems), ("clusters", clusters)) if size in of]
    return " or ".join(words or ["problems"])


def _scored(lock: Mapping[str, Any]) -> list[str]:
    """Return the tasks whose answers have scores."""
    found: list[str] = lock["checks"].get("scored", [])
    return found


def seeds(lock: Mapping[str, Any]) -> list[str]:
    named = _list(_content(lock)["seeds"])
    if late := _content(lock).get("randomness"):
        source = _SOURCES.get(late["source"], late["source"])
        return [
            f"The seeds {named} are labels: sampling, and the text of generated held-out problems, derive "
            f"from the lock's digest and {source}, which did not exist at the time of locking."
        ]
    return [f"The seeds ({named}) are author-chosen."]


def looked(lock: Mapping[str, Any]) -> list[str]:
    """Return what had been looked at before locking, as far as the lock shows."""
    said = []
    if parent := lock["parent"]:
        said.append(
            f"This is a replication of {parent['name']} (lock {parent['lock']}), whose results were known, "
            "on the same held-out problems."
        )
    if amends := lock.get("amends"):
        seen = amends.get("seen", {})
        facts = [f"{name}: {_fact(value)}" for name, value in seen.items()]
        said.append(
            f"This amends {amends['name']} (lock {amends['lock']}). Reason: {_line(amends['reason'])} What "
            f"had been seen of it: {'; '.join(facts) or 'nothing'}."
        )
        if amends.get("after_claim"):
            said.append(
                "It was amended after its held-out problems were claimed: the verdict can only be DEVIATED."
            )
    said += [*opened.words(lock), *opened.developed(lock)]
    for model, weights in lock["weights"].items():
        if used := sorted(name for name in weights if name.startswith("statistics-")):
            said.append(f"Statistics of {model} had been measured on other problems or texts: {_list(used)}.")
    said += known.answers(lock)
    return [
        *said,
        *_watched(lock["checks"].get("same_kept"), lock["protocol"]["content"]["arms"]),
        "What its author ran in private beforehand no lock can show.",
    ]


def _watched(found: Mapping[str, Any] | None, ran_as: Mapping[str, Any]) -> list[str]:
    """Return which arms were run while locking, and what was observed."""
    if found is None:
        return ["Locking ran no model."]
    ran = "; ".join(f"for {model}, {runs}" for model, runs in found["on"].items())
    seen = [f"{said[0].upper()}{said[1:]}." for said in same_kept.words(found)]
    seen = seen or ["That was seen of no two arms."]
    left = found.get("left_out", [])
    if presses := [arm for arm in left if "press" in ran_as.get(arm, {})]:
        seen.append(f"Not run there, since what a press leaves has no numbers: {_list(presses)}.")
    if left_out := [arm for arm in left if arm not in presses]:
        seen.append(f"Not run, for want of statistics of a model that ran: {_list(left_out)}.")
    return [
        "Locking ran the arms on a few development problems, to see which of them keep the same slots. What "
        f"ran: {ran}.",
        *seen,
    ]


def _of_full(lock: Mapping[str, Any]) -> str:
    if full_use.FIELD not in lock:
        return ""
    when = "its parent" if lock["parent"] else "it"
    return (
        "; of full: share of what the full cache held at the end of an answer, or where its task's most new "
        f"tokens cut it, mean of the development problems, measured when {when} was locked"
    )


def before(lock: Mapping[str, Any]) -> bool:
    """Return whether records of the same held-out problems existed when this was locked."""
    seen = (lock.get("amends") or {}).get("seen", {})
    records = lock["parent"] or seen.get("records") or seen.get("verdict")
    return bool(records or lock.get("opened"))


def exploratory(lock: Mapping[str, Any]) -> list[str]:
    decision = _decision(lock)
    said = []
    if beside := decision.get("beside"):
        said.append(
            f"Outside the rule and its family, {decision['subject']} is also compared with {_list(beside)}, "
            "at a Bonferroni level of their own."
        )
    if decision.get("memory") == "slots":
        said.append(
            "Where arms do not match in memory, accuracy is interpolated to equal slots. It decides nothing."
        )
    return [*said, "Everything else that is computed from the records is exploratory and gets no verdict."]


def where(lock: Mapping[str, Any], digest: str) -> list[str]:
    """Return what the lock freezes, and the digest by which it is cited."""
    environment = lock["environment"]
    return [
        f"Registration {lock['name']}; SHA-256 of its lock {digest}, of its protocol.toml "
        f"{lock['protocol']['sha256']}.",
        f"Frozen by digest: {len(lock['sources'])} source files (in sources.zip), the split manifests, the "
        f"data, {sum(map(len, lock['weights'].values()))} files of the models, and an environment of "
        f"{len(environment.get('distributions', {}))} installed packages on Python "
        f"{environment.get('python')}.",
    ]


def since(entries: Sequence[Entry]) -> list[str]:
    """Return the events in the ledger, with times of the author's clock, which prove nothing."""
    return [
        f"{entry.time} {entry.event}{_numbered(entry)}"
        for entry in entries
        if entry.event not in ("held-out", "probed", "costed", "occluded")
    ]


def _numbered(entry: Entry) -> str:
    facts = [f"{name} {entry.body[name]}" for name in ("number", "records", "reason") if name in entry.body]
    return f" ({', '.join(map(_line, facts))})" if facts else ""


def _fact(value: Any) -> str:
    match value:
        case None | False:
            return "no"
        case True:
            return "yes"
        case Mapping():
            return ", ".join(f"{one} {name}" for name, one in value.items())
        case _:
            return str(value)


def _content(lock: Mapping[str, Any]) -> Mapping[str, Any]:
    content: Mapping[str, Any] = lock["protocol"]["content"]
    return content


def _decision(lock: Mapping[str, Any]) -> Mapping[str, Any]:
    decision: Mapping[str, Any] = _content(lock)["decision"]
    return decision


def _line(text: Any) -> str:
    return " ".join(str(text).split())


def _list(words: Iterable[Any]) -> str:
    return ", ".join(map(str, words))

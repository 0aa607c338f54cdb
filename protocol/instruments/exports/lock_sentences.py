"""Sentences about a lock, from which registration texts are composed."""

import itertools
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from analysis.judgement import arm_text, full_cache_use, outside_runs, previously_opened, same_retained_slots
from analysis.judgement.judging_rules import is_judged_as_shipped
from analysis.rules import RULES, full_cache_gate
from analysis.rules.rule import is_against_full, measures_memory
from analysis.stats.methods import METHODS, describe_clusters, resampling_problems
from protocol.evidence.ledger import Entry
from protocol.formats.citations import CITES
from protocol.formats.findings import one_line
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.looks import read_looks
from protocol.formats.vocabulary import ISO_CACHE, READS
from protocol.messages import slot_sizes

# In locks since gates and the verdict SCREENED exist; version 1 has the first path.
JUDGES = {"analysis/studies/gate.py", "analysis/judgement/gate.py"}
_SOURCES = {
    "nonce": "a number that the registered auditor draws and signs after the lock",
    "beacon": "a value that a public beacon publishes after the lock",
    "anchor": "the hash of the Bitcoin block that anchors the lock",
    "local": "a number that the author's machine draws when the claim is taken",
    "cited": "the value that the cited study draws for its own lock",
}
_MEMORY_NAMES = {
    "slots": "mean slots",
    "bytes": "mean bytes",
    "total": "mean bytes, including the policy's own state,",
    READS: "mean slots that a new token reads",
}
_QUERY = {"inside": "is compressed together with", "outside": "follows after the compression of"}


def hypothesis(lock: Mapping[str, Any]) -> list[str]:
    content, decision = _content(lock), _decision(lock)
    sentences = [one_line(content["question"])]
    if rule := RULES.get(decision["rule"]):
        return [
            *sentences,
            rule.text.hypothesis(decision, {**lock["checks"], "outcome": _content(lock).get("outcome")}),
        ]
    return [
        *sentences,
        f"{decision['subject']} is tested against {_join(decision['against'])} by the rule "
        f"{decision['rule']!r}, over {lock['checks']['tests']} contrasts, with the numbers registered below.",
    ]


def inference(lock: Mapping[str, Any]) -> list[str]:
    """Describe the committed rule with all its numbers."""
    decision, level, family = _decision(lock), lock["checks"]["corrected_alpha"], lock["checks"]["tests"]
    sentences = [
        f"The rule is {lock['rule']['name']!r} of {lock['rule']['source']}, whose bytes are locked (SHA-256 "
        f"{lock['rule']['sha256']}). Alpha is {decision['alpha']}, two-sided; there are {family} contrasts, "
        f"and the Bonferroni level of one of them is {level}. {_describe_looks(lock)}"
    ]
    if rule := RULES.get(decision["rule"]):
        sentences += rule.text.criteria(decision, lock["checks"] | {"judging": lock.get("judging", 1)})
    sentences += ["INCONCLUSIVE: otherwise.", *describe_gate(lock)]
    return [*sentences, *_describe_memory(lock)]


def _describe_looks(lock: Mapping[str, Any]) -> str:
    if not (looks := read_looks(lock)):
        return "There is one look, at all records."
    return f"There are at most {len(looks)} looks, which share alpha: each p is that of the design at its look."


def describe_gate(lock: Mapping[str, Any]) -> list[str]:
    """Describe what the full cache must reach, with all numbers, and what holds for small studies and single
    models. For an older lock: that it has no gate.
    """
    content, models = lock["protocol"]["content"], lock["protocol"]["content"]["models"]
    if (registered := content.get("gate")) is None:
        sentences = ["No gate is registered: nothing checks whether the full cache can do the task."]
    else:
        pairs = itertools.product(models, (task["name"] for task in content["tasks"]))
        sentences = [
            "The gate: for each model and task, a minimum share of the full cache's held-out lanes must be "
            "correct, and at most a maximum share may be cut by max_new_tokens before a correct answer; a "
            "lane without a grade counts as not correct. Otherwise the verdict is INCONCLUSIVE and the study "
            "uninformative, whatever the contrasts say.",
            *(
                f"Gate of {model} on {task}: {full_cache_gate.gate_requirement(registered, model, task).text}."
                for model, task in pairs
            ),
        ]
    if JUDGES.isdisjoint(lock["sources"]):
        return sentences
    sentences.append(
        "The verdict is SCREENED instead where some contrast has fewer than 200 problems: such a study "
        "decides nothing, whatever the rule says."
    )
    return [*sentences, f"The verdict is about {models[0]} alone."] if len(models) == 1 else sentences


def _describe_memory(lock: Mapping[str, Any]) -> list[str]:
    """Say when two arms count as equal in memory; locks older than gates compare only mean slots."""
    decision = _decision(lock)
    if not measures_memory(decision):
        return ["Memory is not measured, and no contrast depends on it."]
    memory, tolerance = _MEMORY_NAMES[decision.get("memory", "slots")], f"{float(decision['cache_tolerance']):.4g}"
    if is_against_full(decision):
        return [
            f"Memory is unequal on purpose. Where the full cache's measured {memory} do not exceed the other "
            f"arm's by more than {tolerance} of them, no memory is saved: that contrast neither confirms nor "
            "refutes."
        ]
    neither = "A contrast without matched memory is neither won nor lost, and rules CONFIRMED out."
    if "gate" not in _content(lock):
        return [
            "Memory is matched where neither arm's measured mean slots exceed the other's by more than "
            f"{tolerance} of them. {neither}"
        ]
    if not is_judged_as_shipped(lock):
        beyond = (
            "A subject that holds more memory is compared as iso-cache, with the comparator's next larger measurement."
            if decision.get("unmatched") == ISO_CACHE
            else "A contrast in which the subject holds more than that is neither won nor lost, and rules "
            "CONFIRMED out."
        )
        return [
            f"Memory is matched where the subject's measured {memory} do not exceed the comparator's by more "
            f"than {tolerance} of them, in the mean over problems; a contrast is never void because the "
            f"subject holds less. {beyond}",
            *_describe_neighbours(_content(lock)),
            "A win must exceed what more memory may have bought: the comparator's whole gain up to its next "
            "measurement with as much memory, at the upper confidence limit; a loss must exceed what less "
            "memory may have cost.",
        ]
    return [
        f"Memory is matched where neither arm's measured {memory} exceed the other's by more than {tolerance} "
        "of them, and where, compared problem by problem, they differ on average by no more than that. "
        f"{neither}",
        "Within that tolerance, a win or a loss must exceed what the difference of memory may have bought: "
        "two accuracy points for each 1 % of memory, or twice the steepest slope between the comparator's "
        "measured accuracies next to its budget if that is more.",
    ]


def _describe_neighbours(content: Mapping[str, Any]) -> list[str]:
    """Say what is tested at registered neighbours, before what is charged where none reaches."""
    if not (neighbours := content.get("neighbours")):
        return []
    return [
        f"Comparators run at {_join(neighbours)} too. With more memory, the subject must also win against the "
        "comparator at the nearest of all these budgets that holds as much; a loss with less memory must "
        "also be a loss against the nearest that holds no more. Each is tested at the level of the contrast. "
        "Where there is no such budget:"
    ]


def settings(lock: Mapping[str, Any]) -> list[str]:
    """Return every registered setting of decision and generation as `field = value`."""
    return [
        f"{table}.{field} = {_format_value(value)}"
        for table in ("gate", "generation", "decision", "sweep", "exclude", "randomness")
        for field, value in sorted(_content(lock).get(table, {}).items())
    ]


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return _join(map(_format_value, value))
    if isinstance(value, Mapping):
        return f"({_join(f'{field} {inner}' for field, inner in sorted(value.items()))})"
    return str(value)


def conditions(lock: Mapping[str, Any]) -> list[str]:
    content, decision = _content(lock), _decision(lock)
    if outside_runs.is_outside(lock):
        commands = [f"{name}: {one_line(arm['command'])}" for name, arm in content["arms"].items()]
        return [
            f"{len(commands)} arms, run by another harness: {'; '.join(commands)}. Model: "
            f"{_join(content['models'])}. Repetitions: {_join(content['seeds'])}. These make "
            f"{len(lock['grid'])} cells.",
            "The comparison is within problems: every arm answers every held-out problem. The subject is "
            f"{decision['subject']}, compared with {_join(decision['against'])}.",
        ]
    named = [f"{name} ({arm_text.describe_arm(arm)})" for name, arm in content["arms"].items()]
    cells = len(lock["grid"])
    sentences = [
        f"{len(named)} arms: {_join(named)}. Models: {_join(content['models'])}. Budgets: "
        f"{_join(content['budgets'])} (a decimal number is a share of the prompt's tokens, a whole number "
        "counts slots per KV head and "
        f"layer{_describe_full_shares(lock)}{slot_sizes.describe_byte_budgets(lock)}). Seeds: "
        f"{_join(content['seeds'])}. "
        + (f"Only comparators also run at {_join(at)}. " if (at := content.get("neighbours")) else "")
        + f"These make {cells} cells.",
        *(
            f"Task {task['name']}: at most {task['max_new_tokens']} new tokens; the question "
            f"{_QUERY.get(task['query'], 'is ' + task['query'])} the context."
            for task in content["tasks"]
        ),
        *full_cache_use.describe_full_use(lock.get(full_cache_use.FIELD, {})),
        *slot_sizes.describe_slots(lock),
        *(f"{sentences[0].upper()}{sentences[1:]}." for sentences in arm_text.differing_prompt_sentences(lock)),
        f"Within problems: every arm {_describe_task(content)} every held-out problem, from {_describe_prompts(lock)}. "
        f"The subject is {decision['subject']}, compared with {_join(decision['against'])}.",
    ]
    if sweep := content.get("sweep"):
        sentences.append(
            f"{sweep['name']} is one of {_join(sweep['candidates'])}: the earliest whose mean accuracy on the "
            f"development problems is within {sweep['tolerance']} of the best. It is chosen after the lock "
            "and before any held-out problem is read."
        )
    return sentences


def _describe_task(content: Mapping[str, Any]) -> str:
    return "is fed the full cache's answer to" if "outcome" in content else "answers"


def _describe_prompts(lock: Mapping[str, Any]) -> str:
    if not (extra_prompts := arm_text.extra_prompt_sentences(lock)):
        return "one and the same prompt"
    return f"one prompt, except for the extra prompts of some arms ({_join(extra_prompts)})"


def procedure(lock: Mapping[str, Any]) -> list[str]:
    """Return who runs the cells, and when."""
    runs = (
        "Another harness runs every arm on the problems that a claim releases, and its files are read once"
        if outside_runs.is_outside(lock)
        else "One program runs every cell of the locked grid on every held-out problem"
        + (" that a look opens" if read_looks(lock) else "")
    )
    cited = _list_cited(lock)
    runs += f", except those of {_join(cited)}, whose records come from an earlier study" if cited else ""
    return [
        f"{runs}, after a claim has been written and entered in the ledger. Each attempt, aborted ones included, is a "
        "line there; a finished record is never rewritten."
    ]


def _list_cited(lock: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the arms that are not run, each with the study whose records are taken."""
    cited: dict[str, Mapping[str, Any]] = lock.get(CITES, {})
    return cited


def manipulated(lock: Mapping[str, Any]) -> list[str]:
    if outside_runs.is_outside(lock):
        return ["The commands of the arms, as listed under study design."]
    return ["The eviction policy (the arm) and its budget, as listed under study design."]


def outcomes(lock: Mapping[str, Any]) -> list[str]:
    scored = _scored_tasks(lock)
    if outside_runs.is_outside(lock):
        return [
            "Primary outcome: the difference in accuracy, subject minus comparator, paired by problem. The grade of an "
            f"answer is the score in the files of the harness, and nothing is graded again. "
            f"{outside_runs.describe_outside(lock).capitalize()}."
        ]
    if "outcome" in _content(lock):
        return [
            "Primary outcome: the difference in agreement with the full cache, subject minus comparator, "
            "paired by problem. Every arm is fed the text that the full cache produces for a problem and "
            "seed; its agreement is the share of positions, including the stop token, at which it would have "
            "produced the same token with the same noise. Where this document says accuracy of an arm that "
            "evicts, agreement is meant. The full cache's answers are graded by the task, for the gate alone.",
            "Also recorded: the divergence of the next token in nats, by position.",
        ]
    return [
        "Primary outcome: the difference in accuracy, the share of held-out problems answered correctly, "
        "subject minus comparator, paired by problem. A locked grader compares each answer with the known "
        "answer; its grades are correct, wrong, no answer, timeout (counted as not correct) and error (no "
        "grade).",
        *(
            f"Answers of {_join(scored)} have the grade scored and a score from 0 to 1; their accuracy is the "
            "mean score."
            for _ in scored[:1]
        ),
        "Memory: slots per KV head and layer, counted after the prefill and after each decode step, and "
        "averaged over the generation; bytes and peaks are recorded as well.",
    ]


def analysis(lock: Mapping[str, Any]) -> list[str]:
    decision = _decision(lock)
    method = METHODS.get(decision["method"])
    words = decision["method"] if method is None else method.text.format(**decision)
    level = "are those of max-t" if method and method.family else "have the Bonferroni level"
    clusters = [
        f"The problems of {task} come in {describe_clusters(item)}: wherever problems are resampled or "
        "counted, whole clusters are taken instead, while the difference remains the mean over problems."
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
        outliers = "every score counts as it is" if _scored_tasks(lock) else "an answer is correct or it is not"
        return [f"No problem is excluded, and there are no outliers: {outliers}."]
    return [
        f"A problem whose context has more than {above} tokens under a model's tokenizer is excluded for "
        "that model, in all arms alike, before anything is generated. Nothing else is excluded."
    ]


def missing(lock: Mapping[str, Any]) -> list[str]:
    rule = _decision(lock)["missing"]
    meaning = {
        "inconclusive": "any registered lane without a grade makes the verdict INCONCLUSIVE",
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
    counts = [
        f"{task} has {len(item['confirm'])} held-out problems ({len(item['dev'])} more are for development; "
        f"split manifest {item['manifest']})"
        for task, item in items.items()
    ]
    most = "at most " if read_looks(lock) else ""
    return [
        f"{'; '.join(counts)}. The ids are in the lock. With {len(lock['grid'])} cells these are {most}{lanes} "
        f"lanes, each run once. {stopping_rule(lock)}"
    ]


def stopping_rule(lock: Mapping[str, Any]) -> str:
    """Return when a study ends."""
    if not (looks := read_looks(lock)):
        return (
            "There is no stopping rule: no result can be seen before all lanes are recorded, and an "
            "interrupted run is completed."
        )
    decision = _decision(lock)
    spending = f"alpha spent as {decision['spending']}" if "spending" in decision else "alpha at every look"
    return (
        f"After {_join(looks)} problems of each task, in an order that protocol.toml fixes, a judge in a "
        f"separate process says whether the rule has decided ({decision['method']}, {spending}); if it has, "
        "the study ends. The process that runs the lanes learns only whether to stop or to continue, and no "
        "number. There is no other stopping rule."
    )


def power(lock: Mapping[str, Any]) -> list[str]:
    sentences, items = [], lock["items"].values()
    clusters = {len(resampling_problems(item)) for item in items if "clusters" in item}
    problems = {len(resampling_problems(item)) for item in items if "clusters" not in item}
    for size, check in lock["checks"]["problems"].items():
        effects = [
            f"{effect if effect != 'none' else 'none at all'} where {float(share):.0%} of the problems differ"
            for share, effect in check["minimal_detectable_effect"].items()
        ]
        what = _describe_units(int(size), problems, clusters)
        sentences.append(
            f"With {size} {what}, the smallest difference in accuracy found with 80 % power at the level "
            f"of one contrast is {'; '.join(effects)}. On simulated null data the method's type-I error is "
            f"{check['type_one_over_nominal']} times the nominal one."
        )
    if clusters:
        sentences.append(
            "A number of clusters is treated as that number of problems, which is exact if all answers of a "
            "cluster are alike."
        )
    if scored := _scored_tasks(lock):
        sentences.append(
            "These numbers come from simulated answers that are right or wrong; scores, such as those of "
            f"{_join(scored)}, were not simulated."
        )
    if lock["checks"].get("rule"):
        sentences.append("Before locking, the rule was run on synthetic data that must give each verdict: checks.rule.")
    return sentences


def _describe_units(size: int, problems: Container[int], clusters: Container[int]) -> str:
    """Return whether problems or clusters of this number are resampled."""
    words = [word for word, sizes in (("problems", problems), ("clusters", clusters)) if size in sizes]
    return " or ".join(words or ["problems"])


def _scored_tasks(lock: Mapping[str, Any]) -> list[str]:
    """Return the tasks whose answers have scores."""
    tasks: list[str] = lock["checks"].get("scored", [])
    return tasks


def seeds(lock: Mapping[str, Any]) -> list[str]:
    named = _join(_content(lock)["seeds"])
    if late := _content(lock).get("randomness"):
        source = _SOURCES.get(late["source"], late["source"])
        if outside_runs.is_outside(lock):
            return [
                f"The held-out problems are drawn from their pool by the lock's digest and {source}, which did not "
                f"exist at the time of locking. The repetitions {named} are labels in the files."
            ]
        return [
            f"The seeds {named} are labels: sampling and the text of generated held-out problems are derived "
            f"from the lock's digest and {source}, which did not exist at the time of locking."
        ]
    return [f"The seeds ({named}) are author-chosen."]


def prior_looks(lock: Mapping[str, Any]) -> list[str]:
    """Return what had been looked at before locking, as far as the lock shows."""
    sentences = []
    if parent := lock["parent"]:
        what, problems = (
            ("replication", "on problems and with seeds that are drawn after this lock")
            if parent.get("fresh")
            else ("reproduction", "on the same held-out problems")
        )
        sentences.append(
            f"This is a {what} of {parent['name']} (lock {parent['lock']}), whose results were known, {problems}."
        )
    if amends := lock.get("amends"):
        progress = amends.get("seen", {})
        facts = [f"{name}: {_format_fact(value)}" for name, value in progress.items()]
        sentences.append(
            f"This amends {amends['name']} (lock {amends['lock']}). Reason: {one_line(amends['reason'])} What "
            f"had been seen of it: {'; '.join(facts) or 'nothing'}."
        )
        if amends.get("after_claim"):
            sentences.append(
                "It was amended after its held-out problems were claimed, so the verdict can only be DEVIATED."
            )
    sentences += [
        f"The lanes of {arm} are records of {entry['name']} (lock {entry['lock']}), "
        + ("which was not sealed" if entry["seal"] is None else "which had been sealed")
        + " when this was locked."
        for arm, entry in _list_cited(lock).items()
    ]
    sentences += previously_opened.describe_opened(lock)
    if previously_opened.describe_reuse(lock):
        sentences.append("The verdict can therefore not be CONFIRMED or REFUTED: what the rule decides is RE-USED.")
    sentences += previously_opened.describe_shared_clusters(lock)
    for model, weights in lock["weights"].items():
        if used := sorted(name for name in weights if name.startswith("statistics-")):
            sentences.append(f"Statistics of {model} had been measured on other problems or texts: {_join(used)}.")
    sentences += describe_prior_knowledge(lock)
    return [
        *sentences,
        *_trial_runs(
            None if outside_runs.is_outside(lock) else lock["checks"].get("same_kept"), _content(lock)["arms"]
        ),
        "No lock can show what its author ran in private beforehand.",
    ]


def describe_prior_knowledge(lock: Mapping[str, Any]) -> list[str]:
    """Say which answers registering read, which problems were encrypted, and where the others are from."""
    sentences = [
        f"The known answers of {task} ({check['confirm']} held out) were read to verify that the grader "
        f"recognises each of them; no model was run on them."
        for task, check in lock["checks"].get("golds", {}).items()
    ]
    if encrypted := [task for task, data in lock["data"].items() if isinstance(data, dict)]:
        sentences.append(
            f"The held-out problems of {', '.join(encrypted)} were encrypted with somebody's public key when "
            "this was locked; no lock can show whether the author had read them before."
        )
    files = {task["name"] for task in lock["protocol"]["content"]["tasks"] if "file" in task}
    if outside_runs.is_outside(lock):
        return [*sentences, *(f"{clause[0].upper()}{clause[1:]}" for clause in outside_runs.describe_pools(lock))]
    if author_files := [task for task in lock["data"] if task in files]:
        sentences.append(
            f"The problems of {', '.join(author_files)} are in a file of the author's: whoever wrote it knew "
            "all problems and their answers, and could tell from their ids which of them are held out."
        )
    if published := [task for task in lock["data"] if task not in files]:
        sentences.append(
            f"The problems of {', '.join(published)} are published, and a model may have been trained on them."
        )
    return sentences


def _trial_runs(record: Mapping[str, Any] | None, ran_as: Mapping[str, Any]) -> list[str]:
    """Return which arms were run while locking, and what was observed."""
    if record is None:
        return ["Locking ran no model."]
    ran = "; ".join(f"for {model}, {runs}" for model, runs in record["on"].items())
    sentences = [f"{sentence[0].upper()}{sentence[1:]}." for sentence in same_retained_slots.describe_pairs(record)]
    sentences = sentences or ["No two arms kept the same slots."]
    left = record.get("left_out", [])
    if presses := [arm for arm in left if "press" in ran_as.get(arm, {})]:
        sentences.append(f"Not run there, since a press does not report which slots it keeps: {_join(presses)}.")
    if left_out := [arm for arm in left if arm not in presses]:
        sentences.append(f"Not run, since statistics of a model are missing: {_join(left_out)}.")
    return [
        "Locking ran the arms on a few development problems, to see which of them keep the same slots. The "
        f"models that ran: {ran}.",
        *sentences,
    ]


def _describe_full_shares(lock: Mapping[str, Any]) -> str:
    if not lock.get(full_cache_use.FIELD):
        return ""
    is_reproduction = lock["parent"] and not lock["parent"].get("fresh")
    when = "its parent" if is_reproduction else "it"
    return (
        '; "of full": share of the slots that the full cache held at the end of an answer (or where the '
        f"task's limit of new tokens cut it), mean over the development problems, measured when {when} was "
        "locked"
    )


def has_prior_records(lock: Mapping[str, Any]) -> bool:
    """Return whether records of the same held-out problems existed when this was locked."""
    progress = (lock.get("amends") or {}).get("seen", {})
    parent = lock["parent"] or {"fresh": True}
    records = not parent.get("fresh") or progress.get("records") or progress.get("verdict")
    is_cited = any(entry["seal"] is not None for entry in _list_cited(lock).values())
    return bool(records or lock.get("opened") or is_cited)


def exploratory(lock: Mapping[str, Any]) -> list[str]:
    decision = _decision(lock)
    sentences = []
    if further_arms := decision.get("beside"):
        sentences.append(
            f"Outside the rule and its family, {decision['subject']} is also compared with "
            f"{_join(further_arms)}, at a separate Bonferroni level."
        )
    if decision.get("memory") == "slots":
        sentences.append(
            "Where arms do not match in memory, accuracy is interpolated to equal slots. This has no "
            "influence on the verdict."
        )
    return [*sentences, "Everything else that is computed from the records is exploratory and gets no verdict."]


def frozen_items(lock: Mapping[str, Any], digest: str) -> list[str]:
    """Return what the lock freezes, and the digest by which it is cited."""
    environment = lock["environment"]
    return [
        f"Registration {lock['name']}; SHA-256 of its lock {digest}, of its protocol.toml "
        f"{lock['protocol']['sha256']}.",
        f"Frozen by digest: {len(lock['sources'])} source files (sources.zip, or sources.tar.xz where studies share "
        f"them), the split manifests, the data, {sum(map(len, lock['weights'].values()))} files of the models, "
        f"and an environment of {len(environment.get('distributions', {}))} installed packages on Python "
        f"{environment.get('python')}.",
    ]


def ledger_history(entries: Sequence[Entry]) -> list[str]:
    """Return the events in the ledger, with times of the author's clock, which prove nothing."""
    return [
        f"{entry.time} {entry.event}{_format_body(entry)}"
        for entry in entries
        if entry.event not in ("held-out", "probed", *(instrument.end_event for instrument in INSTRUMENTS))
    ]


def _format_body(entry: Entry) -> str:
    facts = [f"{name} {entry.body[name]}" for name in ("number", "records", "reason") if name in entry.body]
    return f" ({', '.join(map(one_line, facts))})" if facts else ""


def _format_fact(value: Any) -> str:
    match value:
        case None | False:
            return "no"
        case True:
            return "yes"
        case Mapping():
            return ", ".join(f"{count} {name}" for name, count in value.items())
        case _:
            return str(value)


def _content(lock: Mapping[str, Any]) -> Mapping[str, Any]:
    content: Mapping[str, Any] = lock["protocol"]["content"]
    return content


def _decision(lock: Mapping[str, Any]) -> Mapping[str, Any]:
    decision: Mapping[str, Any] = _content(lock)["decision"]
    return decision


def _join(words: Iterable[Any]) -> str:
    return ", ".join(map(str, words))

"""The sections of a report, from the files of a judged registration."""

import json
from collections.abc import Mapping
from typing import Any

from analysis.output import headline
from analysis.rules import RULES, full_cache
from analysis.studies import arms, namesakes, opened
from figures.canvas import numbers
from figures.html import glossary, report_tables
from figures.html.answer import answer
from figures.html.finished import Finished
from figures.html.markup import Html, Number, element, facts, items, sentences, table

__all__ = ["deviations", "heading", "protocol", "provenance", "sensitivity", "tested", "verdict_line"]


def heading(files: Finished) -> Html:
    """Render title, question, its answer and the verdict line."""
    judged, content = files.judged, files.study.lock["protocol"]["content"]
    question = content.get("question", "")
    return Html(
        element("p", f"Registration {judged['name']}", class_="pale")
        + element("h1", judged["title"])
        + (element("p", question, class_="question") if question else "")
        + element("p", answer(judged, content["decision"]), class_="answer")
        + verdict_line(judged)
    )


def verdict_line(judged: Mapping[str, Any]) -> Html:
    said = numbers.word(judged).removeprefix(judged["verdict"])
    rest = f"{said} · {numbers.grade(judged['label'])} · {judged['witness']}"
    return element("p", element("strong", judged["verdict"]), rest, class_="verdict")


def tested(files: Finished) -> Html:
    """Render the rule, the meaning of its verdict, what it proves and what it does not."""
    judged = files.judged
    return Html(
        sentences(
            f"Registered {numbers.verdict_line(judged)}.",
            f"{judged['verdict']}: {glossary.VERDICTS[judged['verdict']]}",
            f"The rule alone says {judged['rule_says']}." if "rule_says" in judged else "",
            RULES[judged["rule"]].words.meaning,
            f"{gate[0].upper()}{gate[1:]}." if (gate := full_cache.word(judged)) else glossary.PASSED,
            _chosen(judged),
            *(words for begins, words in glossary.GRADES.items() if judged["label"].startswith(begins)),
            glossary.ALONE if headline.alone(judged) else "",
            glossary.UNPROVEN if judged["witness"] == numbers.WITNESS else glossary.PROVEN,
        )
        + element("h3", "Proves")
        + items(judged["proves"] or ["Nothing."])
        + element("h3", "Does not prove")
        + items(judged["does_not_prove"] or ["Nothing is said."])
    )


def sensitivity(files: Finished) -> Html:
    """Render the analyses that were not registered next to the registered one."""
    judged, lanes = files.judged, files.study.lanes
    counts = ", ".join(f"{name} {count}" for name, count in report_tables.passing(judged).items())
    parts = [
        sentences(
            f"Of {judged['family']} registered contrasts, these have p at or below "
            f"{numbers.level(judged['corrected_alpha'])}, by method (Holm, max-t: adjusted p at or below "
            f"{numbers.level(judged['alpha'])}): {counts}. Only {judged['method']}, as registered, decides."
        ),
        report_tables.methods(judged),
    ]
    beside = judged.get("beside", {"contrasts": [], "auxiliary": []})
    every = [*judged["contrasts"], *beside["contrasts"], *beside["auxiliary"]]
    if any("isocache" in one for one in every):
        parts.append(report_tables.isocache([one for one in every if "isocache" in one]))
    if beside["contrasts"]:
        correction = numbers.correction(judged["method"], beside)
        caption = f"Beside the rule: {beside['family']} contrasts, {correction} over these alone"
        parts.append(report_tables.contrasts(caption, beside["contrasts"]))
    if beside["auxiliary"]:
        caption = "Auxiliary: comparators against the arms beside, not corrected"
        parts.append(report_tables.contrasts(caption, beside["auxiliary"]))
    read = int(lanes["disagrees"].notna().sum())
    again = files.again
    parts.append(
        sentences(
            f"Second grader: disagrees on {int(lanes['disagrees'].sum())} of {read} graded lanes."
            if read
            else "Second grader: none read these answers.",
            f"A/A: the probe ran one arm twice; {again.differ} of {again.lanes} pairs of grades differ."
            if again
            else "A/A: no probe ran an arm twice.",
        )
    )
    return Html("".join(parts))


def deviations(files: Finished) -> Html:
    """Render amendments, exclusions, lanes without a grade, and every ledger entry."""
    judged, lock = files.judged, files.study.lock
    return Html(
        _amends(lock)
        + _excluded(judged, lock["protocol"]["content"])
        + _missing(judged["missing"])
        + _commit(lock)
        + _acts(files)
    )


def provenance(files: Finished) -> Html:
    """Render the digests that identify the study."""
    lock = files.study.lock
    place = f"{'replications' if lock.get('parent') else 'registrations'}/{lock['name']}"
    environment = lock["environment"]
    torch = environment.get("torch", {})
    seal, last = files.seal, files.acts[-1]
    late = files.claim.get("randomness")
    author = f"author-chosen seeds ({_listed(lock['protocol']['content'].get('seeds', []))})"
    parent = lock.get("parent")
    pairs = [
        *((f"SHA-256 of {name}", digest) for name, digest in files.digests.items()),
        ("SHA-256 of protocol.toml", lock["protocol"]["sha256"]),
        ("SHA-256 of sources.zip", lock["bundle"]),
        ("Rule", f"{lock['rule']['name']}, {lock['rule']['source']}, {lock['rule']['sha256']}"),
        ("Outcome", seal["outcome"]),
        ("Sealed records", f"{_counts(seal['found'])}; {seal['expected']} registered"),
        ("Ledger", f"{len(files.acts)} lines, head {last['sha256']}"),
        ("Opened before", _opened(lock)),
        ("Names", " ".join(f"{said}." for said in namesakes.words(lock)) or "as the papers have them"),
        *(("Asked", f"{said}.") for said in arms.asked(lock)),
        ("Replicates", f"{parent['name']} ({parent['lock']})" if parent else "nothing"),
        ("Seeds", _plain(late) if late else author),
        ("Commit", (lock.get("git") or {}).get("commit", "none named in the lock")),
        ("Source files locked", str(len(lock["sources"]))),
        ("Weights locked", _listed(f"{model} ({len(own)} files)" for model, own in lock["weights"].items())),
        (
            "Environment",
            f"{environment['implementation']} {environment['python']}, {environment['system']} "
            f"{environment['machine']}, torch {torch.get('version', 'none')} on {torch.get('device', '?')}; "
            f"{len(environment['distributions'])} distributions",
        ),
        ("Proofs", f"kv-prereg anchor {place}"),
        ("Verify", f"kv-prereg audit {place}"),
        ("Replicate", f"kv-prereg replicate {place}"),
    ]
    return Html(
        facts("What this study is", pairs)
        + sentences(
            "This page repeats what the files say. Whether they verify, whether the records give this "
            "verdict and whether the proofs hold is for the audit, which needs neither a GPU nor torch."
        )
        + element("h3", "What registering found that the rule can see")
        + element("pre", _indented(lock["checks"]))
    )


def protocol(files: Finished) -> Html:
    """Render the protocol as it was locked."""
    if files.protocol is not None:
        return element("pre", files.protocol)
    return Html(
        sentences("protocol.toml is not here as it was locked. This is its content in the lock.")
        + element("pre", _indented(files.study.lock["protocol"]["content"]))
    )


def _opened(lock: Mapping[str, Any]) -> str:
    """Return which held-out problems were already opened when the study was locked."""
    if "opened" not in lock:
        return "not asked"
    return " ".join(opened.words(lock)) or "no held-out problem, by another registration of the repository"


def _chosen(judged: Mapping[str, Any]) -> str:
    if "selected" not in judged:
        return ""
    subject, chosen = judged["contrasts"][0]["subject"], judged["selected"]
    return f"{subject} is {chosen['arm']} ({arms.words(chosen)}), selected on the development problems."


def _amends(lock: Mapping[str, Any]) -> Html:
    about = lock.get("amends")
    if not about:
        return sentences("Amendments: this registration amends no other.")
    when = "after a claim on held-out problems" if about["after_claim"] else "before any claim"
    rows = [
        [one["path"], *(_plain(one[side]) if side in one else "absent" for side in ("was", "is"))]
        for one in about["diff"]
    ]
    return Html(
        sentences(
            f"Amendments: this registration amends {about['name']} ({about['lock']}), {when}. "
            f"Reason given: {about['reason']}",
            f"Seen of {about['name']} by then: {_plain(about['seen'])}",
        )
        + table("What the amendment changed", ("path", "was", "is"), rows)
    )


def _excluded(judged: Mapping[str, Any], content: Mapping[str, Any]) -> Html:
    if "excluded" not in judged:
        return sentences("Exclusions: none was registered.")
    rows = [
        [one["model"], one["task"], Number.of(one["problems"]), str(one["of"])] for one in judged["excluded"]
    ]
    return Html(
        sentences(f"Exclusions, as registered: {_plain(content.get('exclude', {}))}")
        + table("Problems excluded", ("model", "task", "excluded", "of"), rows)
    )


def _missing(missing: Mapping[str, Any]) -> Html:
    said = sentences(
        f"Missing: {missing['lanes']} of {missing['registered']} registered lanes have no grade; the "
        f"registered rule for such a lane is {missing['rule']}."
    )
    if not missing["cells"]:
        return said
    heads = ("model", "task", "budget", "arm", "seed", "ended", "lanes")
    rows: list[list[str | Number]] = [
        [*(str(one[name]) for name in heads[:-1]), Number.of(one["lanes"])] for one in missing["cells"]
    ]
    return Html(said + table("Lanes without a grade", heads, rows))


def _commit(lock: Mapping[str, Any]) -> Html:
    differs = (lock.get("git") or {}).get("differs", [])
    if not differs:
        return Html("")
    return sentences(f"Locked source files that the named commit holds otherwise: {_listed(differs)}.")


def _acts(files: Finished) -> Html:
    events = [one["event"] for one in files.acts]
    attempts, probes, reads = (events.count(name) for name in ("attempt", "probe", "held-out"))
    rows: list[list[str | Number]] = [
        [Number.of(one["index"]), one["event"], _said(one["body"]), one["time"]] for one in files.acts
    ]
    return Html(
        sentences(
            f"Attempts to confirm: {attempts}, of which {max(0, attempts - 1)} aborted and were resumed. "
            f"Probes of development problems: {probes}. Reads of held-out problems: {reads}.",
            "Withdrawals: none; a registration that was judged cannot be withdrawn."
            if "withdraw" not in events
            else "Withdrawn: see the ledger.",
        )
        + table(
            "The ledger: every act, in order. Times are this machine's clock and prove nothing.",
            ("line", "event", "what", "time"),
            rows,
        )
    )


def _said(body: Mapping[str, Any]) -> str:
    return "; ".join(f"{name} {_plain(value)}" for name, value in sorted(body.items()))


def _counts(lanes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(lanes.items()))


def _listed(values: Any) -> str:
    return ", ".join(str(value) for value in values)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _indented(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=2)

"""The sections of a report, from the files of a judged registration."""

import json
from collections.abc import Mapping
from typing import Any

from analysis.judgement import arm_text, policy_namesakes, previously_opened
from analysis.rules import RULES, full_cache_gate, judged_numbers, verdict_line
from figures.drawing import formatting
from figures.report_page import glossary, report_tables
from figures.report_page.answer import format_answer
from figures.report_page.judged_study import JudgedStudy
from figures.report_page.markup import Html, NumberCell, bullet_list, element, facts_table, paragraphs, table

__all__ = [
    "render_deviations",
    "render_heading",
    "render_protocol",
    "render_provenance",
    "render_sensitivity",
    "render_test",
    "render_verdict_line",
]


def render_heading(files: JudgedStudy) -> Html:
    """Render title, question, its answer and the verdict line."""
    judged, content = files.judged, files.study.lock["protocol"]["content"]
    question = content.get("question", "")
    return Html(
        element("p", f"Registration {judged['name']}", class_="pale")
        + element("h1", judged["title"])
        + (element("p", question, class_="question") if question else "")
        + element("p", format_answer(judged, content["decision"]), class_="answer")
        + render_verdict_line(judged)
    )


def render_verdict_line(judged: Mapping[str, Any]) -> Html:
    verdict_suffix = formatting.verdict_text(judged).removeprefix(judged["verdict"])
    rest = f"{verdict_suffix} · {formatting.sample_grade(judged['label'])} · {judged['witness']}"
    return element("p", element("strong", judged["verdict"]), rest, class_="verdict")


def render_test(files: JudgedStudy) -> Html:
    """Render the rule, the meaning of its verdict, what it proves and what it does not."""
    judged = files.judged
    return Html(
        paragraphs(
            f"Registered {formatting.rule_line(judged)}.",
            f"{judged['verdict']}: {glossary.VERDICTS[judged['verdict']]}",
            f"The rule alone says {judged['rule_says']}." if "rule_says" in judged else "",
            RULES[judged["rule"]].text.meaning,
            f"{gate[0].upper()}{gate[1:]}."
            if (gate := full_cache_gate.describe_gate(judged))
            else glossary.GATE_PASSED,
            _format_selection(judged),
            *(meaning for begins, meaning in glossary.GRADES.items() if judged["label"].startswith(begins)),
            glossary.SINGLE_MODEL if verdict_line.format_single_model(judged) else "",
            glossary.UNPROVEN if judged["witness"] == formatting.WITNESS else glossary.PROVEN,
        )
        + element("h3", "Proves")
        + bullet_list(judged["proves"] or ["Nothing."])
        + element("h3", "Does not prove")
        + bullet_list(judged["does_not_prove"] or ["Nothing is said."])
    )


def render_sensitivity(files: JudgedStudy) -> Html:
    """Render the analyses that were not registered next to the registered one."""
    judged, lanes = files.judged, files.study.lanes
    counts = ", ".join(f"{name} {count}" for name, count in report_tables.count_passing(judged).items())
    parts = [
        paragraphs(
            f"Of {judged['family']} registered contrasts, these have p at or below "
            f"{judged_numbers.format_level(judged['corrected_alpha'])}, by method (Holm, max-t: adjusted p at or "
            f"below {judged_numbers.format_level(judged['alpha'])}): {counts}. Only {judged['method']}, as "
            "registered, decides."
        ),
        report_tables.methods_table(judged),
    ]
    supplementary = judged.get("beside", {"contrasts": [], "auxiliary": []})
    all_contrasts = [*judged["contrasts"], *supplementary["contrasts"], *supplementary["auxiliary"]]
    if any("isocache" in contrast for contrast in all_contrasts):
        parts.append(report_tables.isocache_table([contrast for contrast in all_contrasts if "isocache" in contrast]))
    if supplementary["contrasts"]:
        correction = formatting.format_correction(judged["method"], supplementary)
        caption = f"Beside the rule: {supplementary['family']} contrasts, {correction} over these alone"
        parts.append(report_tables.contrasts_table(caption, supplementary["contrasts"]))
    if supplementary["auxiliary"]:
        caption = "Auxiliary: comparators against the arms beside, not corrected"
        parts.append(report_tables.contrasts_table(caption, supplementary["auxiliary"]))
    graded_twice = int(lanes["disagrees"].notna().sum())
    repeats = files.repeats
    parts.append(
        paragraphs(
            f"Second grader: disagrees on {int(lanes['disagrees'].sum())} of {graded_twice} graded lanes."
            if graded_twice
            else "Second grader: none read these answers.",
            f"A/A: the probe ran one arm twice; {repeats.differing} of {repeats.lanes} pairs of grades differ."
            if repeats
            else "A/A: no probe ran an arm twice.",
        )
    )
    return Html("".join(parts))


def render_deviations(files: JudgedStudy) -> Html:
    """Render amendments, exclusions, lanes without a grade, and every ledger entry."""
    judged, lock = files.judged, files.study.lock
    return Html(
        _render_amendment(lock)
        + _render_exclusions(judged, lock["protocol"]["content"])
        + _render_missing(judged["missing"])
        + _render_commit(lock)
        + _render_ledger(files)
    )


def render_provenance(files: JudgedStudy) -> Html:
    """Render the digests that identify the study."""
    lock = files.study.lock
    folder = f"{'replications' if lock.get('parent') else 'registrations'}/{lock['name']}"
    environment = lock["environment"]
    torch = environment.get("torch", {})
    seal, last = files.seal, files.ledger[-1]
    randomness = files.claim.get("randomness")
    author_seeds = f"author-chosen seeds ({_join_values(lock['protocol']['content'].get('seeds', []))})"
    parent = lock.get("parent")
    pairs = [
        *((f"SHA-256 of {name}", digest) for name, digest in files.digests.items()),
        ("SHA-256 of protocol.toml", lock["protocol"]["sha256"]),
        ("SHA-256 of sources.zip", lock["bundle"]),
        ("Rule", f"{lock['rule']['name']}, {lock['rule']['source']}, {lock['rule']['sha256']}"),
        ("Outcome", seal["outcome"]),
        ("Sealed records", f"{_format_counts(seal['found'])}; {seal['expected']} registered"),
        ("Ledger", f"{len(files.ledger)} lines, head {last['sha256']}"),
        ("Opened before", _format_opened(lock)),
        (
            "Names",
            " ".join(f"{message}." for message in policy_namesakes.describe_namesakes(lock))
            or "as the papers have them",
        ),
        *(("Asked", f"{message}.") for message in arm_text.extra_prompt_sentences(lock)),
        ("Replicates", f"{parent['name']} ({parent['lock']})" if parent else "nothing"),
        ("Seeds", _format_value(randomness) if randomness else author_seeds),
        ("Commit", (lock.get("git") or {}).get("commit", "none named in the lock")),
        ("Source files locked", str(len(lock["sources"]))),
        (
            "Weights locked",
            _join_values(f"{model} ({len(weight_files)} files)" for model, weight_files in lock["weights"].items()),
        ),
        (
            "Environment",
            f"{environment['implementation']} {environment['python']}, {environment['system']} "
            f"{environment['machine']}, torch {torch.get('version', 'none')} on {torch.get('device', '?')}; "
            f"{len(environment['distributions'])} distributions",
        ),
        ("Proofs", f"kv-prereg anchor {folder}"),
        ("Verify", f"kv-prereg audit {folder}"),
        ("Replicate", f"kv-prereg replicate {folder}"),
    ]
    return Html(
        facts_table("What this study is", pairs)
        + paragraphs(
            "This page repeats what the files say. Whether they verify, whether the records give this "
            "verdict and whether the proofs hold is for the audit, which needs neither a GPU nor torch."
        )
        + element("h3", "What registering found that the rule can see")
        + element("pre", _format_json(lock["checks"]))
    )


def render_protocol(files: JudgedStudy) -> Html:
    """Render the protocol as it was locked."""
    if files.protocol is not None:
        return element("pre", files.protocol)
    return Html(
        paragraphs("protocol.toml is not here as it was locked. This is its content in the lock.")
        + element("pre", _format_json(files.study.lock["protocol"]["content"]))
    )


def _format_opened(lock: Mapping[str, Any]) -> str:
    """Return which held-out problems were already opened when the study was locked."""
    if "opened" not in lock:
        return "not asked"
    return (
        " ".join(previously_opened.describe_opened(lock))
        or "no held-out problem, by another registration of the repository"
    )


def _format_selection(judged: Mapping[str, Any]) -> str:
    if "selected" not in judged:
        return ""
    subject, chosen = judged["contrasts"][0]["subject"], judged["selected"]
    return f"{subject} is {chosen['arm']} ({arm_text.describe_arm(chosen)}), selected on the development problems."


def _render_amendment(lock: Mapping[str, Any]) -> Html:
    amendment = lock.get("amends")
    if not amendment:
        return paragraphs("Amendments: this registration amends no other.")
    when = "after a claim on held-out problems" if amendment["after_claim"] else "before any claim"
    rows = [
        [change["path"], *(_format_value(change[side]) if side in change else "absent" for side in ("was", "is"))]
        for change in amendment["diff"]
    ]
    return Html(
        paragraphs(
            f"Amendments: this registration amends {amendment['name']} ({amendment['lock']}), {when}. "
            f"Reason given: {amendment['reason']}",
            f"Seen of {amendment['name']} by then: {_format_value(amendment['seen'])}",
        )
        + table("What the amendment changed", ("path", "was", "is"), rows)
    )


def _render_exclusions(judged: Mapping[str, Any], content: Mapping[str, Any]) -> Html:
    if "excluded" not in judged:
        return paragraphs("Exclusions: none was registered.")
    rows = [
        [row["model"], row["task"], NumberCell.of_count(row["problems"]), str(row["of"])] for row in judged["excluded"]
    ]
    return Html(
        paragraphs(f"Exclusions, as registered: {_format_value(content.get('exclude', {}))}")
        + table("Problems excluded", ("model", "task", "excluded", "of"), rows)
    )


def _render_missing(missing: Mapping[str, Any]) -> Html:
    summary = paragraphs(
        f"Missing: {missing['lanes']} of {missing['registered']} registered lanes have no grade; the "
        f"registered rule for such a lane is {missing['rule']}."
    )
    if not missing["cells"]:
        return summary
    heads = ("model", "task", "budget", "arm", "seed", "ended", "lanes")
    rows: list[list[str | NumberCell]] = [
        [*(str(cell[name]) for name in heads[:-1]), NumberCell.of_count(cell["lanes"])] for cell in missing["cells"]
    ]
    return Html(summary + table("Lanes without a grade", heads, rows))


def _render_commit(lock: Mapping[str, Any]) -> Html:
    differing = (lock.get("git") or {}).get("differs", [])
    if not differing:
        return Html("")
    return paragraphs(f"Locked source files that the named commit holds otherwise: {_join_values(differing)}.")


def _render_ledger(files: JudgedStudy) -> Html:
    events = [entry["event"] for entry in files.ledger]
    attempts, probes, held_out_reads = (events.count(name) for name in ("attempt", "probe", "held-out"))
    rows: list[list[str | NumberCell]] = [
        [NumberCell.of_count(entry["index"]), entry["event"], _format_body(entry["body"]), entry["time"]]
        for entry in files.ledger
    ]
    return Html(
        paragraphs(
            f"Attempts to confirm: {attempts}, of which {max(0, attempts - 1)} aborted and were resumed. "
            f"Probes of development problems: {probes}. Reads of held-out problems: {held_out_reads}.",
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


def _format_body(body: Mapping[str, Any]) -> str:
    return "; ".join(f"{name} {_format_value(value)}" for name, value in sorted(body.items()))


def _format_counts(lanes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(lanes.items()))


def _join_values(values: Any) -> str:
    return ", ".join(str(value) for value in values)


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _format_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=2)

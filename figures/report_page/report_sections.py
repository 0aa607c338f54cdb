"""The sections of a report, from the files of a judged registration."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from analysis.judgement import arm_text, eviction_counts, outside_runs, policy_namesakes, previously_opened
from analysis.rules import RULES, full_cache_gate, verdict_line
from figures.drawing import formatting
from figures.report_page import glossary, index_cards, report_tables
from figures.report_page.judged_study import JudgedStudy
from figures.report_page.rendering import Cell, NumberCell, format_value, render, table


def render_verdict_line(judged: Mapping[str, Any]) -> Markup:
    verdict_suffix = formatting.verdict_text(judged).removeprefix(judged["verdict"])
    rest = f"{verdict_suffix} · {formatting.sample_text(judged)} · {judged['witness']}"
    remarks = verdict_line.list_remarks(judged)
    # A colour would say more than a word with a reservation does.
    colour = "reserved" if judged.get("qualifiers") else judged["verdict"].lower()
    icon = index_cards.render_badge(judged["verdict"], "")
    return render("verdict_line.html", verdict=judged["verdict"], icon=icon, colour=colour, rest=rest, remarks=remarks)


def render_test(files: JudgedStudy) -> Markup:
    """Render the rule, the meaning of its verdict, what it proves and what it does not."""
    judged = files.judged
    texts = [
        f"Registered {formatting.rule_line(judged)}.",
        f"{verdict_line.verdict_word(judged)}: {glossary.VERDICTS[judged['verdict']]}",
        f"The rule alone says {judged['rule_says']}."
        if "rule_says" in judged and verdict_line.printed_rule_verdict(judged)
        else "",
        RULES[judged["rule"]].text.meaning,
        f"{outside.capitalize()}, so that it excludes no contrast."
        if (outside := outside_runs.describe_outside(files.study.lock))
        else "",
        f"{gate[0].upper()}{gate[1:]}." if (gate := full_cache_gate.describe_gate(judged)) else glossary.GATE_PASSED,
        _format_selection(judged),
        *(meaning for begins, meaning in glossary.GRADES.items() if judged["label"].startswith(begins)),
        glossary.SINGLE_MODEL if verdict_line.format_single_model(judged) else "",
        glossary.UNPROVEN if judged["witness"] == formatting.WITNESS else glossary.PROVEN,
    ]
    return render("tested.html", texts=texts, proves=judged["proves"], does_not_prove=judged["does_not_prove"])


def render_cells(files: JudgedStudy) -> Markup:
    """Render the gate, what every arm reached, evicted and held, and how its lanes ended."""
    judged, lanes, rows = files.judged, files.study.lanes, files.eviction_counts
    attempts = [entry["event"] for entry in files.ledger].count("attempt")
    return render(
        "cells.html",
        gate_table=report_tables.gate_table(judged["gate"]) if judged.get("gate") else "",
        arms_table=report_tables.arms_table(judged, lanes),
        warnings=eviction_counts.eviction_warnings(rows, arm_text.altered_arms(files.study.lock)),
        evictions_table=report_tables.evictions_table(rows),
        ratios_table=report_tables.ratios_table(rows),
        ratios=[f"{name}: {ratio.text}." for name, ratio in eviction_counts.RATIOS.items()],
        states_table=report_tables.states_table(lanes, attempts),
    )


def render_sensitivity(files: JudgedStudy) -> Markup:
    """Render the analyses that were not registered next to the registered one."""
    judged, lanes = files.judged, files.study.lanes
    tables = [report_tables.methods_table(judged)]
    supplementary = judged.get("beside", {"contrasts": [], "auxiliary": []})
    all_contrasts = [*judged["contrasts"], *supplementary["contrasts"], *supplementary["auxiliary"]]
    if any("isocache" in contrast for contrast in all_contrasts):
        tables.append(report_tables.isocache_table([contrast for contrast in all_contrasts if "isocache" in contrast]))
    if supplementary["contrasts"]:
        correction = formatting.format_correction(judged["method"], supplementary)
        caption = f"Outside the rule: {supplementary['family']} contrasts, {correction} over these only"
        tables.append(report_tables.contrasts_table(caption, supplementary["contrasts"]))
    if supplementary["auxiliary"]:
        caption = "Auxiliary: comparators against the arms outside the rule, not corrected"
        tables.append(report_tables.contrasts_table(caption, supplementary["auxiliary"]))
    return render(
        "sensitivity.html",
        judged=judged,
        passing=", ".join(f"{name} {count}" for name, count in report_tables.count_passing(judged).items()),
        tables=tables,
        graded_twice=int(lanes["disagrees"].notna().sum()),
        disagreements=int(lanes["disagrees"].sum()),
        repeats=files.repeats,
        levels_table=report_tables.levels_table(files.levels),
        ranks=render("ranks.html", cells=files.ranks, level=f"{100 * (1 - float(judged['alpha'])):g} %")
        if files.ranks
        else "",
    )


def render_deviations(files: JudgedStudy) -> Markup:
    """Render amendments, exclusions, lanes without a grade, and every ledger entry."""
    judged, lock = files.judged, files.study.lock
    events = [entry["event"] for entry in files.ledger]
    return render(
        "deviations.html",
        amendment=lock.get("amends"),
        changes_table=_changes_table(lock["amends"]) if lock.get("amends") else "",
        exclude=lock["protocol"]["content"].get("exclude", {}),
        excluded_table=_excluded_table(judged["excluded"]) if "excluded" in judged else "",
        missing=judged["missing"],
        missing_table=_missing_table(judged["missing"]["cells"]),
        differing_files=(lock.get("git") or {}).get("differs", []),
        events=events,
        attempts=events.count("attempt"),
        ledger_table=_ledger_table(files.ledger),
    )


def render_provenance(files: JudgedStudy) -> Markup:
    """Render the digests that identify the study."""
    lock = files.study.lock
    folder = f"{'replications' if lock.get('parent') else 'registrations'}/{lock['name']}"
    environment = lock["environment"]
    torch = environment.get("torch", {})
    seal, last = files.seal, files.ledger[-1]
    sealed = _join_values(f"{count} {state}" for state, count in sorted(seal["found"].items()))
    randomness = files.claim.get("randomness")
    author_seeds = f"author-chosen seeds ({_join_values(lock['protocol']['content'].get('seeds', []))})"
    parent = lock.get("parent")
    facts = [
        *((f"SHA-256 of {name}", digest) for name, digest in files.digests.items()),
        ("SHA-256 of protocol.toml", lock["protocol"]["sha256"]),
        ("SHA-256 of sources.zip", lock["bundle"]),
        ("Rule", f"{lock['rule']['name']}, {lock['rule']['source']}, {lock['rule']['sha256']}"),
        ("Outcome", seal["outcome"]),
        ("Sealed records", f"{sealed}; {seal['expected']} registered"),
        ("Ledger", f"{len(files.ledger)} lines, head {last['sha256']}"),
        ("Opened before", _format_opened(lock)),
        (
            "Names",
            " ".join(f"{message}." for message in policy_namesakes.describe_namesakes(lock))
            or "as their papers define them",
        ),
        *(("Asked", f"{message}.") for message in arm_text.extra_prompt_sentences(lock)),
        (
            "Reproduces" if parent and not parent.get("fresh") else "Replicates",
            f"{parent['name']} ({parent['lock']})" if parent else "nothing",
        ),
        ("Seeds", format_value(randomness) if randomness else author_seeds),
        ("Commit", (lock.get("git") or {}).get("commit", "none named in the lock")),
        ("Locked source files", str(len(lock["sources"]))),
        (
            "Locked weights",
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
        ("Replicate", f"kv-prereg replicate {'--fresh ' if randomness else ''}{folder}"),
    ]
    return render("provenance.html", facts=facts, checks=_format_json(lock["checks"]))


def render_protocol(files: JudgedStudy) -> Markup:
    """Render the protocol as it was locked."""
    return render("protocol.html", text=files.protocol, content=_format_json(files.study.lock["protocol"]["content"]))


def _format_opened(lock: Mapping[str, Any]) -> str:
    """Return which held-out problems were already opened when the study was locked."""
    if "opened" not in lock:
        return "not recorded"
    return (
        " ".join(previously_opened.describe_opened(lock))
        or "no held-out problem was opened by another registration of this repository"
    )


def _format_selection(judged: Mapping[str, Any]) -> str:
    if "selected" not in judged:
        return ""
    subject, chosen = judged["contrasts"][0]["subject"], judged["selected"]
    return f"{subject} is {chosen['arm']} ({arm_text.describe_arm(chosen)}), selected on the development problems."


def _changes_table(amendment: Mapping[str, Any]) -> Markup:
    rows = [
        [change["path"], *(format_value(change[side]) if side in change else "absent" for side in ("was", "is"))]
        for change in amendment["diff"]
    ]
    return table("What the amendment changed", ("path", "was", "is"), rows)


def _excluded_table(excluded: Sequence[Mapping[str, Any]]) -> Markup:
    rows = [[row["model"], row["task"], NumberCell.of_count(row["problems"]), str(row["of"])] for row in excluded]
    return table("Problems excluded", ("model", "task", "excluded", "of"), rows)


def _missing_table(cells: Sequence[Mapping[str, Any]]) -> Markup:
    heads = ("model", "task", "budget", "arm", "seed", "ended", "lanes")
    rows: list[list[Cell]] = [
        [*(str(cell[name]) for name in heads[:-1]), NumberCell.of_count(cell["lanes"])] for cell in cells
    ]
    return table("Lanes without a grade", heads, rows) if rows else Markup("")


def _ledger_table(entries: Sequence[Mapping[str, Any]]) -> Markup:
    rows: list[list[Cell]] = []
    for entry in entries:
        body = "; ".join(f"{name} {format_value(value)}" for name, value in sorted(entry["body"].items()))
        rows.append([NumberCell.of_count(entry["index"]), entry["event"], body, entry["time"]])
    caption = "The ledger: every operation, in order. Times are from this machine's clock and prove nothing."
    return table(caption, ("line", "event", "what", "time"), rows)


def _join_values(values: Any) -> str:
    return ", ".join(str(value) for value in values)


def _format_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=2)

"""The report of an anatomy as text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from protocol.formats.text_tables import format_columns, wrap_paragraph

Row = Mapping[str, Any]


def format_report(findings: Row) -> Iterator[str]:
    """Yield the lines for `__main__.read_findings`, whose decimals are text."""
    yield from _format_registered_test(findings)
    for pair in findings["pairs"]:
        yield from ("", f"{pair['model']}, {pair['task']}: exploratory, both halves")
        yield from _format_traces(pair)
        if pair["rows"]:
            yield from ("", *_format_signals(pair), "", *_format_classes(pair), "", *_format_needed(pair))
        yield from ("", *_format_screening(pair))
        if pair["data_flow"]:
            yield from ("", *_format_data_flow(pair["data_flow"]))
        if pair["slip"]:
            yield from ("", *_format_slip_sets(pair["slip"]))


def _format_registered_test(findings: Row) -> Iterator[str]:
    if findings["verdict"] is None:
        yield "The registered test has not been made yet."
        return
    yield f"The registered test, one-sided at {_format_number(findings['verdict']['level'], 4)} each:"
    yield ""
    head = ("model", "task", "verdict", "signal", "layer", "sign", "units", "mean rho", "interval", "p")
    beyond = name_beyond(findings["verdict"])
    yield from format_columns((*head, beyond, "pooled rho"), map(_test_cells, findings["verdict"]["pairs"]))
    if slip_lines := [line for pair in findings["verdict"]["pairs"] for line in format_slip(pair)]:
        yield from ("", *slip_lines, "", *wrap_paragraph(SLIP_NOTE))
    yield ""
    yield from wrap_paragraph(
        "Within parts: controlling for the position in the prompt and in the written text, each with a level "
        "and a slope, so a step between the two does not count as agreement."
        if "beyond" in findings["verdict"]
        else "Beyond position controls for a straight trend, but not for a step, as where the prompt is needed "
        "and the reasoning is not. The exploratory *given part* below controls for such a step."
    )


SLIP_NOTE = (
    "SlipKV: the tokens of the thought to which the answer attends least are dropped before the answer. "
    "SPARES: more right answers stay right than when as many random tokens are dropped. REPAIRS: more wrong "
    "answers turn right. CrystalKV: as many tokens to which the answer attends most are dropped."
)


def format_slip(pair: Row) -> Iterator[str]:
    """Yield a line for the right answers of a model and task and one for the wrong, where `slip` is registered."""
    for name in ("right", "wrong") if "slip" in pair else ():
        row = pair["slip"][name]
        yield (
            f"{pair['model']}  {pair['task']}  {row['traces']} {name} answers: {row['word']}: without SlipKV "
            f"{row['bottom']} are right, by chance {row['random']}, without CrystalKV {row['top']}; "
            f"p {_format_p(row['p'])} (at {_format_number(pair['slip']['level'], 4)})"
        )


def name_beyond(verdict: Row) -> str:
    """Return what the second test of a verdict is of."""
    return "beyond position within parts" if "beyond" in verdict else "beyond position"


def _test_cells(row: Row) -> tuple[str, ...]:
    signal, layer = row["signal"] or "", "" if row["layer"] is None else str(row["layer"])
    sign = {None: "", 1: "+", -1: "-"}[row["sign"]]
    first = (row["model"], row["task"], row["word"], signal, layer, sign, str(row["units"]))
    if row["rho"] is None:
        return (*first, "", "", "", "", "")
    pooled = "" if row["pooled"] is None else _format_number(row["pooled"]["rho"])
    rho, beyond = row["rho"], row["beyond_position"]
    partial = f"{_format_number(beyond['mean'])} {beyond['word']}"
    return (
        *first,
        _format_number(rho["mean"]),
        _format_interval(rho["interval"]),
        _format_p(rho["p"]),
        partial,
        pooled,
    )


def _format_traces(pair: Row) -> Iterator[str]:
    for half, states in pair["states"].items():
        counts = ", ".join(f"{count} {state}" for state, count in states.items() if count)
        yield f"  traces of the half {half!r}: {counts or 'none'}"
    shares = pair["shares"]
    if shares["all"] is not None:
        tenths = " ".join(_format_number(share, 2) for share in shares["tenths"])
        yield f"  labels vary in {pair['varying']}; needed: {_format_number(shares['all'], 2)} of the tokens"
        yield f"  needed by tenth of the span: {tenths}"


def _format_signals(pair: Row) -> list[str]:
    head = ("signal", "layer", "units", "rho", "95 %", "Fisher, n units", "p", "given position", "p", "given part", "p")
    return format_columns((*head, "AUC", "pooled", "other reading"), map(_signal_cells, pair["rows"]))


def _signal_cells(row: Row) -> tuple[str, ...]:
    return (
        ("* " if row["survives"] else "  ") + row["signal"],
        "" if row["layer"] is None else str(row["layer"]),
        str(row["units"]),
        _format_number(row["rho"]),
        _format_interval(row["interval"]),
        _format_interval(row["fisher"]),
        _format_p(row["p"]),
        _format_number(row["partial"]) + (" *" if row["partial_survives"] else ""),
        _format_p(row["partial_p"]),
        _format_number(row["part"]) + (" *" if row["part_survives"] else ""),
        _format_p(row["part_p"]),
        _format_number(row["auc"]),
        _format_number(row["pooled"]),
        _format_number(row["other"]),
    )


def _format_classes(pair: Row) -> Iterator[str]:
    yield "* survives the correction for all rows and pairs. rho within a token class (units):"
    yield ""
    names = list(dict.fromkeys(name for row in pair["rows"] for name in row["classes"]))
    yield from format_columns(
        ("signal", "layer", *names),
        (
            (
                row["signal"],
                "" if row["layer"] is None else str(row["layer"]),
                *(f"{_format_number(row['classes'][name]['rho'])} ({row['classes'][name]['units']})" for name in names),
            )
            for row in pair["rows"]
        ),
    )


def _format_data_flow(row: Row) -> Iterator[str]:
    yield from wrap_paragraph(
        f"Data flow: {_format_number(row['needed'])} of the tokens are read after the cut, in the "
        f"{row['traces']} traces that are right up to it. This is exact and uses no signal or label."
    )
    yield ""
    for reading, shares in row["occlusion"].items():
        found, right = _format_number(shares["found"]), _format_number(shares["right"])
        yield (
            f"  occlusion, {reading}: {found} of these tokens are labelled, and {right} of the labelled tokens "
            "are among these"
        )
    yield ""
    head = ("  budget", "arm", "share kept of needed tokens", "of the others")
    cells = (
        (f"  {arm['budget']}", arm["arm"], *map(_format_number, (arm["needed"], arm["others"]))) for arm in row["arms"]
    )
    yield from format_columns(head, cells)


def _format_slip_sets(row: Row) -> Iterator[str]:
    yield from wrap_paragraph(
        f"The tokens of {row['traces']} thoughts, grouped by the attention of the answer: their share of its "
        "attention, the longest gap between two hits by the thought, the position of the last hit as a share "
        "of the remaining thought, and the share of the thought's needed tokens that belongs to each group."
    )
    yield ""
    names = {"top": "CrystalKV", "rest": "between", "bottom": "SlipKV"}
    labels = list(row["sets"]["top"]["needed"])
    head = ("  tokens", "attention", "gap", "last", *(f"needed, {label}" for label in labels))
    cells = (
        (
            f"  {title}",
            *(_format_number(row["sets"][name][part]) for part in ("share", "gap", "last")),
            *(_format_number(row["sets"][name]["needed"][label]) for label in labels),
        )
        for name, title in names.items()
        if name in row["sets"]
    )
    yield from format_columns(head, cells)


def _format_needed(pair: Row) -> Iterator[str]:
    if pair["needed"] is None:
        return
    yield from wrap_paragraph(
        "Number of traces with varying labels that gives power 0.8, at the median spread of the rows: in "
        "each half if the row must be chosen first, in the testing half only, and as EpiKV counts traces:"
    )
    yield ""
    yield from format_columns(
        ("rho", "each half", "testing half", "EpiKV"),
        (
            (rho, *("none" if row[name] is None else f"{row[name]:,}" for name in ("each_half", "testing", "fisher")))
            for rho, row in pair["needed"].items()
        ),
    )


def _format_screening(pair: Row) -> Iterator[str]:
    screening = pair["screening"]
    yield "Does the kept share of the needed tokens predict whether the answer is right?"
    yield ""
    problems = screening["problems"]
    yield f"  traces without any needed token, left out: {screening['without']}"
    yield f"  over problems (logistic, by estimating equations): {problems['state']}"
    for name, scope in (("within", "among arms at one trace and budget"), ("between", "among traces")):
        if problems.get(name):
            row = problems[name]
            yield f"    log odds for keeping a tenth more, {scope}: {_format_estimate(row)}"
    if problems["slope"]:
        yield f"    change of the probability of a right answer for a tenth more: {_format_estimate(problems['slope'])}"
    for row in screening["policies"]:
        yield ""
        rho = f"{_format_number(row['rho_kept'])} {_format_interval(row['interval_kept'])}"
        yield f"  budget {row['budget']}: over policies rho {rho}"
        head = ("    arm", "needed kept", "AUC", "accuracy", "traces")
        yield from format_columns(head, map(_arm_cells, row["arms"]))
    for row in screening["held_out"] or ():
        label = f"budget {row['budget']}: with the held-out accuracy of {row['arms']} arms"
        yield f"  {label}: rho {_format_number(row['rho'])}"


def _arm_cells(row: Row) -> tuple[str, ...]:
    numbers = (_format_number(row[name]) for name in ("kept", "auc", "accuracy"))
    return ("    " + row["arm"], *numbers, str(row["traces"]))


def _format_estimate(row: Row) -> str:
    return f"{_format_number(row['value'])} {_format_interval(row['interval'])}"


def _format_number(decimal: str | None, digits: int = 3) -> str:
    return "-" if decimal is None else f"{float(decimal):.{digits}f}"


def _format_p(decimal: str | None) -> str:
    if decimal is None:
        return "-"
    return "<.0001" if float(decimal) < 0.0001 else f"{float(decimal):.4f}"


def _format_interval(interval: Sequence[str] | None) -> str:
    return "" if interval is None else f"[{_format_number(interval[0])}, {_format_number(interval[1])}]"

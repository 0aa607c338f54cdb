"""The report of an anatomy as text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.output.told import columns, paragraph

__all__ = ["lines"]

Row = Mapping[str, Any]


def lines(made: Row) -> Iterator[str]:
    """Yield the lines for `__main__.read_findings`, whose decimals are text."""
    yield from _registered(made)
    for pair in made["pairs"]:
        yield from ("", f"{pair['model']}, {pair['task']}: exploratory, both halves")
        yield from _traces(pair)
        if pair["rows"]:
            yield from ("", *_signals(pair), "", *_classes(pair), "", *_needed(pair))
        yield from ("", *_screening(pair))


def _registered(made: Row) -> Iterator[str]:
    if made["verdict"] is None:
        yield "The registered test was not made yet."
        return
    yield f"The registered test, one-sided at {_short(made['verdict']['level'], 4)} each:"
    yield ""
    head = ("model", "task", "verdict", "signal", "layer", "sign", "units", "mean rho", "interval", "p")
    yield from columns((*head, "beyond position", "pooled rho"), map(_test, made["verdict"]["pairs"]))
    yield ""
    yield from paragraph(
        "Beyond position holds a straight trend. It does not hold a step, as where the prompt is needed and "
        "the reasoning is not: *given part* below does, exploratory."
    )


def _test(row: Row) -> tuple[str, ...]:
    signal, layer = row["signal"] or "", "" if row["layer"] is None else str(row["layer"])
    sign = {None: "", 1: "+", -1: "-"}[row["sign"]]
    first = (row["model"], row["task"], row["word"], signal, layer, sign, str(row["units"]))
    if row["rho"] is None:
        return (*first, "", "", "", "", "")
    pooled = "" if row["pooled"] is None else _short(row["pooled"]["rho"])
    rho, beyond = row["rho"], row["beyond_position"]
    partial = f"{_short(beyond['mean'])} {beyond['word']}"
    return (*first, _short(rho["mean"]), _ends(rho["interval"]), _p(rho["p"]), partial, pooled)


def _traces(pair: Row) -> Iterator[str]:
    for half, states in pair["states"].items():
        counted = ", ".join(f"{count} {state}" for state, count in states.items() if count)
        yield f"  traces of the half {half!r}: {counted or 'none'}"
    shares = pair["shares"]
    if shares["all"] is not None:
        tenths = " ".join(_short(one, 2) for one in shares["tenths"])
        yield f"  labels vary in {pair['varying']}; needed: {_short(shares['all'], 2)} of the tokens"
        yield f"  needed by tenth of the span: {tenths}"


def _signals(pair: Row) -> list[str]:
    head = (
        "signal",
        "layer",
        "units",
        "rho",
        "95 %",
        "Fisher, n units",
        "p",
        "given position",
        "p",
        "given part",
        "p",
    )
    return columns((*head, "AUC", "pooled", "other reading"), map(_signal, pair["rows"]))


def _signal(row: Row) -> tuple[str, ...]:
    return (
        ("* " if row["survives"] else "  ") + row["signal"],
        "" if row["layer"] is None else str(row["layer"]),
        str(row["units"]),
        _short(row["rho"]),
        _ends(row["interval"]),
        _ends(row["fisher"]),
        _p(row["p"]),
        _short(row["partial"]) + (" *" if row["partial_survives"] else ""),
        _p(row["partial_p"]),
        _short(row["part"]) + (" *" if row["part_survives"] else ""),
        _p(row["part_p"]),
        _short(row["auc"]),
        _short(row["pooled"]),
        _short(row["other"]),
    )


def _classes(pair: Row) -> Iterator[str]:
    yield "* survives the correction for all rows and pairs. rho within a token class (units):"
    yield ""
    names = list(dict.fromkeys(name for row in pair["rows"] for name in row["classes"]))
    yield from columns(
        ("signal", "layer", *names),
        (
            (
                row["signal"],
                "" if row["layer"] is None else str(row["layer"]),
                *(
                    f"{_short(row['classes'][name]['rho'])} ({row['classes'][name]['units']})"
                    for name in names
                ),
            )
            for row in pair["rows"]
        ),
    )


def _needed(pair: Row) -> Iterator[str]:
    if pair["needed"] is None:
        return
    yield from paragraph(
        "Traces with varying labels for power 0.8, with the median spread of the rows: in each half where "
        "the row must be chosen first, in the testing half alone, and as EpiKV counts them:"
    )
    yield ""
    yield from columns(
        ("rho", "each half", "testing half", "EpiKV"),
        (
            (
                rho,
                *(
                    "none" if row[name] is None else f"{row[name]:,}"
                    for name in ("each_half", "testing", "fisher")
                ),
            )
            for rho, row in pair["needed"].items()
        ),
    )


def _screening(pair: Row) -> Iterator[str]:
    made = pair["screening"]
    yield "Does what is kept of the needed tokens say whether the answer is right?"
    yield ""
    problems = made["problems"]
    yield f"  traces of which nothing is needed, left out: {made['without']}"
    yield f"  over problems (logistic, by estimating equations): {problems['state']}"
    for name, what in (("within", "among arms at one trace and budget"), ("between", "among traces")):
        if problems.get(name):
            row = problems[name]
            yield f"    log odds for a tenth more kept, {what}: {_level(row)}"
    if problems["slope"]:
        yield f"    chance of a right answer for a tenth more: {_level(problems['slope'])}"
    for row in made["policies"]:
        yield ""
        rho = f"{_short(row['rho_kept'])} {_ends(row['interval_kept'])}"
        yield f"  budget {row['budget']}: over policies rho {rho}"
        head = ("    arm", "needed kept", "AUC", "accuracy", "traces")
        yield from columns(head, map(_arm, row["arms"]))
    for row in made["held_out"] or ():
        where = f"budget {row['budget']}: with the held-out accuracy of {row['arms']} arms"
        yield f"  {where}: rho {_short(row['rho'])}"


def _arm(row: Row) -> tuple[str, ...]:
    numbers = (_short(row[name]) for name in ("kept", "auc", "accuracy"))
    return ("    " + row["arm"], *numbers, str(row["traces"]))


def _level(row: Row) -> str:
    return f"{_short(row['value'])} {_ends(row['interval'])}"


def _short(decimal: str | None, digits: int = 3) -> str:
    return "-" if decimal is None else f"{float(decimal):.{digits}f}"


def _p(decimal: str | None) -> str:
    if decimal is None:
        return "-"
    return "<.0001" if float(decimal) < 0.0001 else f"{float(decimal):.4f}"


def _ends(interval: Sequence[str] | None) -> str:
    return "" if interval is None else f"[{_short(interval[0])}, {_short(interval[1])}]"

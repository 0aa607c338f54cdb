"""Write the pages of this folder that follow from the code, and the table that kv-prereg policies reads.

python docs/generate.py           writes them all, those that git does not have (UNTRACKED) included
python docs/generate.py --check   exits 1, naming each tracked page that the code no longer gives
"""

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PACKAGES = ("protocol", "policies", "splits", "analysis", "figures", "kv_prereg", "benchmarks")
sys.path[:0] = [str(ROOT), str(HERE)]  # the tree that these pages are of, whatever is installed

from schemas import Schema, describe_field, make_schema  # noqa: E402

import kv_prereg  # noqa: E402
from analysis.hypotheses import study_outcomes, tables  # noqa: E402
from analysis.rules import RULES  # noqa: E402
from analysis.stats.methods import METHODS  # noqa: E402
from policies.catalogue import CATALOGUE  # noqa: E402
from policies.descriptions import FAMILIES  # noqa: E402
from policies.quantised.states import STATES  # noqa: E402
from protocol import tasks  # noqa: E402
from protocol.command.menu import STATUSES  # noqa: E402
from protocol.evidence import ledger, measurement_journal  # noqa: E402
from protocol.evidence.invariants.invariant import Invariant  # noqa: E402
from protocol.evidence.invariants.registry import INVARIANTS, UNCHECKED_FIELDS  # noqa: E402
from protocol.formats import document_fields, record_fields, terms  # noqa: E402
from protocol.formats.fields import DIGEST, Field, Kind, ListOf, Table  # noqa: E402
from protocol.formats.policy_facts import read_policy_facts  # noqa: E402
from protocol.instruments.anatomy import fields, invariants  # noqa: E402
from protocol.instruments.cost import fields as cost_fields  # noqa: E402
from protocol.lock import lock  # noqa: E402
from protocol.outside.design import DESIGN as OUTSIDE_DESIGN  # noqa: E402
from protocol.plan.design import DESIGN  # noqa: E402
from protocol.plan.field_kinds import TablesByName  # noqa: E402

BEGIN, END = "<!-- relations: written by docs/generate.py -->", "<!-- end of relations -->"
STATUSES_BEGIN, STATUSES_END = "<!-- exit statuses: written by docs/generate.py -->", "<!-- end of exit statuses -->"
ANATOMY, ANATOMY_END = "<!-- anatomy: written by docs/generate.py -->", "<!-- end of anatomy -->"
SYSTEM = re.compile(r"\| (?!system \|).+ \| .*\|")  # a row of a table of docs/systems.md
STUDIED = {*CATALOGUE, *STATES, *tasks.names(), *RULES, *METHODS}  # what a row may name and a study may have
WITH_STATE = re.compile(r"`([^`]+)` with the state `([^`]+)`")  # one name, of an arm that has both
DOCUMENTS = {
    "lock": lock.FIELDS,
    "selection": document_fields.SELECTION,
    "claim": document_fields.CLAIM,
    "seal": document_fields.SEAL,
    "verdict": document_fields.VERDICT,
}


def schema(title: str, kind: Kind, **more: object) -> str:
    """A JSON Schema as a file."""
    standard = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps({"$schema": standard, "title": title, **make_schema(kind), **more}, indent=2) + "\n"


def record() -> str:
    """A line of a shard. What a state goes with is code in record_fields, said here a second time."""
    line = Table(
        {
            "body": Field(record_fields.BODY, "What the lane produced."),
            "costs": Field(record_fields.COSTS, "What producing it took."),
            "sha256": Field(DIGEST, "Digest of the canonical {body, costs}."),
            "chain": Field(DIGEST, "Digest of the chain of the line before followed by this sha256."),
        }
    )
    answerless: Schema = dict.fromkeys((*record_fields.SCORES.values(), "grade_second"), False)
    nothing: Schema = {name: {"type": "null"} for name in (*record_fields.MEASURED, "trajectory")}
    by_state = {
        "if": {"properties": {"state": {"const": "ok"}}},
        "then": {
            "properties": {
                "reason": {"const": ""},
                **{name: {"not": {"type": "null"}} for name in record_fields.MEASURED},
            },
            "allOf": [
                {
                    "if": {"properties": {grade: {"const": "scored"}}, "required": [grade]},
                    "then": {"required": [score]},
                    "else": {"properties": {score: False}},
                }
                for grade, score in record_fields.SCORES.items()
            ],
        },
        "else": {"properties": {"reason": {"minLength": 1}, **answerless, **nothing}},
    }
    properties = make_schema(line)["properties"]
    return schema(
        "One line of records/shard-0.jsonl or probe/shard-0.jsonl",
        line,
        properties=properties | {"body": properties["body"] | by_state},
    )


def ledger_line() -> str:
    """A line of the ledger, with the body of its event."""
    bodies = [
        {"if": {"properties": {"event": {"const": event}}}, "then": {"properties": {"body": describe_field(body)}}}
        for event, body in ledger.EVENTS.items()
    ]
    return schema("One line of ledger.jsonl", ledger.FIELDS, allOf=bodies)


def protocol() -> str:
    """Every field of protocol.toml, a table a section, below a whole protocol with comments."""
    example = (HERE / "protocol.example.toml").read_text()
    parts = [
        "# Every field of a protocol",
        "Generated from the declarations in `protocol/plan/design.py`: `python docs/generate.py`.",
        "A protocol is one file, `registrations/<name>/protocol.toml`. It is read strictly: a field that is "
        "not declared here, a number outside its range and a name that nothing has are refused in one line. "
        "Numbers with a point are decimals, and are locked as they were written.",
        "[`protocol.schema.json`](protocol.schema.json) is its JSON Schema. An editor that knows TOML and JSON Schema "
        "completes from it, where the first line of the file is `#:schema` and the path or the address of the schema.",
        "## A whole protocol",
        "This is [`protocol.example.toml`](protocol.example.toml).",
        f"```toml\n{example}```",
    ]
    parts += ["## At the top", _table(DESIGN.all_fields), *_sections(DESIGN.all_fields, "")]
    return "\n\n".join(wrapped(part) if part[0] not in "#|`" else part for part in parts) + "\n"


def _sections(fields: Mapping[str, Field], above: str) -> list[str]:
    """The fields that are tables, each a section below those of the table that it stands in."""
    parts = []
    for name, field in fields.items():
        if inner := _inner(field.kind):
            path = f"{above}{name}"
            head = f"[[{path}]]" if isinstance(field.kind, ListOf) else f"[{path}]"
            left_out = f" Left out: {field.if_absent}." if field.if_absent else ""
            named = " A line for each, NAME = { ... }, with:" if isinstance(field.kind, TablesByName) else ""
            parts += [f"## `{head}`", f"{field.description}{left_out}{named}", _table(inner.all_fields)]
            parts += _sections(inner.all_fields, f"{path}.")
    return parts


def _inner(kind: Kind) -> Table | None:
    """The table of a section; None for a plain field."""
    if isinstance(kind, ListOf):
        kind = kind.entry_kind
    elif isinstance(kind, TablesByName):
        kind = kind.table
    return kind if isinstance(kind, Table) else None


def _table(fields: Mapping[str, Field]) -> str:
    head = "| field | what it is | what may be written | where it is left out | example |\n|---|---|---|---|---|"
    simple = {name: field for name, field in fields.items() if _inner(field.kind) is None}
    return "\n".join([head, *(_row(name, field) for name, field in simple.items())])


def _row(name: str, field: Field) -> str:
    words = f"a list, each {field.kind.entry_kind.expected}" if isinstance(field.kind, ListOf) else field.kind.expected
    left_out = field.if_absent or "required"
    if field.only_if:
        left_out += f"; only with `{field.only_if[0]}` {' or '.join(f'`{word}`' for word in field.only_if[1])}"
    example = "" if field.example is None else f"`{json.dumps(field.example)}`"
    return f"| `{name}` | {field.description} | {words} | {left_out} | {example} |"


def journal(file: str, description: str, bodies: Sequence[Kind]) -> str:
    """A line of the journal of an instrument. description: of its bodies."""
    table = measurement_journal.make_line_table(description)
    line = make_schema(table)
    line["properties"]["body"] |= {"oneOf": [make_schema(kind) for kind in bodies]}
    return schema(f"A line of {file} of a registration", table, properties=line["properties"])


def measured() -> str:
    about = "The first line: {registration, machine}; any other: a repetition."
    return journal("cost/<machine>.jsonl", about, cost_fields.BODIES)


def traced() -> str:
    return journal("anatomy/traces.jsonl", "A trace.", fields.BODIES)


def records_page() -> str:
    """docs/records.md, which a person writes, with the relations between fields in their places."""
    path = HERE / "records.md"
    rows = "\n".join(_relation(relation) for relation in INVARIANTS)
    free = "\n".join(f"| {_code(name)} | {why} |" for name, why in UNCHECKED_FIELDS.items())
    parts = [
        f"| relation | what must be true | fields |\n|---|---|---|\n{rows}",
        "What of these fields no relation reaches, and what does:",
        f"| field | |\n|---|---|\n{free}",
    ]
    page = _between(path, path.read_text(), BEGIN, END, "\n\n".join(parts))
    traces = "\n".join(f"| {one.name} | {one.sentence} |" for one in invariants.INVARIANTS)
    return _between(path, page, ANATOMY, ANATOMY_END, f"| relation | what must be true |\n|---|---|\n{traces}")


def _between(path: Path, page: str, begin: str, end: str, text: str) -> str:
    before, begins, rest = page.partition(begin)
    _, ends, after = rest.partition(end)
    if not (begins and ends):
        raise ValueError(f"docs/{path.name}: put the lines {begin} and {end} where the table belongs")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def _relation(relation: Invariant) -> str:
    doubt = (
        f" An honest study may violate it, so a violation leaves the item undetermined: {relation.remedy}."
        if relation.remedy
        else ""
    )
    return f"| {relation.name} | {relation.sentence}{doubt} | {', '.join(map(_code, relation.fields))} |"


def _code(name: str) -> str:
    return f"`{name}`"


def commands_page() -> str:
    """docs/commands.md, which a person writes, with the table of exit statuses in its place."""
    rows = [f"| {one.number} | {one.meaning} | {', '.join(map(_code, one.commands)) or 'all'} |" for one in STATUSES]
    table = "\n".join(["| status | means | of |", "|---|---|---|", *rows])
    return _between(HERE / "commands.md", (HERE / "commands.md").read_text(), STATUSES_BEGIN, STATUSES_END, table)


def systems() -> str:
    """docs/systems.md, which a person writes, with the last column of its first tables from the locks of studies that
    were judged: what was withdrawn before its confirmation has studied nothing.
    """
    judged = (path.with_name("lock.json") for path in sorted((ROOT / "registrations").glob("*/verdict.json")))
    studies = {lock.parent.name: _studied_names(lock) for lock in judged}
    page, heading, rest = (HERE / "systems.md").read_text().partition("## Compared with a script")
    lines = [
        f"{line.rpartition(' | ')[0]} | {_where_studied(line, studies)} |" if SYSTEM.fullmatch(line) else line
        for line in page.split("\n")
    ]
    return "\n".join(lines) + heading + rest


def _studied_names(lock_file: Path) -> set[str]:
    """The policies, tasks, rule and method of a lock."""
    content = json.loads(lock_file.read_text())["protocol"]["content"]
    arms, tasks, decision = (content[name] for name in ("arms", "tasks", "decision"))
    states = [(arm.get("policy"), arm.get("set", {}).get("state")) for arm in arms.values()]
    return {
        *(policy for policy, _ in states),
        *(name for policy, state in states if state for name in (state, f"{policy} {state}")),
        *(task["name"] for task in tasks),
        decision["rule"],
        decision["method"],
    }


def _where_studied(row: str, studies: Mapping[str, set[str]]) -> str:
    """The studies that have what a row names; nothing for a row that names nothing that a study can have."""
    here = WITH_STATE.sub(r"`\1 \2`", row.split("|")[3].strip())
    names = [name for name in re.findall(r"`([^`]+)`", here) if {*name.split()} <= STUDIED]
    names = [] if here.startswith("not here") else names
    found = [study for study, studied in studies.items() if studied & {*names}]
    never = [name for name in names if not any(name in studied for studied in studies.values())]
    if len(found) == len(studies):
        return "every study"
    if not found:
        return "never" if names else ""
    return ", ".join(found) + (f"; never {' '.join(map(_code, never))}" if never else "")


def said(path: Path) -> list[str]:
    """The paragraphs of a module's docstring, each on one line. Raises ValueError where there is none."""
    doc = ast.get_docstring(ast.parse(path.read_text()))
    if not doc:
        raise ValueError(f"{path}: begin it with a docstring of one sentence, for docs/files.md")
    return [" ".join(paragraph.split()) for paragraph in doc.split("\n\n")]


def files() -> str:
    """Every module in the first sentence of its docstring, below its folder's."""
    parts = ["# Every file", "Generated from the docstrings: `python docs/generate.py`."]
    for room in (path for name in PACKAGES for path in sorted((ROOT / name).rglob("__init__.py"))):
        first, *_, rule = said(room)
        inside = (path for path in sorted(room.parent.glob("*.py")) if path != room)
        listed = "\n".join(wrapped(f"- `{path.name}`: {said(path)[0]}") for path in inside)
        parts += [f"## {room.parent.relative_to(ROOT)}/", f"{wrapped(first)}\n{wrapped(rule)}", listed]
    return "\n\n".join(filter(None, parts)) + "\n"


def library() -> str:
    """docs/library.md: what `import kv_prereg` gives, from its docstrings."""
    first, *rest, _ = re.split(r"\n\n(?=\S)|(?<=\.)\n\n", kv_prereg.__doc__ or "")
    parts = ["# The library", "Generated from docstrings: `python docs/generate.py`.", first]
    parts += [f"```python\n{textwrap.dedent(part)}\n```" if part[0] == " " else part for part in rest]
    for name in kv_prereg.__all__:
        value = getattr(kv_prereg, name)
        parts += [f"## {name}", *_described(name, value)]
        if isinstance(value, type) and not issubclass(value, Exception):
            parts += [
                part for each, member in vars(value).items() if each[0] != "_" for part in _described(each, member)
            ]
    return "\n\n".join(parts) + "\n"


def _described(name: str, member: object) -> list[str]:
    """The signature of a function, class or property, and its docstring."""
    of = member.fget if isinstance(member, property) else member
    assert callable(of)
    signature = re.sub(r"'|\b(?:typing|collections\.abc|pathlib)\.", "", str(inspect.signature(of)))
    signature = signature.replace("(self, ", "(").replace("(self)", "()")
    if isinstance(member, property):
        signature = signature.removeprefix("()")
    return [f"`{name}{signature}`", inspect.getdoc(of) or ""]


def gates() -> str:
    """docs/gates.md: every policy of the catalogue, and what this repository's registrations said of it."""
    folders = study_outcomes.list_registrations(ROOT / "registrations")
    records = [record for folder in folders for record in study_outcomes.read_records(folder)]
    named = {name: [one for one in CATALOGUE if read_policy_facts()[one].family == name] for name in FAMILIES}
    others = {name: rows for name, own in named.items() if (rows := tables.method_rows(own, records))}
    parts = [
        "# What each policy was to show, and what registrations said",
        "Generated from `analysis/hypotheses/` and the files in `registrations/`: `python docs/generate.py`. "
        "The index that `kv-prereg report` writes over a folder has these tables, too.",
        *tables.EXPLANATIONS["gates"],
        "## Families of intervention",
        *tables.EXPLANATIONS["families"],
        _rows(tables.FAMILIES, tables.family_rows(records)),
        "## Gates",
        *tables.EXPLANATIONS["attempts"],
        _rows(tables.ATTEMPTS, tables.attempt_rows(records)),
        "## Registered verdicts, in order of time",
        *tables.EXPLANATIONS["registered"],
        _rows(tables.REGISTERED, tables.registered_rows(records)),
        *(["Without a verdict: " + " ".join(told)] if (told := tables.unjudged_sentences(records)) else []),
        "## Every other policy",
        *(f"### {name}: {FAMILIES[name]}\n\n{_rows(tables.METHODS, rows)}" for name, rows in others.items()),
        "## Failure modes",
        "Of section 3.2 of the paper, in our words. A judgement shows some of them; `kv-prereg "
        "diagnostics` looks for all but the fourth in the records of a study.",
        "\n".join(wrapped(f"- {name}: {what}.") for name, what in tables.MODES),
        "## Table 1 of the paper",
        "Sun, Harn, He and Qin, arXiv:2605.14292, in its words, with the policies that are its gates here.",
        _rows(tables.QUOTED, tables.quoted_rows()),
    ]
    return "\n\n".join(wrapped(part) if part[0] not in "#|-" else part for part in parts) + "\n"


def glossary() -> str:
    """docs/glossary.md: every word that is printed, by what it belongs to."""
    parts = [
        "# Glossary",
        "Generated from `protocol/formats/terms.py`: `python docs/generate.py`. The help of a command ends "
        "with the words that it prints.",
    ]
    for head, group in terms.GROUPS.items():
        said = "\n".join(wrapped(f"- **{term}**: {meaning}") for term, meaning in group.items())
        parts += [f"## {head}", said]
    return "\n\n".join(wrapped(part) if part[0] not in "#-" else part for part in parts) + "\n"


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *([_cell(one) for one in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    """Nothing that a file says becomes a column or markup."""
    return " ".join(text.split()).replace("|", "\\|").replace("_", "\\_").replace("*", "\\*").replace("<", "&lt;")


def wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


FILES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "commands.md": commands_page,
        "gates.md": gates,
        "glossary.md": glossary,
        "library.md": library,
        "protocol.md": protocol,
        "protocol.schema.json": partial(schema, "protocol.toml of a registration", DESIGN),
        "outside-protocol.schema.json": partial(schema, "protocol.toml of outputs of others", OUTSIDE_DESIGN),
        "record.schema.json": record,
        "anatomy.schema.json": traced,
        "cost.schema.json": measured,
        "records.md": records_page,
        "systems.md": systems,
        "ledger.schema.json": ledger_line,
        **{
            f"{name}.schema.json": partial(schema, f"{name}.json of a registration", declared)
            for name, declared in DOCUMENTS.items()
        },
    }
)


UNTRACKED: Mapping[str, Callable[[], str]] = MappingProxyType({"files.md": files})


def main(arguments: list[str]) -> int:
    tracked = {(HERE / name).resolve(): text() for name, text in FILES.items()}
    if arguments == ["--check"]:
        old = [
            page.relative_to(ROOT) for page, text in tracked.items() if not page.exists() or page.read_text() != text
        ]
        print("\n".join(f"{name}: run python docs/generate.py" for name in old), end="\n" if old else "")
        return 1 if old else 0
    for page, text in (tracked | {HERE / name: text() for name, text in UNTRACKED.items()}).items():
        page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The table of a verdict as LaTeX, Markdown, HTML and numbers: nothing is lost, and no text breaks the format."""

import html.parser
import json
import re

import judgements
import pytest
from studies import ROOT

from figures.drawing.verdict_formats import format_html, format_json, format_latex, format_markdown
from figures.table import main, summarize

HOSTILE = r"50 % of A_B & {x} | *y* <b>z</b> $\input{/etc/passwd}$ ~ ^ # [1] `q`"
JUDGED = judgements.judgement(title=HOSTILE)
SUMMARY = summarize(JUDGED)
UNLATEX = {r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", "{[}": "["}
UNLATEX |= {"$<$": "<", "$>$": ">", "$-$": "\N{MINUS SIGN}", r"$\geq$": "\N{GREATER-THAN OR EQUAL TO}"}


def read_latex(text: str) -> str:
    """Undo the escapes, from left to right; a mark that LaTeX would act on is an error."""
    shown, rest = "", text
    while rest:
        escape = next((mark for mark in UNLATEX if rest.startswith(mark)), None)
        if escape is None and (found := re.match(r"\\([&%$#_{}])", rest)):
            shown, rest = shown + found[1], rest[2:]
        elif escape is None:
            assert rest[0] not in "\\&%$#_{}~^", rest
            shown, rest = shown + rest[0], rest[1:]
        else:
            shown, rest = shown + UNLATEX[escape], rest[len(escape) :]
    return shown


def test_latex_shows_every_cell_and_acts_on_no_text_of_the_study():
    lines = format_latex(SUMMARY).splitlines()
    body = lines[lines.index(r"\midrule") + 1 : lines.index(r"\bottomrule")]
    rows = [[read_latex(cell) for cell in line.removesuffix(r" \\").split(" & ")] for line in body]
    assert rows == [list(row) for row in SUMMARY.rows]
    (columns,) = re.findall(r"\\begin{tabular}{([lr]+)}", "\n".join(lines))
    assert len(columns) == len(SUMMARY.headings)
    caption = lines[1].removeprefix(r"\caption{\textbf{").partition("}. ")[0]
    assert read_latex(caption) == SUMMARY.lines[0]


def test_markdown_shows_every_cell_and_marks_up_no_text_of_the_study():
    first, *lines = format_markdown(SUMMARY).splitlines()
    assert re.sub(r"\\(.)", r"\1", first.replace("\\\\", "\\\N{NULL}")).replace("\0", "\\") == f"**{SUMMARY.lines[0]}**"
    assert not re.search(r"(?<!\\)[`*_<>|#~\[\]]", re.sub(r"\\\\", "", first.removeprefix("**").removesuffix("**")))
    rows = [re.split(r" \| ", line[2:-2]) for line in lines if line.startswith("| ")]
    assert [[cell.replace("\\", "") for cell in row] for row in rows[2:]] == [list(row) for row in SUMMARY.rows]


class Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.texts = set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.texts.append(data)


def test_html_shows_every_cell_and_runs_no_text_of_the_study():
    reader = Reader()
    reader.feed(format_html(SUMMARY))
    assert reader.tags == {"p", "b", "table", "thead", "tbody", "tr", "th", "td"}
    assert SUMMARY.lines[0] in reader.texts
    assert {cell for row in SUMMARY.rows for cell in row if cell} <= {*reader.texts}


@pytest.mark.parametrize("form", [format_latex, format_markdown, format_html])
def test_no_format_loses_a_remark(form):
    unwitnessed = summarize(json.loads((ROOT / "registrations/control-effect/verdict.json").read_text())["judged"])
    text = form(unwitnessed)
    assert "CONFIRMED (UNWITNESSED)" in text
    assert "the lock may be younger than the results" in text


def test_json_has_numbers():
    data = json.loads(format_json(SUMMARY, JUDGED))
    assert [row["difference"] for row in data["contrasts"]] == [
        None if one["difference"] is None else float(one["difference"]) for one in JUDGED["contrasts"]
    ]
    assert data["verdict"] == SUMMARY.lines[0]


def test_one_format_at_a_time(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["registrations/quickstart", "--latex", "--json"])
    assert "leave one of them out" in capsys.readouterr().err

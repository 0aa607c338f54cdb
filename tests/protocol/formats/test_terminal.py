"""Lines fit the terminal, no word is broken, and verdicts are styled where the reader's terminal has styles."""

import io
import sys

import pytest

from protocol.formats import terminal
from protocol.formats.escape import print_bytes, print_escaped
from protocol.formats.text_tables import format_columns, wrap_paragraph

PATH = "registrations/" + "a-long-name-" * 12
TABLE = (
    ["arm", "what it keeps", "pp"],
    [["snapkv", "what the end of the prompt attends to, and a window", "+1.0"], ["h2o", "heavy hitters", "0.0"]],
)


@pytest.fixture
def screen(monkeypatch):
    """A terminal of so many columns in place of standard output."""

    def opened(columns, **environment):
        stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
        stream.isatty = lambda: True
        for name in ("NO_COLOR", "TERM"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {"COLUMNS": str(columns), **environment}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "stdout", stream)
        return stream

    return opened


@pytest.mark.parametrize(("columns", "width"), [(20, 60), (60, 60), (99, 99), (160, 160), (400, 160)])
def test_a_line_is_as_wide_as_the_terminal_within_limits(screen, columns, width):
    screen(columns)
    assert terminal.line_width() == width


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_what_is_no_terminal_gets_110_columns_whatever_the_environment_says(monkeypatch, stream):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stdout", stream)
    assert terminal.line_width() == 110


@pytest.mark.parametrize("columns", [60, 80, 110, 160])
def test_words_are_never_broken(screen, columns):
    screen(columns)
    text = f"read set-conditioned {'many words and ' * 20}{PATH} ends"
    lines = wrap_paragraph(text)
    assert " ".join(lines).split() == text.split()
    assert all(len(line) <= columns or line == PATH for line in lines)


def test_a_table_shrinks_its_widest_column_between_words(screen):
    screen(60)
    wide = [TABLE[0], [[name, text * 2, points] for name, text, points in TABLE[1]]]
    lines = format_columns(*wide)
    assert max(map(len, lines)) <= 60
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ["arm", "snapkv", "h2o"]
    assert sorted(" ".join(lines).split()) == sorted(
        " ".join(cell for row in [wide[0], *wide[1]] for cell in row).split()
    )


def test_a_column_without_a_character_is_empty():
    assert format_columns(("arm", ""), [("h2o", "")]) == ["arm", "h2o"]


def test_a_table_that_fits_has_one_line_a_row(screen):
    screen(80)
    assert format_columns(*TABLE) == [
        "arm     what it keeps                                        pp",
        "snapkv  what the end of the prompt attends to, and a window  +1.0",
        "h2o     heavy hitters                                        0.0",
    ]


@pytest.mark.parametrize("show", [print_bytes, lambda text: print_escaped(text, sys.stdout)])
@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("CONFIRMED for all", "\x1b[1;32mCONFIRMED\x1b[0m for all"),
        ("CONFIRMED (UNWITNESSED)", "\x1b[1;33mCONFIRMED (UNWITNESSED)\x1b[0m"),
        ("is REFUTED, INVALID", "is \x1b[1;31mREFUTED\x1b[0m, \x1b[1;31mINVALID\x1b[0m"),
        ("RE-USED", "\x1b[1;33mRE-USED\x1b[0m"),
        ("UNCONFIRMED, CONFIRMED-2, confirmed", "UNCONFIRMED, CONFIRMED-2, confirmed"),
        ('{"verdict":"CONFIRMED"}', '{"verdict":"CONFIRMED"}'),
        ("\x1b[1;32m CONFIRMED", "\\u001b[1;32m \x1b[1;32mCONFIRMED\x1b[0m"),
    ],
)
def test_verdicts_are_bold_and_coloured_on_a_terminal(screen, show, text, printed):
    stream = screen(80)
    show(text)
    assert stream.buffer.getvalue().decode() == f"{printed}\n"


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_verdicts_are_plain_where_the_owner_wants_no_colour(screen, environment):
    stream = screen(80, **environment)
    print_bytes("CONFIRMED")
    print_escaped("REFUTED", sys.stdout)
    assert stream.buffer.getvalue() == b"CONFIRMED\nREFUTED\n"

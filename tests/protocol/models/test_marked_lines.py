"""Marked stretches of an answer, as tokens, however the tokens cut the text."""

import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from policies import Mark
from protocol.models import load, marked_lines
from protocol.models.marked_lines import TokenReader

EMBEDDED = Path(load.__file__).parents[1] / "embedded" / "chain-llama"
STATE = Mark("State:")


def read(pieces):
    """Tokens that are bytes, spelled as byte-level tokenizers do: what is no character yet is U+FFFD."""
    text = TokenReader(lambda ids: b"".join(pieces[one] for one in ids).decode(errors="replace"))
    return text.decode_text(range(len(pieces)))


def found(pieces, mark=STATE):
    return [(line.start, line.stop) for line in marked_lines.find_lines(read(pieces), mark)]


def by_byte(pieces, mark):
    """A plain walk over the bytes: who holds the first one of a mark, and who the last one of its end."""
    owner = [number for number, piece in enumerate(pieces) for _ in piece]
    data, at, spans = b"".join(pieces), 0, []
    text, end = mark.text.encode(), mark.end.encode()
    while at < len(data):
        line_start = data[:at].rstrip(b" \t")
        begins = mark.within or (not line_start or line_start.endswith(b"\n"))
        if not (begins and data.startswith(text, at)):
            at += 1
            continue
        closed = data.find(end, at + len(text))
        stop = len(data) if closed < 0 else closed + len(end)
        spans.append((max(owner[at], spans[-1][1] if spans else 0), owner[stop - 1] + 1))
        at = stop
    return [span for span in spans if span[0] < span[1]]


def cut(text, draw):
    """Tokens of one to five bytes, wherever characters end."""
    data, pieces = text.encode(), []
    while data:
        size = draw.randint(1, 5)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


@pytest.mark.parametrize(
    ("pieces", "spans"),
    [
        ([b"State", b":", b" 3", b"\n", b"so", b"\n"], [(0, 4)]),
        ([b"a", b"\n", b" State", b":", b" 3", b"\nSt", b"ate:", b"4"], [(2, 6), (6, 8)]),
        ([b"a State: 3\n", b"State", b": 4\nState: 5", b"\n", b"no"], [(1, 3), (3, 4)]),
        ([b"The State: 3\n", b"StateX: 4"], []),
        ([b"x\xc3", b"\xa9\n", b"State:\xe6", b"\x97", b"\xa5", b" b\n\xc3", b"\xa9"], [(2, 6)]),
        ([b"\xff", b"\xff", b"\n", b"State:", b"\xff", b"\xfe", b"\xff\xff\xff", b"\n", b"x"], [(3, 8)]),
    ],
    ids=["from mark to line feed", "split", "within tokens", "elsewhere", "characters in parts", "no text"],
)
def test_a_line_is_from_the_token_of_its_mark_to_that_of_its_line_feed(pieces, spans):
    assert found(pieces) == spans


def test_any_cut_of_any_text_gives_the_tokens_that_hold_the_bytes():
    """Against a walk over bytes; the last token is whole text, so that nothing waits for more."""
    draw = random.Random(3)
    parts = ["State:", "État:", "日本", "é", " ", "\n", "\n", "x", "=", ";", "𝄞", "Sta", "te:"]
    marks = [STATE, Mark("État:"), Mark("日本"), Mark("=", ";", within=True), Mark("é", "日", within=True)]
    seen = 0
    for _ in range(150):
        pieces = [*cut("".join(draw.choices(parts, k=draw.randint(1, 24))), draw), b"."]
        for mark in marks:
            assert found(pieces, mark) == by_byte(pieces, mark), (pieces, mark)
            seen += len(by_byte(pieces, mark))
    assert seen > 200


def test_a_sentencepiece_vocabulary_has_its_spaces_and_bytes():
    names = ["<unk>", "▁State", ":", "▁x", "<0x0A>", "<0xE6>", "<0x97>", "<0xA5>", "▁", "State"]
    raw = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, [], byte_fallback=True))
    raw.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    words = PreTrainedTokenizerFast(tokenizer_object=raw)
    ids = [1, 2, 5, 6, 7, 3, 4, 3, 4, 8, 9, 2, 3]  # "State:日 x\n x\n State: x"
    assert words.decode(ids) == "State:日 x\n x\n State: x"
    spelled = marked_lines.make_reader(words).decode_text(ids)
    assert spelled.text == words.decode(ids)
    assert marked_lines.find_lines(spelled, STATE) == (range(7), range(10, 13))


def test_words_of_the_embedded_models_have_stretches_and_no_lines():
    """They write no line feed: their whole answer is one line."""
    words = load.tokenizer("chain-llama", EMBEDDED)
    text = "from ba >ko using @ba +3 gives 4 +3 = 7 ; from ko >da using @ko +2 gives 7 +2 = 9 ; from da"
    spelled = marked_lines.make_reader(words).decode_text(words(text, add_special_tokens=False)["input_ids"])
    assert spelled.text == text
    assert marked_lines.find_lines(spelled, Mark("=", ";", within=True)) == (range(9, 12), range(21, 24))
    assert marked_lines.find_lines(spelled, Mark("from")) == (range(26),)
    assert marked_lines.find_lines(spelled, Mark("using")) == ()

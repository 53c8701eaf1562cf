"""Differences of texts: what they say must lead from the origin to the text."""

import random
import re

from neuralcov.fuzz.faults.texts import difference


def both(said):
    """Undo the marks: the origin and the text."""
    before = re.sub(r"\{\+.*?\+\}", "", re.sub(r"\[-(.*?)-\]", r"\1", said))
    after = re.sub(r"\[-.*?-\]", "", re.sub(r"\{\+(.*?)\+\}", r"\1", said))
    return before.split(), after.split()


def test_origin_and_text_can_be_read_off():
    draw = random.Random(0)
    for _ in range(200):
        origin = [draw.choice("abcdefg") for _ in range(draw.randrange(1, 30))]
        text = list(origin)
        for _ in range(draw.randrange(4)):
            at = draw.randrange(len(text))
            text[at : at + draw.randrange(2)] = draw.choices("abchij", k=draw.randrange(3))
            text = text or ["a"]
        assert both(difference(" ".join(origin), " ".join(text), None)) == (origin, text)


def test_what_is_far_from_a_change_is_left_out():
    origin = " ".join(map(str, range(40)))
    said = difference(origin, origin.replace(" 20 ", " twenty "), around=2)
    assert said == "… 18 19 [-20-] {+twenty+} 21 22 …"
    assert difference("same text", "same text") == "same text"

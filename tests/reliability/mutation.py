"""Damage bytes at random, and JSON as JSON: the same number gives the same damage."""

import json
import random

_NUMBERS = (0, 1, -1, 2, 255, 2**31 - 1, 2**31, 2**32, 2**40, 2**63 - 1, -(2**63), 2**64, 10**30, 0.5, 1e308)
_VALUES = (None, True, False, "", "x", [], {}, [[]], {"": 0}, "../x", "/etc/passwd", "é\0", *_NUMBERS)
_WIDTHS = (1, 2, 4, 8)


def damaged(content, others, dice):
    """Return bytes with some damage, now and then with a part of another file."""
    data = bytearray(content)
    for _ in range(dice.choice((1, 1, 1, 2, 4, 8))):
        data = _damage(data, others, dice)
    return bytes(data)


def _damage(data, others, dice):
    kind = dice.randrange(9)
    size = len(data)
    # Heads decide how the rest is read: half of the damage is done there.
    place = dice.randrange(min(size, 200) if dice.random() < 0.5 else size) if size else 0
    if kind == 0 and size:
        data[place] ^= 1 << dice.randrange(8)
    elif kind == 1 and size:
        data[place] = dice.randrange(256)
    elif kind == 2:
        del data[place:]
    elif kind == 3:
        del data[place : place + dice.choice((1, 2, 4, 16, 100))]
    elif kind == 4:
        data[place:place] = dice.randbytes(dice.choice((1, 2, 4, 16, 100)))
    elif kind == 5:
        width = dice.choice(_WIDTHS)
        number = int(dice.choice(_NUMBERS)) % (1 << 8 * width)
        data[place : place + width] = number.to_bytes(width, dice.choice(("little", "big")))
    elif kind == 6 and size:
        start = dice.randrange(size)
        data[place:place] = data[start : start + dice.randrange(1, 100)]
    elif kind == 7 and others:
        other = dice.choice(others)
        start = dice.randrange(len(other) or 1)
        data[place : place + dice.randrange(1, 300)] = other[start : start + dice.randrange(1, 300)]
    else:
        # A digit of a number that is written out, as in JSON or tar.
        digits = [index for index in range(place, min(place + 300, size)) if 48 <= data[index] <= 57]
        if digits:
            data[dice.choice(digits)] = dice.choice(b"0123456789-.eE")
    return data


def damaged_tree(tree, dice):
    """Return plain data with one to three places changed, removed or doubled."""
    tree = json.loads(json.dumps(tree))
    for _ in range(dice.choice((1, 1, 2, 3))):
        tree = _damage_tree(tree, dice)
    return tree


def _damage_tree(tree, dice):
    places = list(_places(tree))
    if not places or dice.random() < 0.02:
        return _value(dice)
    holder, key = dice.choice(places)
    kind = dice.randrange(6)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder[key], (int, float)):
        holder[key] = dice.choice(_NUMBERS)
    elif kind == 2 and isinstance(holder[key], str):
        text = holder[key]
        at = dice.randrange(len(text) + 1)
        holder[key] = text[:at] + dice.choice(("", "x", "é", ".", "/", "0")) + text[at + 1 :]
    elif kind == 3 and isinstance(holder[key], list):
        holder[key] = holder[key] * 2 if dice.random() < 0.5 else holder[key][::-1]
    elif kind == 4:
        # What stands in one place is put into another.
        other, name = dice.choice(places)
        if name in other if isinstance(other, dict) else name < len(other):
            holder[key] = json.loads(json.dumps(other[name]))
    else:
        holder[key] = _value(dice)
    return tree


def _value(dice):
    """Return a value of its own: what is put into a tree may be damaged there."""
    return json.loads(json.dumps(dice.choice(_VALUES)))


def _places(tree):
    if isinstance(tree, dict):
        items = list(tree.items())
    elif isinstance(tree, list):
        items = list(enumerate(tree))
    else:
        return
    for key, value in items:
        yield tree, key
        yield from _places(value)


def dice_of(*numbers):
    """Return random numbers that follow from these."""
    return random.Random(repr(numbers))

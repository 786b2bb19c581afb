"""Counts the lines that came whole, in time that grows with the bytes whatever came (a regular expression over torn lines does not)."""


def whole(text, size):
    """Lines of size - 1 equal small letters behind any prefix, no fewer and no more."""
    letters = {bytes([c]): bytes([c]) * (size - 1) for c in range(ord("a"), ord("z") + 1)}
    return sum(line[1 - size:] == letters.get(line[-1:]) and line[-size:1 - size] != line[-1:] for line in text.split(b"\n"))

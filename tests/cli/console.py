"""What a console shows of ranks. A line that is long, or whose end comes late, is shown in pieces; every piece but the first has a + behind
its bracket. How a loaded machine cuts them is not promised; that they make the line is."""
import re

PIECE = re.compile(rb"\[(\d+) [^\]\n]*\](\+?) ")
MORE = re.compile(rb"^\[\d+ [^\]\n]*\]\+ ", re.M)


def count(out):
    """How many lines ranks wrote."""
    return out.count(b"\n") - len(MORE.findall(out))


def whole(out):
    """[(rank, line)] in the order of their first pieces; what is not of a rank is left out. Of one stream of each rank."""
    lines, last = [], {}
    for text in out.split(b"\n"):
        m = PIECE.match(text)
        if not m:
            continue
        rank, text = int(m.group(1)), text[m.end():]
        if m.group(2) and rank in last:
            lines[last[rank]] = (rank, lines[last[rank]][1] + text)
        else:
            last[rank] = len(lines)
            lines.append((rank, text))
    return lines

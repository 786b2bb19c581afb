#!/usr/bin/env python3
"""Our tokenizer beside the reference core, one thread each, on the same text in the same records.

    token_ratio.py BENCH_TOKEN TOKENIZER.json TEXT [rounds]      needs the package tokenizers in this python

Records of 2,000 bytes (never inside a character), both with byte or character ranges, alternating. The token counts must be equal. Printed: median MB/s of both
and their ratio."""
import os, re, statistics, subprocess, sys, time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer

bench, path, text = sys.argv[1:4]
rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 5
reference = Tokenizer.from_file(path)
data = open(text, "rb").read()
records, at = [], 0
while at < len(data):
    end = min(at + 2000, len(data))
    while end < len(data) and data[end] & 0xC0 == 0x80: end += 1
    records.append(data[at:end].decode())
    at = end

def theirs():
    start, n = time.perf_counter(), 0
    for r in records: n += len(reference.encode(r, add_special_tokens=False).ids)
    return len(data) / 1e6 / (time.perf_counter() - start), n

def ours():
    out = subprocess.run([bench, path, text], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"MB, (\d+) tokens: ([0-9.]+) MB/s", out)
    return statistics.median(float(s) for _, s in found), int(found[0][0])

theirs()
pairs = [(ours(), theirs()) for _ in range(rounds)]
(_, mine), (_, other) = pairs[0]
print(f"tokens: ours {mine}, reference {other}")
if mine != other: sys.exit("the tokens differ: not the same work")
a, b = statistics.median(p[0][0] for p in pairs), statistics.median(p[1][0] for p in pairs)
print(f"one thread, MB/s: ours {a:.2f}, reference {b:.2f}: {a / b:.2f} x")

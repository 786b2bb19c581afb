#!/usr/bin/env python3
"""odd.py BIN: ids and texts of the small tokenizers in tests/golden/tok/odd.jsonl.gz, through `fttrain data encode` and `decode`; parts and patterns that are
refused by name. Standard library only."""
import gzip, json, os, subprocess, sys, tempfile

BIN, SRC = os.path.abspath(sys.argv[1]), os.environ["FT_SOURCE"]


def data(word, model, rows, *more):
    p = subprocess.run([f"{BIN}/fttrain", "data", word, "--model", model, *more], input="".join(json.dumps(r) + "\n" for r in rows), capture_output=True, text=True, timeout=200)
    if p.returncode:
        sys.exit(f"FAILED: {word} {model}: status {p.returncode}\n{p.stderr[-2000:]}")
    return [json.loads(l) for l in p.stdout.splitlines()]


def equal(what, inputs, got, want):
    for i, g, w in zip(inputs, got, want):
        if g != w:
            sys.exit(f"FAILED: {what} of {i!r}\n  got  {g!r}\n  want {w!r}")
    if len(got) != len(want):
        sys.exit(f"FAILED: {what}: {len(got)} lines instead of {len(want)}")
    return len(want)


count = refused = 0
with tempfile.TemporaryDirectory() as w:
    path = f"{w}/tokenizer.json"
    for line in gzip.open(f"{SRC}/tests/golden/tok/odd.jsonl.gz"):
        row = json.loads(line)
        json.dump(row["tokenizer"], open(path, "w"))
        name = row["name"]
        count += equal(f"{name}: ids", row["texts"], [o["ids"] for o in data("encode", path, ({"text": t} for t in row["texts"]))], row["ids"])
        count += equal(f"{name}: text", row["lists"], [o["text"] for o in data("decode", path, ({"ids": x} for x in row["lists"]))], row["decoded"])
        count += equal(f"{name}: text without special tokens", row["lists"], [o["text"] for o in data("decode", path, ({"ids": x} for x in row["lists"]), "--skip-special")], row["skipped"])
        base = row["tokenizer"] if name == "gpt2" else base
    split = lambda r: {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": r}, "behavior": "Isolated", "invert": False}}
    for change, said in (({"model": {"type": "WordPiece", "vocab": {"a": 0}}}, "model 'WordPiece' is not supported"), ({"model": {"type": "WordLevel", "vocab": {"a": 0}}}, "model 'WordLevel' is not supported"),
                         ({"normalizer": {"type": "BertNormalizer"}}, "normalizer 'BertNormalizer' is not supported"), ({"pre_tokenizer": {"type": "UnicodeScripts"}}, "pre_tokenizer 'UnicodeScripts' is not supported"),
                         ({"model": dict(base["model"], dropout=0.1)}, "BPE with dropout is not supported"), ({"decoder": {"type": "WordPiece"}}, "'WordPiece' is not supported"), (split("[a&&[b]]"), "an intersection of classes (&&)"),
                         (split("[a[^b]]"), "a negated class inside a class"), (split("a{1,3}+"), "'+' behind an interval"), (split("\\u12"), "\\u needs four"), (split("("), "cannot compile the regular expression '('")):
        json.dump({**base, **change}, open(path, "w"))
        p = subprocess.run([f"{BIN}/fttrain", "data", "encode", "--model", path, "--text", "a"], capture_output=True, text=True, timeout=200)
        if p.returncode != 2 or said not in p.stderr or p.stdout:
            sys.exit(f"FAILED: {change}: status {p.returncode}\n{p.stdout}{p.stderr}")
        refused += 1
print(f"{count} texts equal, {refused} files refused by name")

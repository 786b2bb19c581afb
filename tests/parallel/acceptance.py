#!/usr/bin/env python3
"""Every line of the acceptance indexes (runtime maths, section 20; on-disk formats, section 18) has a test of its name. What is specified and
not built is refused by its name, and said here as a skip.   acceptance.py BIN"""
import glob
import os
import re
import subprocess
import sys
import tempfile

BIN = os.path.abspath(sys.argv[1])
SOURCE = os.environ.get("FT_SOURCE", ".")
# Lines without a test as long as this is refused.
UNBUILT = {"R2": "train.method=qlora"}
# SHOULDs with a key: refused by their name, or built.
SHOULDS = ("parallel.sequence=yes", "train.schedule=wsd", "model.precision=fp8", "parallel.virtual_pipeline=2", "checkpoint.async=yes", "train.method=lora",
           "train.method=qlora", "model.attention=cudnn", "export.what=adapter")
failed = []


def expect(name, ok, detail=""):
    if not ok:
        failed.append(name)
        print("FAILED %s: %s" % (name, detail), flush=True)
    return ok


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def short(word):
    return word.upper().replace("-", "")


def wanted():
    """Ids of both pages: {"RT05": the text they stand in}."""
    index = re.search(r"\n## 20\. Acceptance index\n(.*?)\n## ", read(SOURCE + "/docs/spec/runtime.md"), re.S).group(1)
    ids = {}
    for part in index.split("·"):
        for word in re.findall(r"RT-\d\d(?:, \d\d)*|\bR\d\b", part):
            prefix = "RT-" if word.startswith("RT") else ""
            for number in word.replace("RT-", "").split(", "):
                ids[short(prefix + number)] = part.strip()
    for line in re.findall(r"^\* \*((?:RT-\d\d|R\d)[^*]*)\*", read(SOURCE + "/docs/spec/checkpoint.md"), re.M):
        ids[short(re.match(r"RT-\d\d|R\d", line).group(0))] = line
    return ids


def there():
    """Where each id is tested: names of C tests that are run, heads of scripts."""
    found = {}
    for path in glob.glob(SOURCE + "/tests/**/*.c", recursive=True):
        text = read(path)
        for name in re.findall(r"cmocka_unit_test(?:_setup_teardown)?\(\s*(\w+)", text):
            body = re.search(r"static void %s\(void \*\*state\)\n\{(.*?)\n\}" % name, text, re.S)
            if body and re.search(r"\bskip\(\);", body.group(1)):
                continue
            for word in re.findall(r"(?<![a-z0-9])(rt\d\d|r\d)(?![a-z0-9])", name.lower()):
                found.setdefault(short(word), []).append("%s in %s" % (name, os.path.basename(path)))
    for path in glob.glob(SOURCE + "/tests/parallel/*.py"):
        head = re.search(r'"""(.*?)"""', read(path), re.S)
        for word in re.findall(r"RT-\d\d|\bR\d\b", head.group(1) if head else ""):
            found.setdefault(short(word), []).append(os.path.basename(path))
    return found


def refusal(setting):
    """What fttrain says about a setting that it knows and does not have; None: it has it."""
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as job:
        job.write("[model]\npath = %s/tests/golden/hf/llama\nprecision = fp32\n[data]\ntrain = rows.jsonl\n[train]\nsteps = 1\n" % SOURCE)
        job.flush()
        env = {k: v for k, v in os.environ.items() if k not in ("FT_JOB", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
        r = subprocess.run([BIN + "/fttrain", "check", job.name, "--shallow", "--set", setting], capture_output=True, text=True, timeout=60, env=env)
    said = r.stdout + r.stderr
    lines = [line for line in said.splitlines() if "is not built yet" in line]
    return lines[0] if lines and r.returncode == 2 else None


ids, tests = wanted(), there()
expect("the indexes", len(ids) >= 23 and {"RT01", "RT05", "RT19", "R1", "R8"} <= set(ids), sorted(ids))
for i in sorted(ids):
    if i in tests:
        print("%-5s %s" % (i, "; ".join(sorted(tests[i])[:3]) + (" …" if len(tests[i]) > 3 else "")))
    elif i in UNBUILT:
        why = refusal(UNBUILT[i])
        if expect(i, why, "no test has its name, and %s is not refused" % UNBUILT[i]):
            print("%-5s skipped: %s" % (i, why))
    else:
        expect(i, False, "no test has its name: " + ids[i])
for setting in SHOULDS:
    why = refusal(setting)
    print("%-30s %s" % (setting, "skipped: " + why if why else "built"))
    name = setting.split("=")[0].split(".")[1]
    expect(setting, not why or name in why, why)
print("%d lines, %d failed" % (len(ids), len(failed)))
sys.exit(1 if failed else 0)

#!/usr/bin/env python3
"""words.py BIN: `fttrain data encode|decode|render|check|show` on the golden sets and on small jobs. Standard library only."""
import gzip, json, os, re, subprocess, sys, tempfile

BIN, SRC = sys.argv[1], os.environ["FT_SOURCE"]
GOLD, LAPTOP = f"{SRC}/tests/golden", f"{SRC}/examples/01_laptop"
count = 0


def data(*args, text=None, status=0):
    p = subprocess.run([f"{BIN}/fttrain", "data", *args], input=text, capture_output=True, text=True, timeout=120)
    if p.returncode != status:
        sys.exit(f"fttrain data {' '.join(args)}: status {p.returncode} instead of {status}\n{p.stdout[-500:]}{p.stderr[-1500:]}")
    return p


def need(what, condition):
    global count
    count += 1
    if not condition:
        sys.exit(f"FAILED: {what}")


def lines(rows):
    return "".join(json.dumps(r) + "\n" for r in rows)


def objects(p):
    return [json.loads(l) for l in p.stdout.splitlines()]


with tempfile.TemporaryDirectory() as w:
    tok = f"{w}/tokenizer.json"
    open(tok, "wb").write(gzip.open(f"{GOLD}/tok/files/gpt2.tokenizer.json.gz").read())
    rows = [json.loads(l) for l in open(f"{GOLD}/tok/gpt2.jsonl")]
    out = objects(data("encode", "--model", tok, "--no-special", text=lines({"text": r["text"]} for r in rows)))
    need("ids of every text", [o["ids"] for o in out] == [r["ids_ns"] for r in rows])
    back = objects(data("decode", "--model", w, text=lines({"ids": r["ids_ns"]} for r in rows)))
    need("texts of all ids", [b["text"] for b in back] == [r.get("decoded", r["text"]) for r in rows])
    need("one text", objects(data("encode", "--model", tok, "--text", "Hello world"))[0]["ids"] == [15496, 995])
    p = data("encode", "--model", tok, text='{"text":"a"}\n{"txt":1}\nx\n', status=2)
    need("faults with their lines", "(stdin):2:1: missing-field" in p.stderr and "(stdin):3:1: json" in p.stderr and len(p.stdout.splitlines()) == 1)
    need("ids that do not exist", "bad-id" in data("decode", "--model", tok, text='{"ids":[99999]}\n', status=2).stderr)
    need("no vocabulary named", "--model" in data("encode", status=2).stderr)
    need("a word that does not exist", "did you mean 'encode'" in data("encod", status=2).stderr)

    cases = json.load(open(f"{GOLD}/chat/cases.json"))
    for r in (json.loads(l) for l in open(f"{GOLD}/chat/rendered.jsonl")):
        if r["template"] not in ("llama3.1:8b", "qwen3-coder:30b", "phi4-reasoning:14b", "firefunction-v2:70b"):
            continue
        names = list(r["results"])
        sets = [x for k, v in cases["globals"].items() for x in ("--set", f"{k}={json.dumps(v)}")]
        out = objects(data("render", "--template", f"{GOLD}/chat/{r['file']}", *sets, "--set", 'template_date="2026-11-30"', text=lines(cases["cases"][n] for n in names)))
        need(f"renderings of {r['template']}", all(("error" in o) if "error" in r["results"][n] else o["text"] == r["results"][n]["out"] for n, o in zip(names, out)))
    open(f"{w}/bad.jinja", "w").write("a\n{% include 'x' %}")
    need("a statement that is refused with its line", "line 2" in data("render", "--template", f"{w}/bad.jinja", text="{}\n", status=2).stderr)
    chat = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]}
    o = objects(data("render", "--model", f"{LAPTOP}/model", "--spans", text=lines([chat])))[0]
    need("spans", o["text"][o["spans"][0]["content"][0]:o["spans"][0]["content"][1]] == "Yes")

    job = f"{w}/job.ini"
    open(job, "w").write(f"[model]\npath = {LAPTOP}/model\n[data]\ntrain = {LAPTOP}/data/train.jsonl\nvalid = {LAPTOP}/data/valid.jsonl\nseq_len = 256\n")
    text = data("check", job).stdout
    need("the figures of the laptop example", "tokens: 62752, trained 21931" in text and "trained in 1864 of 1864 answers" in text)
    need("patterns of turns and beginnings", "turns: 'user assistant' in 100.0 %" in text and "commonest beginnings: 'What is the" in text)
    facts = json.loads(data("check", job, "--json").stdout)
    need("the same as JSON", [s["trained_tokens"] for s in facts["splits"]] == [21931, 1367] and facts["faults"] == [] and facts["error"] is None)
    open(f"{w}/dirty.jsonl", "w").write(lines([chat]) + '{"messages":[]}\n{"messages":[{"role":"user","content":"a"}]}\n')
    p = data("check", job, "--set", f"data.train={w}/dirty.jsonl", status=2)
    need("all faults", f"{w}/dirty.jsonl:2:13: empty-messages" in p.stderr and f"{w}/dirty.jsonl:3:22: last-not-assistant" in p.stderr and "2 faulty records" in p.stderr)
    p = data("check", job, "--set", f"data.train={w}/dirty.jsonl", "--set", "data.bad_records=skip:2")
    need("skipped records are listed", "warning: empty-messages" in p.stderr and "2 faulty" in p.stdout)
    need("a wrong job", data("check", job, "--set", "data.trian=x", status=2).stderr.count("train") > 0)
    p = data("show", job, "-n", "1")
    need("trained parts are marked", "⟦The plural of technique is techniques.<|im_end|>⟧" in p.stdout)
    need("one record", "17, 18, 19, 20, 21." in data("show", job, "--record", "train.jsonl:3").stdout)
    need("a record that is not there", "no record" in data("show", job, "--record", "train.jsonl:99999", status=2).stderr)
    need("one pack", "samples" in data("show", job, "--pack", "0", "--tokens").stdout)
    need("lengths", "tokens of 1864 samples" in data("show", job, "--lengths").stdout)
    p = data("prepare", job, "--set", f"data.cache={w}/cache")
    need("prepared data are written", p.stdout.count("(written)") == 2 and "tokens: 62752, trained 21931" in p.stdout)
    need("and found again", data("prepare", job, "--set", f"data.cache={w}/cache").stdout.count("(was there)") == 2)
    need("another option, another key", data("prepare", job, "--set", f"data.cache={w}/cache", "--set", "data.train_on=all").stdout.count("(written)") == 2)
    folders = [d for d in os.listdir(f"{w}/cache") if os.path.isdir(f"{w}/cache/{d}")]
    need("four folders, nothing half", len(folders) == 4 and all(sorted(os.listdir(f"{w}/cache/{d}")) == ["header.json", "index.bin", "spans.bin", "tokens.bin"] for d in folders))
    big = max((f"{w}/cache/{d}/tokens.bin" for d in folders), key=os.path.getsize)
    os.truncate(big, os.path.getsize(big) - 2)
    said = [subprocess.run([f"{BIN}/fttrain", "data", "prepare", job, "--set", f"data.cache={w}/cache", "--set", f"data.train_on={t}"], capture_output=True, text=True, timeout=120)
            for t in ("assistant", "all")]
    need("damaged data are refused with the folder to remove", sorted(p.returncode for p in said) == [0, 2] and "remove the folder" in said[0].stderr + said[1].stderr)
    need("no folder named", "cache" in data("prepare", job, status=2).stderr)
    # What `prepare` wrote is what a run reads: the same key.
    open(f"{w}/two.jsonl", "w").write(lines([chat, {"messages": [{"role": "user", "content": "Ho"}, {"role": "assistant", "content": "No"}]}]))
    small = [job, *(x for s in (f"data.train={w}/two.jsonl", "data.valid=", f"data.cache={w}/cache2", "model.precision=fp32", "train.steps=1", "train.global_batch=2", "export.what=none", f"checkpoint.dir={w}/ck") for x in ("--set", s))]
    data("prepare", *small)
    before = os.listdir(f"{w}/cache2")
    p = subprocess.run([f"{BIN}/fttrain", *small], capture_output=True, text=True, timeout=120, cwd=w)
    need(f"a run reads prepared data: {p.stderr[-500:]}", p.returncode == 0 and len(before) == 1 and os.listdir(f"{w}/cache2") == before)
    open(f"{w}/ids.jsonl", "w").write('{"input_ids":[1,2,99999],"labels":[-100,2,99999]}\n')
    need("an id that the model has not", "ids.jsonl:1:19: bad-id: input_ids[2] is 99999, the model has ids 0 to 4095" in data("check", *small, "--set", f"data.train={w}/ids.jsonl", "--set", "data.format=tokens", status=2).stderr)
    for key, value in (("weight", 0.5), ("weight", "0"), ("weight", True), ("train", "false"), ("train", 0)):
        open(f"{w}/turn.jsonl", "w").write(lines([{"messages": [chat["messages"][0], dict(chat["messages"][1], **{key: value})]}]))
        need(f"{key} {value!r} is not trained as if it were not there", f"wrong-type: messages[1].{key} must be" in data("check", *small, "--set", f"data.train={w}/turn.jsonl", status=2).stderr)
    open(f"{w}/io.jsonl", "w").write('{"input":"Hi","output":"Yes \u00e9"}\n')
    data("prepare", job, "--set", f"data.train={w}/io.jsonl", "--write-jsonl", f"{w}/out.jsonl")
    need("records as messages", json.loads(open(f"{w}/out.jsonl").read()) == {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes \u00e9"}]})
    # Every published template: both answers and their terminators are trained and nothing else, or the record is refused.
    usual = {"<BOS>", "<EOS>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"}
    pattern = r"<\|[^|<>\n]{1,30}\|>|</?s>|<(?:start|end)_of_turn>|<｜[^｜]{1,40}｜>|\[\|[a-z]+\|\]|<extra_id_\d>|\[/?INST\]"
    refused = {"firefunction-v2:70b": "template", "shieldgemma:27b": "template", "llama-guard3:8b": "no-terminator", "granite-code:3b": "no-terminator", "qwen:0.5b": "no-terminator", "glm4:9b": "no-terminator"}
    base = json.load(open(f"{LAPTOP}/model/tokenizer.json"))
    os.makedirs(f"{w}/m")
    open(f"{w}/m/tokenizer_config.json", "w").write('{"bos_token": "<BOS>", "eos_token": "<EOS>"}')
    open(f"{w}/uaua.jsonl", "w").write(lines([{"messages": cases["cases"]["uaua"]["messages"]}]))
    for name in json.load(open(f"{GOLD}/chat/tiers.json")):
        source = open(f"{GOLD}/chat/templates/{name.replace(':', '_')}.jinja", "rb").read()
        tokens = [t for t in sorted(usual | set(re.findall(pattern, source.decode()))) if t not in {a["content"] for a in base["added_tokens"]}]
        flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
        added = base["added_tokens"] + [dict(flags, id=len(base["model"]["vocab"]) + i, content=t) for i, t in enumerate(tokens)]
        open(f"{w}/m/tokenizer.json", "w").write(json.dumps(dict(base, added_tokens=added)))
        open(f"{w}/m/chat_template.jinja", "wb").write(source)
        args = ("show", "--set", f"model.path={w}/m", "--set", f"data.train={w}/uaua.jsonl", "--set", "data.template_date=2026-11-30")
        if name in refused:
            need(f"{name} is refused", f"uaua.jsonl:1:1: {refused[name]}" in data(*args, status=2).stderr)
            continue
        marked = re.findall("⟦(.*?)⟧", data(*args).stdout, re.S)
        need(f"two trained answers with {name}, got {marked}", len(marked) == 2 and "Hello!" in marked[0] and "Goodbye." in marked[1])
        ends = [m.split(t)[-1].strip() for m, t in zip(marked, ("Hello!", "Goodbye."))]
        need(f"their terminators with {name}, got {marked}", all(re.fullmatch(rf"(({pattern}|<BOS>|<EOS>)\s*)+", e) for e in ends))
        need(f"nothing else with {name}, got {marked}", not re.search("Hi|Bye", "".join(marked)))
print(f"{count} checks passed")

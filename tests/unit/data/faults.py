#!/usr/bin/env python3
"""faults.py BIN: every kind of fault that training data can have, through `ftlaunch data check`: file, line, column, kind, what was found, status 2,
nothing written; and files that look odd and are good. Keys of [data] that have no effect, shares, own field names. Standard library only."""
import gzip, json, os, random, subprocess, sys, tempfile

BIN, SRC = os.path.abspath(sys.argv[1]), os.environ["FT_SOURCE"]
MODEL = f"{SRC}/examples/01_laptop/model"
U, A = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}
count = 0


def row(*messages, **more):
    return (json.dumps({"messages": messages, **more}, ensure_ascii=False) + "\n").encode()


def turn(**fields):
    return row(dict(U, **fields), A)


good = b"".join(row(U, dict(A, content=f"ho {i}")) for i in range(3))
call = {"type": "function", "function": {"name": "f", "arguments": {}}}

# name: (bytes of the file, what each message must begin with: "LINE:COLUMN: kind: text"; no line: the set as a whole)
FAULTS = {
    "syntax": (good + b'{"messages":[}\n', ["4:14: json: "]),
    "trailing-comma": (good + b'{"messages":[],}\n', ["4:16: json: "]),
    "second-value": (good + row(U, A).strip() + b" {}\n", ["4:91: json: "]),
    "nan": (good + b'{"messages":NaN}\n{"a":-Infinity}\n', ["4:15: json: ", "5:6: json: "]),
    "nesting": (good + b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}\n", ["4:2053: json: maximum parsing depth"]),
    "not-object": (good + b'[1]\n"x"\n3\nnull\n', [f"{n}:1: not-object: a record is a JSON object, this is {what}" for n, what in enumerate(("an array", "a string", "an integer", "null"), 4)]),
    "duplicate-key": (good + b'{"messages":[],"messages":[]}\n', ["4:25: duplicate-key: "]),
    "line-too-long": (good + b'{"messages":"' + b"x" * (33 << 20) + b'"}\n' + row(U, dict(A, content="after")), ["4:1: line-too-long: "]),
    "utf8": (good + b'{"messages":"\xff"}\n{"messages":"\xc0\xaf"}\n{"messages":"\xed\xa0\x80"}\n', ["4:14: utf8: byte FF", "5:14: utf8: byte C0", "6:14: utf8: byte ED"]),
    "surrogate": (good + b'{"messages":"\\ud800"}\n{"messages":"\\udc00x"}\n', ["4:20: utf8: ", "5:21: utf8: "]),
    "control": (good + b'{"messages":"a\x01b"}\n{"messages":"a\tb"}\n{"messages":"a\x00b"}\n', ["4:14: utf8: control", "5:14: utf8: control", "6:14: utf8: control"]),
    "nul-escape": (good + b'{"messages":"a\\u0000b"}\n', ["4:22: utf8: \\u0000 must not stand in a string"]),
    "bom-inside": (good + b"\xef\xbb\xbf" + row(U, A), ["4:1: json: "]),
    "missing-field": (row({"content": "x"}, A) + row({"role": "user"}, A) + b'{"foo":1}\n' + good, ["1:15: missing-field: messages[0] has no field role (found: content)", "2:15: missing-field: messages[0] has no field content (found: role)", "3:1: missing-field: no field messages (found: foo)"]),
    "wrong-type": (row({"role": 3, "content": "x"}, A) + row({"role": None, "content": "x"}, A) + row("a") + b'{"messages":{}}\n' + row({"role": "user", "content": 3}, A) + row({"role": "user", "content": None}, A)
                   + row({"role": "user", "content": [{"type": "image"}]}, A) + row(U, dict(A, weight=0.5)) + row(U, dict(A, train="no")) + row(U, dict(A, tool_calls="f")) + row(U, A, tools=3) + good,
                   ["1:24: wrong-type: messages[0].role must be a string, this is an integer", "2:24: wrong-type: messages[0].role must be a string, this is null", "3:15: wrong-type: messages[0] must be an object", "4:13: wrong-type: messages must be an array",
                    "5:43: wrong-type: messages[0].content must be a string", "6:43: wrong-type: messages[0].content is null", "7:43: wrong-type: messages[0].content[0] is no", "8:99: wrong-type: messages[1].weight", "9:98: wrong-type: messages[1].train",
                    "10:103: wrong-type: messages[1].tool_calls", "11:100: wrong-type: tools must be an array"]),
    "outputs": (row(U, dict(A, content="  \n")) + row(U, dict(A, content=None)) + row(U, dict(A, content=[])) + good, ["1:83: empty-output: ", "2:83: null-output: ", "3:83: empty-output: "]),
    "prompts": (row(A) + row(dict(U, content=" "), A) + row(dict(U, content=[]), A) + good, ["1:48: empty-prompt: ", "2:82: empty-prompt: ", "3:81: empty-prompt: "]),
    "messages": (row() + row(U, A, U) + turn(role="bot") + row(U, dict(A, weight=0)) + good, ["1:14: empty-messages: ", "2:99: last-not-assistant: ", "3:24: unknown-role: messages[0].role is 'bot' (known: system", "4:1: no-trained-turn: "]),
    "other-shape": (good + b'{"instruction":"a","output":"b"}\n{"text":"b"}\n{"conversations":[]}\n{"input_ids":[1]}\n', [f"{n}:1: other-shape: the shape of this record is {s}, that of its file is messages" for n, s in enumerate(("alpaca", "text", "sharegpt", "tokens"), 4)]),
    "template": (good + row(U, dict(A, content=None, tool_calls=[call]), {"role": "tool", "content": "3"}, A), ["4:1: template: "]),
    "sharegpt": (b'{"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]}\n{"conversations":[{"from":"x","value":"a"}]}\n{"conversations":[{"from":3,"value":"a"}]}\n{"conversations":[{"from":"human"}]}\n{"conversations":["a"]}\n'
                 b'{"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":null}]}\n{"conversations":[{"role":"user","content":"a"}]}\n{"conversations":[{"from":"human","value":"a"},{"from":"function_call","value":"x"}]}\n',
                 ["2:27: unknown-role: ", "3:27: wrong-type: conversations[0].from must be a string, this is an integer", "4:19: missing-field: conversations[0] has no field value (found: from)", "5:19: wrong-type: conversations[0] must be an object", "6:70: null-output: ", "7:19: other-shape: ", "8:80: wrong-type: "]),
    "alpaca": (b'{"instruction":"a","output":"b"}\n{"instruction":"a"}\n{"instruction":"","output":"b"}\n{"instruction":"a","output":"b","input":3}\n{"instruction":"a","output":"b","history":[["x",""]]}\n',
               ["2:1: missing-field: no field output (found: instruction)", "3:16: empty-prompt: ", "4:41: wrong-type: ", "5:43: empty-output: "]),
    "prompt": (b'{"prompt":"a","completion":"b"}\n{"prompt":"a"}\n{"prompt":[],"completion":"b"}\n{"prompt":3,"completion":[{"role":"user","content":"y"}]}\n', ["2:1: missing-field: ", "3:11: empty-messages: ", "4:11: wrong-type: "]),
    "array": (b'[{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]},\n {"messages":[]},\n 3]', ["2:13: empty-messages: ", "3:1: not-object: "]),
    "array-open": (b'[{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]},\n', ["2:1: json: "]),
    "empty": (b"", ["[data] train holds no record: '"]),
    "blank": (b"\n \n", ["[data] train holds no record: '"]),
    "plain-text": (b'{"text":"abc"}\n', ["which is never guessed", "set format = text to train on plain text"]),
    "no-shape": (b'{"foo":"abc","bar":1}\n', ["no record has the fields of a known format (line 1 has foo, bar)", "set [data] format, and columns"]),
    "ini": (b"[cluster]\nname = x\n", ["an INI file"]),
    "yaml": (b"---\na: b\n", ["a YAML file"]),
    "parquet": (b"PAR1\0\1", ["a Parquet file"]),
    "utf16": ("{}\n".encode("utf-16"), ["UTF-16 text"]),
    "binary": (bytes(range(256)) * 20, ["a binary file"]),
    "zstd": (b"\x28\xb5\x2f\xfdxxxx", ["zstd, which is not built yet: unpack it with unzstd"]),
    "xz": (b"\xfd7zXZ\0\0", ["xz: unpack it"]),
    "gzip-cut": (gzip.compress(good + random.Random(1).randbytes(4000).hex().encode())[:3000], ["cannot unpack '", "it is cut short"]),
    "gzip-bad": (b"\x1f\x8bgarbage-here", ["cannot unpack '", "': unknown compression method"]),
}
GOOD = {  # name: (bytes, records)
    "bom": (b"\xef\xbb\xbf" + good, 3),
    "crlf": (good.replace(b"\n", b"\r\n"), 3),
    "no-newline": (good[:-1], 3),
    "line-separator": (good + row(U, dict(A, content="a\u2028b")), 4),
    "huge-id": (good + b'{"id":123456789012345678901234567890,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"r"}]}\n', 4),
    "gzip": (gzip.compress(good), 3),
    "array-of-all": (b"[" + b",".join(good.splitlines()) + b"]", 3),
    "switched-on": (row(U, dict(A, weight=1)) + row(U, dict(A, train=True, content="x")), 2),
}
TOKENS = (b'{"input_ids":[1,2],"labels":[1,2]}\n{"input_ids":[1,99999],"labels":[1,2]}\n{"input_ids":[1,-1],"labels":[1,2]}\n{"input_ids":[1,2],"labels":[1]}\n{"input_ids":[1,2]}\n{"input_ids":[1,123456789012345678901],"labels":[1,2]}\n'
          b'{"input_ids":[1.5],"labels":[1]}\n{"input_ids":[1,2,3],"labels":[1,2,3],"attention_mask":[1,0,1]}\n{"text":"x"}\n',
          ["2:17: bad-id: input_ids[1] is 99999, the model has ids 0 to 4095", "3:17: bad-id: input_ids[1] is -1", "4:29: ids-labels-length: labels has 1 elements, input_ids has 2", "5:1: missing-field: no field labels", "6:17: bad-id: input_ids[1] is 1.23", "7:15: wrong-type: ",
           "8:56: wrong-type: attention_mask has a 0 between ones", "9:1: missing-field: no field input_ids"])


def check(*sets):
    p = subprocess.run([f"{BIN}/ftlaunch", "data", "check", *(x for s in (f"model.path={MODEL}", "data.seq_len=64", *sets) for x in ("--set", s))], capture_output=True, timeout=200)
    return p.returncode, p.stdout.decode(errors="replace"), p.stderr.decode(errors="replace")


def need(what, said, *parts):
    global count
    count += 1
    for part in parts:
        if part not in said:
            sys.exit(f"FAILED: {what}: '{part}' is not in\n{said[-3000:]}")


with tempfile.TemporaryDirectory() as w:
    os.chdir(w)
    for name, (data, said) in {**FAULTS, "tokens": TOKENS}.items():
        path = f"{w}/{name}.jsonl"
        open(path, "wb").write(data)
        code, out, err = check(f"data.train={path}", *(["data.format=tokens"] if name == "tokens" else []))
        if code != 2:
            sys.exit(f"FAILED: {name}: status {code}\n{out}{err}")
        lines = [l for l in err.splitlines() if l.startswith(path + ":")]
        if said[0][0].isdigit():
            if len(lines) != len(said):
                sys.exit(f"FAILED: {name}: {len(lines)} faults instead of {len(said)}\n{err}")
            for line, want in zip(lines, said):
                need(name, line[:len(path) + 1 + len(want)], f"{path}:{want}")
            need(name, err, f"{len(said)} faulty record", f"fix:   correct these lines, or set bad_records = skip:{len(said)}")
        else:
            need(name, err, *said, path)
    for name, (data, n) in GOOD.items():
        open(f"{w}/{name}.jsonl", "wb").write(data)
        code, out, err = check(f"data.train={w}/{name}.jsonl")
        need(f"{name} is good: {err}", f"{code} {out}", "0 train", f"records: {n} read, {n} kept")
    if sorted(os.listdir(w)) != sorted(f"{n}.jsonl" for n in [*FAULTS, *GOOD, "tokens"]):
        sys.exit(f"FAILED: check writes nothing, but there is {os.listdir(w)}")

    open("train.jsonl", "wb").write(good), open("none.jsonl", "w"), open("ids.jsonl", "w").write('{"input_ids":[1,2],"labels":[1,2]}\n')
    here = f"data.train={w}/train.jsonl"
    need("an empty file among others", check(f"data.train={w}/train.jsonl,{w}/none.jsonl")[1], f"note: '{w}/none.jsonl' holds no record")
    need("a folder", check("data.train=" + w)[2], f"'{w}' is a folder, not a file")
    need("no such file", check(f"data.train={w}/absent.jsonl")[2], f"cannot open '{w}/absent.jsonl'")
    need("no match", check(f"data.train={w}/absent*.jsonl")[2], f"no file matches '{w}/absent*.jsonl'")
    need("too many weights", check(here, "data.weights=1,2")[2], "weights has 2 numbers, train has 1 files", "one weight per file")
    for share in ("0%", "100%", "-3%", "x%"):
        code, _, err = check(here, f"data.valid={share}")
        need(f"share {share}", f"{code} {err}", "2 ", f"'{share}' is no share of train", "[data] valid")
    need("a share beside files", check(here, f"data.valid=2%,{w}/train.jsonl")[2], "a share of train stands alone")
    need("a share that leaves nothing", check(f"data.train={w}/ids.jsonl", "data.format=tokens", "data.valid=0.01%")[2], "valid = 0.01% leaves no record to valid", "set another share, or valid to a file of its own")
    need("an unknown name", check(here, "data.columns=foo:bar")[2], "no record format has a field 'foo' (messages ", "[data] columns")
    need("a name twice", check(here, "data.columns=prompt:a,prompt:b")[2], "columns = prompt:a and prompt:b: one field has one name")
    need("a name that the format has not", check(here, "data.format=messages", "data.columns=text:a")[2], "warning: columns = text:a has no effect with format = messages")
    for sets in (["data.template=none"], ["data.template=none", "data.format=messages"]):
        code, _, err = check(here, *sets)
        need("conversations without a template", f"{code} {err}", "2 ", "template = none: conversations", "leave ", "PATH of a .jinja file")
    idle = {"template": "x.jinja", "template_vars": "a:b", "template_date": "2026-11-30", "terminator": "x", "boundary": "joint", "special": "parse", "train_on": "last"}
    code, out, err = check(f"data.train={w}/ids.jsonl", "data.format=tokens", *(f"data.{k}={v}" for k, v in idle.items()))
    need("keys that token ids do not look at", f"{code} {err}", "0 ", *(f"warning: {k} = {v} has no effect with format = tokens" for k, v in idle.items()))
    need("what does have an effect", f"{check(f'data.train={w}/ids.jsonl', 'data.format=tokens', 'data.train_on=all', 'data.terminator=auto')[2]}end", "end")
    if "no effect" in check(f"data.train={w}/ids.jsonl", "data.format=tokens", "data.train_on=all", "data.terminator=auto")[2]:
        sys.exit("FAILED: defaults and train_on = all are no remark with format = tokens")
    p = subprocess.run([f"{BIN}/fttrain", "check", "--shallow", "--json", *(x for s in (f"model.path={MODEL}", here, "data.format=tokens", "data.terminator=x") for x in ("--set", s))], capture_output=True, text=True, timeout=200)
    need("fttrain check says it too", p.stdout, "terminator = x has no effect with format = tokens")
print(f"{count} checks passed")

#!/usr/bin/env python3
"""RT-02: layouts, batches and models that do not go together are refused before anything starts: status 2, every problem of a job in one
run, each with its numbers and what would work, nothing written.   refused.py BIN"""
import json
import os
import subprocess
import sys
import tempfile

BIN = os.path.abspath(sys.argv[1])
GOLDEN = os.path.join(os.environ.get("FT_SOURCE", "."), "tests/golden/hf")
ENV = {k: v for k, v in os.environ.items() if k not in ("FT_JOB", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
LLAMA = dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=199, hidden_size=48, intermediate_size=96, num_hidden_layers=4,
             num_attention_heads=8, num_key_value_heads=4, head_dim=6, max_position_embeddings=64)
QWEN = dict(LLAMA, num_attention_heads=14, num_key_value_heads=2, intermediate_size=4864, hidden_size=84)
failed, count = [], 0


def expect(name, ok, detail=""):
    global count
    count += 1
    if not ok:
        failed.append(name)
        print("FAILED %s: %s" % (name, detail))


def run(work, config, world, sets, *words):
    os.makedirs(work + "/model", exist_ok=True)
    with open(work + "/model/config.json", "w") as f:
        json.dump(config, f)
    with open(work + "/train.jsonl", "w") as f:
        f.write('{"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}\n' * 16)
    with open(work + "/job.ini", "w") as f:
        f.write("[nodes]\nlocalhost = slots=%d\n[launch]\nrun_dir = %s/runs\n[model]\npath = %s/model\nprecision = fp32\n[data]\ntrain = %s/train.jsonl\n"
                "format = tokens\npacking = no\nseq_len = 32\n[train]\nsteps = 1\n[export]\nwhat = none\n" % (world, work, work, work))
    argv = [x for s in sets for x in ("--set", s)]
    return subprocess.run([BIN + "/" + words[0], *words[1:], work + "/job.ini", *argv], capture_output=True, text=True, timeout=200, env=ENV, cwd=work)


#       what                     config  ranks  sets                                                fragments
CASES = (
    ("world size",               LLAMA, 6, ["parallel.tensor=4"],                                   ["world size 6 is not divisible by tp·pp = 4", "one of 1,2,3,6"]),
    ("heads",                    dict(LLAMA, num_attention_heads=12, num_key_value_heads=12), 8, ["parallel.tensor=8"],
                                                                                                    ["12 heads do not divide by 8; works: 1,2,3,4,6,12"]),
    ("kv heads",                 dict(LLAMA, num_attention_heads=40, num_key_value_heads=10, intermediate_size=80), 4, ["parallel.tensor=4"],
                                 ["10 kv heads and tp 4: neither divides the other; works (by heads and kv heads): 1,2,5,10,20,40"]),
    ("kv heads and f",           QWEN, 7, ["parallel.tensor=7", "train.global_batch=7"],            ["2 kv heads and tp 7: neither divides the other",
                                                                                                     "intermediate size (f) 4864 does not divide by 7; works: 1,2"]),
    ("f",                        dict(LLAMA, intermediate_size=98), 4, ["parallel.tensor=4"],       ["intermediate size (f) 98 does not divide by 4; works: 1,2"]),
    ("layers",                   dict(LLAMA, num_hidden_layers=10), 4, ["parallel.pipeline=4"],     ["10 layers over 4 stages; works: 1,2,5,10"]),
    ("export over checkpoints",  LLAMA, 1, ["checkpoint.dir=there/ck", "export.dir=there/", "export.what=full"],
                                 ["the checkpoints go to 'there/ck'", "set [export] dir to another folder"]),
    ("chunks without stages",    LLAMA, 1, ["parallel.virtual_pipeline=2"],                         ["virtual_pipeline = 2 needs pipeline > 1"]),
    ("chunks and micro-batches", LLAMA, 4, ["parallel.pipeline=4", "parallel.virtual_pipeline=2", "train.global_batch=6"],
                                 ["virtual_pipeline = 2: m = 6 micro-batches", "not a multiple of p = 4 stages; nearest m 4, 8"]),
    ("layers of chunks",         LLAMA, 2, ["parallel.pipeline=2", "parallel.virtual_pipeline=4"],
                                 ["4 layers over 2 stages of 4 chunks; works with 2 stages: 1,2"]),
    ("batch",                    LLAMA, 4, ["train.global_batch=10", "train.micro_batch=2"],        ["10 is not a multiple of 2·4 = 8; nearest 8, 16"]),
    ("rope type",                dict(LLAMA, rope_scaling={"rope_type": "dynamic", "factor": 2.0}), 1, [], ["dynamic"]),
    ("a key that changes maths", dict(LLAMA, attn_logit_softcapping=30.0), 1, [],                   ["attn_logit_softcapping"]),
    ("patience",                 LLAMA, 1, ["eval.patience=3"],                                     ["patience = 3 without [data] valid"]),
    ("positions",                dict(model_type="gpt2", n_positions=64, n_embd=48, n_head=4, n_layer=2, vocab_size=199), 1, ["data.seq_len=65"],
                                                                                                    ["65", "64 learned positions"]),
    ("all at once",              QWEN, 6, ["parallel.tensor=7", "parallel.pipeline=3", "parallel.virtual_pipeline=2", "train.global_batch=10",
                                           "train.micro_batch=4", "eval.patience=2"],
                                 ["world size 6 is not divisible by tp·pp = 21", "2 kv heads and tp 7", "(f) 4864 does not divide by 7", "4 layers over 3 stages; works: 1,2,4",
                                  "virtual_pipeline", "patience = 2 without"]),
)

with tempfile.TemporaryDirectory(prefix="ft-rt02-") as top:
    for i, (name, config, world, sets, fragments) in enumerate(CASES):
        work = "%s/%d" % (top, i)
        for words in (("fttrain", "check", "--world", str(world)), ("ftlaunch", "run")):
            r = run(work, config, world, sets, *words)
            expect("%s, %s: status" % (name, words[0]), r.returncode == 2, r)
            # the launcher knows its ranks and says what it finds there before it asks; the batch of ranks that do not fit is not looked at
            for text in fragments if words[0] == "fttrain" or "world size" not in fragments[0] else []:
                expect("%s, %s: says '%s'" % (name, words[0], text), text in r.stderr, r.stderr)
            expect("%s, %s: nothing written" % (name, words[0]), set(os.listdir(work)) <= {"model", "train.jsonl", "job.ini", "runs"} and
                   not [f for _, _, fs in os.walk(work + "/runs") for f in fs if f == "metrics.jsonl"], os.listdir(work))
    # a rank that is started by hand refuses the same, without waiting for the others
    r = subprocess.run([BIN + "/fttrain", "%s/1/job.ini" % top, "--set", "parallel.tensor=8"], capture_output=True, text=True, timeout=200,
                       env=dict(ENV, RANK="0", WORLD_SIZE="8", LOCAL_RANK="0", LOCAL_WORLD_SIZE="8", MASTER_ADDR="127.0.0.1", MASTER_PORT="9"))
    expect("a rank alone", r.returncode == 2 and "12 heads do not divide by 8" in r.stderr, r)
    # accepted: fewer K/V heads than tensor ranks (their replicas), any vocabulary
    r = run(top + "/kv", dict(LLAMA, num_attention_heads=8, num_key_value_heads=2), 4, ["parallel.tensor=4"], "fttrain", "plan", "--world", "4")
    expect("K=2 at t=4 is accepted", r.returncode == 0, r)
print("%d checks, %d failed" % (count, len(failed)))
sys.exit(1 if failed else 0)

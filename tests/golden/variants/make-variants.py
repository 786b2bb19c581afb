#!/usr/bin/env python3
"""Settings of the five families that ../hf has no case for, with the same numbers, made by ../hf/make-hf.py.

    python3 make-variants.py [OUT [NAME…]]   needs torch, transformers, safetensors, numpy

Kept of each: the model folder, batch 0 (ids, labels, logits), its gradients, and the head of ref.json."""
import importlib.util, json, os, sys
from safetensors.torch import load_file, save_file

here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("make_hf", f"{here}/../hf/make-hf.py")
hf = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hf)
base = {c["name"]: c["config"] for c in hf.CASES}
yarn = dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=64, beta_fast=16.0, beta_slow=2.0, mscale=1.0, mscale_all_dim=0.5, truncate=False)

CASES = [
    # biases on all four attention linears and the MLP, one kv head, rows longer than a block of queries
    dict(name="llama-bias", disk="float32", seq=70, config=dict(base["llama"], attention_bias=True, mlp_bias=True, num_key_value_heads=1, head_dim=10)),
    dict(name="llama-linear", disk="bfloat16", seq=100, config=dict(base["llama"], rope_scaling=dict(rope_type="linear", factor=2.0))),
    dict(name="llama-yarn", disk="float16", seq=90, config=dict(base["llama"], head_dim=32, max_position_embeddings=512, rope_scaling=yarn)),
    # rows longer than a block of keys
    dict(name="llama-long", disk="bfloat16", seq=330, rows=2, config=dict(base["llama"], max_position_embeddings=512, vocab_size=101)),
    dict(name="gpt2-untied", disk="bfloat16", config=dict(base["gpt2"], n_inner=80, tie_word_embeddings=False)), # names with "transformer."
    dict(name="mistral-tied", disk="bfloat16", seq=80, config=dict(base["mistral"], sliding_window=None, tie_word_embeddings=True)),
    dict(name="qwen2-window", disk="bfloat16", config=dict(base["qwen2"], use_sliding_window=True, max_window_layers=2, tie_word_embeddings=False)),
    dict(name="qwen3-bias", disk="bfloat16", seq=70, config=dict(base["qwen3"], attention_bias=True, num_key_value_heads=1, tie_word_embeddings=True)),
    # rows longer than the window: on every layer, on the upper two; windows longer and shorter than a block of queries
    dict(name="mistral-window", disk="bfloat16", seq=300, rows=2, config=dict(base["mistral"], sliding_window=70, vocab_size=101, max_position_embeddings=512)),
    dict(name="qwen2-upper", disk="bfloat16", seq=80, rows=3, config=dict(base["qwen2"], use_sliding_window=True, sliding_window=9, max_window_layers=2)),
]

root = sys.argv[1] if len(sys.argv) > 1 else here
for i, case in enumerate(CASES):
    if len(sys.argv) > 2 and case["name"] not in sys.argv[2:]: continue
    hf.make(dict(case, seed=100 + i, lora=None), root)
    out = f"{root}/{case['name']}"
    os.remove(f"{out}/final.safetensors")
    io = load_file(f"{out}/io.safetensors")
    save_file({k: v[:1].contiguous() if k != "logits" else v for k, v in io.items()}, f"{out}/io.safetensors")
    ref = json.load(open(f"{out}/ref.json"))
    keep = ("case", "made_with", "parameters", "loss", "tokens", "grad_norm", "ce_sum_rows", "trained_rows")
    json.dump({k: ref[k] for k in keep} | {"fp32_noise": {k: ref["fp32_noise"][k] for k in ("logits_max_abs", "grads_rel_max")}},
              open(f"{out}/ref.json", "w"), indent=1)

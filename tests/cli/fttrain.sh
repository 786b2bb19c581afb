#!/bin/sh
# fttrain.sh BIN: the command line of fttrain: statuses, messages with file:line and remedy, the JSON that ftlaunch reads.
bin=$1
golden=${FT_SOURCE:-.}/tests/golden/hf
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
bad=0
n=0

# expect STATUS TEXT… -- COMMAND…: the status, and every text in what the command prints (stdout and stderr)
expect() {
    want=$1
    shift
    texts="$tmp/texts"
    : >"$texts"
    while [ "$1" != -- ]; do
        printf '%s\n' "$1" >>"$texts"
        shift
    done
    shift
    "$@" >"$tmp/printed" 2>&1 </dev/null
    got=$?
    n=$((n + 1))
    if [ "$got" != "$want" ]; then
        echo "FAIL: $*: status $got, not $want"
        sed 's/^/  | /' "$tmp/printed"
        bad=$((bad + 1))
    fi
    while IFS= read -r text; do
        if ! grep -qF -e "$text" "$tmp/printed"; then
            echo "FAIL: $*: does not say: $text"
            sed 's/^/  | /' "$tmp/printed"
            bad=$((bad + 1))
        fi
    done <"$texts"
}

f=${FTTRAIN:-$bin/fttrain}
unset FT_JOB RANK WORLD_SIZE MASTER_ADDR MASTER_PORT

for i in 1 2 3 4 5 6 7 8; do echo "{\"input_ids\": [$i, 2, 3, 4], \"labels\": [-100, -100, 3, 4]}"; done >"$tmp/train.jsonl"
job=$tmp/job.ini
cat >"$job" <<EOF
[model]
path = $golden/llama
precision = fp32
[data]
train = $tmp/train.jsonl
format = tokens
packing = no
seq_len = 32
[train]
steps = 30
global_batch = 4
lr = 1e-4
[export]
dir = $tmp/out
EOF

# words and options
expect 0 'usage: fttrain' 'check' 'model' -- "$f" --help
expect 0 'fttrain 0.' 'device cpu' 'device cuda (not in this build)' 'architecture qwen3' 'collectives tcp' -- "$f" --version
expect 0 '.TH FTTRAIN 1' 'fit' '.SH EXIT STATUS' -- "$f" man
expect 2 "'trian' is neither a command nor a job file" "did you mean 'train'?" -- "$f" trian
expect 2 'no job file' 'FT_JOB' -- "$f"
expect 2 'has no option --nosuch' -- "$f" check --nosuch "$job"
expect 2 "cannot read 'nosuch.ini': No such file or directory" -- "$f" check nosuch.ini
expect 0 '--set SECTION.KEY=VALUE' -- "$f" check --help

# a job that is right, and what is said about it
expect 0 'global batch 4 = micro 1' '30 updates' -- "$f" check "$job"
expect 0 '"schema":1' '"faults":[' '"severity":"warning"' -- "$f" check --json "$job" --set train.lr=1e-3 --set train.warmup=0
expect 0 '"train.lr":{"value":"1e-4","from":"'"$job"':12"}' '"train.clip":{"value":"1","from":"default"}' -- "$f" check --json --shallow "$job"
expect 0 '"train.lr":{"value":"2e-4","from":"--set"}' -- "$f" check --json --shallow "$job" --set train.lr=2e-4
expect 0 '"family":"llama"' '"parameters":102480' '"trained_tokens":16' '"rows":8' -- "$f" check --json "$job"
expect 0 '"legal":true' '"data":2' '"rank":1' '"weights":' '"layers":[0,4]' -- "$f" plan --json "$job" --world 2
expect 0 'a rank:' 'decay' -- "$f" plan "$job"
expect 0 'global batch' -- env FT_JOB="$job" "$f" check
expect 2 '"why":"global_batch 4 is not a multiple of 1·3 = 3; nearest 3, 6' '"legal":false' -- "$f" plan --json "$job" --world 3

# every fault in one run, each with its place and its remedy
cat >"$tmp/bad.ini" <<EOF
[model]
path = $golden/llama
[data]
train = $tmp/train.jsonl
format = tokens
seq_len = 32
[train]
lrr = 1
steps = many
schedule = cosin
[trian]
x = 1
EOF
expect 2 "unknown key 'lrr' in [train]" "bad.ini:8" 'likely: lr' "steps: 'many' is not a whole number" 'bad.ini:9' \
    "did you mean 'cosine'?" "unknown section 'trian'" 'likely: [train]' -- "$f" check "$tmp/bad.ini"
expect 2 '"file":"--set"' '"section":"train"' '"key":"lr"' '"severity":"error"' -- "$f" check --json --shallow "$job" --set train.lr=-1
expect 2 'are both given' 'remove one of them' -- "$f" check "$job" --set train.epochs=2
expect 2 "valid: '100%' is no share of train" -- "$f" check "$job" --set data.valid=100%
expect 2 'a share of train stands alone' 'name files, or one share' -- "$f" check "$job" --set "data.valid=$tmp/train.jsonl, 5%"
expect 2 "no record format has a field 'foo'" 'prompt completion' -- "$f" check "$job" --set data.columns=foo:bar
expect 0 'terminator = </s> has no effect with format = tokens' 'leave terminator out' -- "$f" check "$job" --set 'data.terminator=</s>'
expect 2 'patience = 2 without [data] valid' -- "$f" check "$job" --set eval.patience=2
expect 2 'min_lr = 1 is larger than lr' -- "$f" check "$job" --set train.min_lr=1
expect 2 'warmup' 'neither a number of updates (100) nor a share' -- "$f" check "$job" --set train.warmup=3x
expect 0 'global batch 4 = micro 1' -- "$f" check "$job" --set parallel.tensor=2 --world 2
expect 0 'warning: sequence = yes has no effect with tensor = 1' -- "$f" check "$job" --set parallel.sequence=yes
expect 0 'layout  tensor 2 × pipeline 1 × data 1, sequence parallel' -- "$f" plan "$job" --set parallel.sequence=yes --set parallel.tensor=2 --world 2
expect 0 '"sequence":true' -- "$f" plan --json "$job" --set parallel.sequence=yes --set parallel.tensor=2 --world 2
expect 0 '"sequence":false' -- "$f" plan --json "$job" --set parallel.sequence=yes --world 2
expect 0 'stages  2 layers each, 1F1B over 4 micro-batches: idle 0.25 of the working time (20.0 % of an update)' -- \
    "$f" plan "$job" --set parallel.pipeline=2 --world 2
expect 0 'stage 0 F0 F1 B0 F2 B1 F3 B2 B3' 'stage 1 F0 B0 F1 B1 F2 B2 F3 B3' -- "$f" plan -v "$job" --set parallel.pipeline=2 --world 2
expect 0 'stages  2 layers each in 2 chunks, 1F1B over 4 micro-batches: idle 0.125 of the working time (11.1 % of an update)' -- \
    "$f" plan "$job" --set parallel.pipeline=2 --set parallel.virtual_pipeline=2 --world 2
expect 0 '"stages":[{"layers":[0,1,2,3]},{"layers":[1,2,3,4]}]' -- \
    "$f" plan --json "$job" --set parallel.pipeline=2 --set parallel.virtual_pipeline=2 --world 2
expect 2 'method = lora is not built yet' 'set method = full' -- "$f" check "$job" --set train.method=lora
expect 2 'precision = fp8 is not built yet' 'set precision = bf16' -- "$f" check "$job" --set model.precision=fp8
expect 2 'device = cuda is not built yet' -- "$f" check "$job" --set train.device=cuda
expect 2 'rank is not built yet' -- "$f" check "$job" --set lora.rank=8
expect 2 'what = merged is not built yet' -- "$f" check "$job" --set export.what=merged
expect 2 'global_batch 10 is not a multiple of 2·4 = 8; nearest 8, 16' -- \
    "$f" check "$job" --set train.global_batch=10 --set train.micro_batch=2 --world 4

expect 2 "'train.lrr' is no key that may differ from a checkpoint's" -- "$f" check "$job" --set checkpoint.accept=train.steps,train.lrr
expect 0 -- "$f" check "$job" --set checkpoint.accept=train.steps,train.epochs,train.lr,data,data.train,data.template,model.precision

# model folder and data
expect 2 'config.json' 'No such file or directory' '[model] path' -- "$f" check "$job" --set model.path="$tmp/nosuch"
expect 2 'No such file or directory' -- "$f" check "$job" --set data.train="$tmp/nosuch.jsonl"
expect 2 "beyond the model's 64 learned positions" 'set [data] seq_len = 64' -- "$f" check "$job" --set model.path="$golden/gpt2" --set data.seq_len=65
mkdir "$tmp/exists"
touch "$tmp/no-folder"
expect 2 "cannot keep checkpoints in '$tmp/no-folder/x': '$tmp/no-folder' is no folder" 'set [checkpoint] dir' -- "$f" check "$job" --set checkpoint.dir="$tmp/no-folder/x"
expect 2 "cannot keep checkpoints in '$tmp/no-folder'" -- "$f" "$job" --set checkpoint.dir="$tmp/no-folder"
expect 2 "cannot export to '/proc/x': no folder can be made in '/proc'" -- "$f" check "$job" --set export.dir=/proc/x
touch "$tmp/base.gguf"
expect 2 "'$tmp/base.gguf' holds a quantised single file, not a training base" '[model] path' -- "$f" check "$job" --set model.path="$tmp/base.gguf"
expect 2 "cannot export to '$tmp/exists': it exists" -- "$f" check "$job" --set export.dir="$tmp/exists"
echo '{"input_ids": [1, 2], "labels": [1]}' >"$tmp/wrong.jsonl"
echo 'no json' >>"$tmp/wrong.jsonl"
echo '{"input_ids": [1, 900], "labels": [-100, 900]}' >>"$tmp/wrong.jsonl"
expect 2 'wrong.jsonl:1' 'ids-labels-length' 'wrong.jsonl:2' 'json' 'wrong.jsonl:3' 'bad-id' -- "$f" check "$job" --set data.train="$tmp/wrong.jsonl"
echo '{"input_ids": [1, 2, 3], "labels": [-100, -100, -100]}' >"$tmp/untrained.jsonl"
expect 2 -- "$f" check "$job" --set data.train="$tmp/untrained.jsonl"

# memory: what does not fit is refused with numbers, --fit finds what does
big="--set train.global_batch=64 --set train.micro_batch=64"
expect 2 'one rank needs' 'are free' 'with the same global batch: micro_batch = 1, accumulation 64' 'recompute = full' -- \
    "$f" plan "$job" $big --memory 36000000
expect 2 'one rank needs' '[parallel] sequence = yes (' -- "$f" plan "$job" $big --memory 36000000 --set parallel.tensor=2 --world 2
expect 0 'fit     changed: micro_batch = ' 'global batch 64' -- "$f" plan "$job" $big --memory 36000000 --fit
expect 0 '"fit":{"train.micro_batch":' -- "$f" plan --json "$job" $big --memory 36000000 --fit
expect 0 '"fit":{}' -- "$f" plan --json "$job" $big --memory 4000000000 --fit
expect 2 'one rank needs' -- "$f" plan "$job" $big --memory 1000000 --fit

# tables
expect 0 '"name":"train"' '"name":"global_batch"' '"type":"enum"' '"values":["constant","linear","cosine","wsd"]' -- "$f" fields --json
expect 0 '[checkpoint]' 'global_batch = 16' -- "$f" fields

# model folders
expect 0 'llama, 102480 parameters' '39 tensors' -- "$f" model info "$golden/llama"
expect 0 '"parameters":126384' '"tied":true' '"family":"gpt2"' -- "$f" model info --json "$golden/gpt2"
mkdir "$tmp/only"
cat >"$tmp/only/config.json" <<EOF
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
 "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05,
 "rope_theta": 500000.0, "tie_word_embeddings": false, "hidden_act": "silu"}
EOF
expect 0 '8030261248 parameters' 'no weights in this folder' -- "$f" model info "$tmp/only"
expect 2 'config.json' -- "$f" model info "$tmp/nosuch"

# memory of a rank of several (runtime maths, section 16): 4,015,263,744 parameters x 9 bytes, 55,296 B a token and layer; what tensor ranks save
eight="--set model.path=$tmp/only --set data.seq_len=4096 --set model.precision=bf16 --set train.global_batch=16 --set export.what=none"
expect 0 'layout  tensor 2 × pipeline 1 × data 4' 'a rank with 4015263744 parameters:  weights 8.0 GB  gradients 16.1 GB  optimizer 12.0 GB  activations 7.3 GB' -- \
    "$f" plan "$job" $eight --set parallel.tensor=2 --set model.recompute=selective --world 8
expect 0 '{"rank":7,"parameters":4015263744,"bytes":' -- "$f" plan --json "$job" $eight --set parallel.tensor=2 --world 8
expect 2 'tensor = 2, data = 2 on the same ranks (' '8 data ranks on more machines (' -- "$f" plan "$job" $eight --memory 50000000000 --world 4
expect 2 'tensor = 2 on 2 ranks (' -- "$f" plan "$job" $eight --memory 50000000000 --world 1
expect 0 'fit     changed: micro_batch = 1, recompute = full' -- \
    "$f" plan "$job" $eight --set parallel.tensor=4 --set train.micro_batch=4 --world 4 --memory 40000000000 --fit
expect 2 'wants info or export' -- "$f" model
expect 2 'is not built yet' -- "$f" model merge a b
expect 0 -- "$f" model export "$golden/llama" -o "$tmp/fp32" --dtype fp32
expect 0 'llama, 102480 parameters' 'F32' -- "$f" model info -v "$tmp/fp32"
expect 2 'it exists' -- "$f" model export "$golden/llama" -o "$tmp/fp32"
expect 2 'is none of base, fp32, bf16, fp16' -- "$f" model export "$golden/llama" -o "$tmp/x" --dtype int8

# a rank that contradicts itself
expect 2 'RANK' -- env RANK=3 WORLD_SIZE=2 "$f" "$job"

# a run by hand
cd "$tmp" || exit 1
expect 0 'step 30 of 30' "written to $tmp/out" -- "$f" "$job"
for file in config.json model.safetensors; do [ -s "$tmp/out/$file" ] || { echo "FAIL: no $file in the export"; bad=$((bad + 1)); }; done
lines=$(grep -c '"lr"' "$tmp/metrics.jsonl")
[ "$lines" = 30 ] || { echo "FAIL: $lines lines of metrics, not 30"; bad=$((bad + 1)); }
expect 2 'it exists' -- "$f" "$job"
rm -rf "$tmp/out"
expect 0 'resumed step 30' 'nothing left to train' "written to $tmp/out" -- "$f" "$job"
rm -rf "$tmp/out"
expect 2 'data.train' 'cannot resume' -- "$f" "$job" --set data.weights=2
expect 2 'weights leave no row' -- "$f" "$job" --set data.weights=0.01
expect 0 'nothing left to train' -- "$f" "$job" --set data.weights=1
# a save beside the run: its copy is planned, 12 bytes a parameter that the rank owns
expect 0 'staging' -- "$f" plan "$job" --set checkpoint.async=yes
"$f" plan "$job" --json --set checkpoint.async=yes | python3 -c '
import json, sys
m = json.load(sys.stdin)["memory"][0]
p = m["parts"]
assert p["staging"] >= 12 * m["parameters"] and p["staging"] == p["optimizer"] // 8 * 12, p
assert sum(p.values()) == m["bytes"], m
' || { echo "FAIL: the plan of a save beside the run"; bad=$((bad + 1)); }
expect 2 'every' 'neither a number of updates (500) nor a duration (30m)' -- "$f" check "$job" --set checkpoint.every=often --set export.what=none

# packing is tested before the first update, with micro-batches of several rows too: its samples together are longer than one row
mkdir "$tmp/packed" && cd "$tmp/packed" || exit 1
expect 0 'step 2 of 2' -- "$f" "$job" --set data.packing=yes --set data.seq_len=12 --set train.micro_batch=4 --set train.steps=2 --set export.what=none
grep -q '"samples":4.*"proves":true' "$tmp/packed/packing.json" || { echo "FAIL: packing was not tested"; bad=$((bad + 1)); }
cd "$tmp" || exit 1

# a checkpoint as a folder: the same as the export of the run
expect 0 'step 30 written to' -- "$f" model export "$tmp" -o "$tmp/from_run"
expect 0 'step 30 written to' -- "$f" model export "$tmp/checkpoints/step_00000030" -o "$tmp/from_checkpoint"
for dir in from_run from_checkpoint; do
    cmp "$tmp/out/model.safetensors" "$tmp/$dir/model.safetensors" || bad=$((bad + 1))
done
expect 2 'is neither a model folder nor a run' -- "$f" model export "$tmp/exists" -o "$tmp/x"

echo "$n command lines, $bad faults"
[ "$bad" = 0 ]

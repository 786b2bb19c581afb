#!/usr/bin/env python3
"""mk-odd.py OUT.jsonl.gz: small tokenizers of every kind that tokenizer.json describes, trained on texts of this project with the PyPI package `tokenizers`, and
what the package makes of random texts. One JSON object a line: {"name", "tokenizer", "texts", "ids", "lists", "decoded", "skipped"}: ids of texts with the
post-processor; lists of ids decoded whole and without special tokens. Written with tokenizers 0.23."""
import gzip, json, os, random, sys
from tokenizers import AddedToken, Regex, Tokenizer, decoders as D, models, normalizers as N, pre_tokenizers as P, processors as PP, trainers

ROOT = os.path.dirname(os.path.abspath(__file__)) + "/../../.."
rng = random.Random(7)
corpus=[]
for f in (f"{ROOT}/tests/golden/smollm2/chats.jsonl", f"{ROOT}/examples/01_laptop/data/train.jsonl"):
    for l in open(f):
        for m in json.loads(l)["messages"]: corpus.append(m["content"])
extra="naïve café Ünïcödé 你好世界 こんにちは カタカナ 안녕하세요 Привет мир שלום مرحبا नमस्ते 🙂👍🏽👨‍👩‍👧 ﬁ ① Ａ e\u0301 \u1e9b\u0323 I'm you'LL they've 123456 3.14 \t\n\r\n  ___ <<>> #@! ...".split(" ")
corpus=corpus[:600]+extra*20
L3=r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
Q2=r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200=r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
def bl(**k): return P.ByteLevel(**k)
BA=P.ByteLevel.alphabet()
def bpe(pre,norm=None,dec=None,alpha=BA,vs=400,ignore=False,added=(),post=None,byte_fallback=False,unk=None,fuse=False,special=()):
    t=Tokenizer(models.BPE(unk_token=unk,byte_fallback=byte_fallback,fuse_unk=fuse))
    if pre is not None: t.pre_tokenizer=pre
    if norm is not None: t.normalizer=norm
    sp=list(special)
    if unk: sp.append(unk)
    if byte_fallback: sp+=["<0x%02X>"%i for i in range(256)]
    t.train_from_iterator(corpus,trainers.BpeTrainer(vocab_size=vs,initial_alphabet=alpha or [],special_tokens=sp,show_progress=False))
    if dec is not None: t.decoder=dec
    if post is not None: t.post_processor=post
    if byte_fallback or unk:
        j=json.loads(t.to_str()); j["added_tokens"]=[a for a in j["added_tokens"] if not a["content"].startswith("<0x")]; t=Tokenizer.from_str(json.dumps(j))
    if ignore: j=json.loads(t.to_str()); j["model"]["ignore_merges"]=True; t=Tokenizer.from_str(json.dumps(j))
    for a in added: (t.add_special_tokens if a.special else t.add_tokens)([a])
    return t
AT=lambda c,sp=True,**k: AddedToken(c,special=sp,**k)
flags=[AT("<|a|>",normalized=False),AT("<mask>",lstrip=True,normalized=False),AT("<r>",rstrip=True,normalized=False),AT("word",False,single_word=True,normalized=True),AT("Éa",False,normalized=True),AT("<|both|>",lstrip=True,rstrip=True,normalized=False),AT("  ",False,normalized=False),AT("<x>",False,normalized=False,single_word=True),AT("<|aa|>",normalized=True),AT("<|a",False,normalized=True),AT("ﬁx",True,normalized=True)]
def uni(**k):
    t=Tokenizer(models.Unigram()); t.normalizer=k.get("norm",None) or N.Sequence([]); t.pre_tokenizer=k.get("pre",P.Metaspace())
    sp=["<unk>","<s>","</s>"]+(["<0x%02X>"%i for i in range(256)] if k.get("bf") else [])
    t.train_from_iterator(corpus,trainers.UnigramTrainer(vocab_size=500,special_tokens=sp,unk_token="<unk>",show_progress=False))
    t.decoder=D.Metaspace()
    j=json.loads(t.to_str()); j["added_tokens"]=[a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
    if k.get("bf"): j["model"]["byte_fallback"]=True; 
    if not k.get("norm"): j["normalizer"]=None
    t=Tokenizer.from_str(json.dumps(j))
    for a in k.get("added",()): (t.add_special_tokens if a.special else t.add_tokens)([a])
    return t
V={
"gpt2":lambda:bpe(bl(add_prefix_space=False),dec=D.ByteLevel(),added=flags),
"gpt2-prefix":lambda:bpe(bl(add_prefix_space=True),dec=D.ByteLevel(),added=flags),
"gpt2-ignore":lambda:bpe(bl(add_prefix_space=False),dec=D.ByteLevel(),ignore=True,added=flags),
"llama3":lambda:bpe(P.Sequence([P.Split(Regex(L3),"isolated"),bl(add_prefix_space=False,use_regex=False)]),dec=D.ByteLevel(),ignore=True,added=flags,special=["<s>"],post=PP.Sequence([PP.ByteLevel(trim_offsets=False),PP.TemplateProcessing(single="<s> $A",pair="<s> $A <s> $B",special_tokens=[("<s>",0)])])),
"qwen2":lambda:bpe(P.Sequence([P.Split(Regex(Q2),"isolated"),bl(add_prefix_space=False,use_regex=False)]),norm=N.NFC(),dec=D.ByteLevel(),added=flags),
"qwen2-removed-inv":lambda:bpe(P.Sequence([P.Split(Regex(Q2),"removed",invert=True),bl(add_prefix_space=False,use_regex=False)]),norm=N.NFC(),dec=D.ByteLevel(),added=flags),
"o200k":lambda:bpe(P.Sequence([P.Split(Regex(O200),"removed",invert=True),bl(add_prefix_space=False,use_regex=False)]),dec=D.ByteLevel(),added=flags,ignore=True),
"deepseek":lambda:bpe(P.Sequence([P.Split(Regex(r"\p{N}{1,3}"),"isolated"),P.Split(Regex(r"[一-龥\u3040-ゟ゠-ヿ]+"),"isolated"),P.Split(Regex(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),"isolated"),bl(add_prefix_space=False,use_regex=False)]),dec=D.ByteLevel(),added=flags),
"deepseek-coder":lambda:bpe(P.Sequence([P.Split(Regex(r"[\r\n]"),"isolated"),P.Split(Regex(r"\s?\p{L}+"),"isolated"),P.Split(Regex(r"\s?\p{P}+"),"isolated"),P.Split(Regex(r"[一-龥ࠀ-一가-퟿]+"),"isolated"),P.Digits(individual_digits=True),bl(add_prefix_space=False)]),dec=D.ByteLevel(),added=flags),
"smollm":lambda:bpe(P.Sequence([P.Digits(individual_digits=True),bl(add_prefix_space=False)]),dec=D.ByteLevel(),added=flags),
"starcoder-digits":lambda:bpe(P.Sequence([P.Digits(individual_digits=False),bl(add_prefix_space=False)]),dec=D.ByteLevel(),added=flags),
"phi-nfkc":lambda:bpe(bl(add_prefix_space=False),norm=N.Sequence([N.NFKC(),N.Lowercase()]),dec=D.ByteLevel(),added=flags),
"bloom":lambda:bpe(P.Sequence([P.Split(Regex(r" ?[^(\s|[.,!?…。，、।۔،])]+"),"isolated"),bl(add_prefix_space=False,use_regex=False)]),dec=D.ByteLevel(),added=flags),
"llama2":lambda:bpe(None,norm=N.Sequence([N.Prepend("▁"),N.Replace(" ","▁")]),dec=D.Sequence([D.Replace("▁"," "),D.ByteFallback(),D.Fuse(),D.Strip(" ",1,0)]),alpha=None,byte_fallback=True,unk="<unk>",fuse=True,special=["<s>","</s>"],added=[a for a in flags]),
"mistral-legacy-false":lambda:bpe(P.Metaspace(replacement="▁",prepend_scheme="first",split=False),dec=D.Sequence([D.Replace("▁"," "),D.ByteFallback(),D.Fuse(),D.Strip(" ",1,0)]),alpha=None,byte_fallback=True,unk="<unk>",fuse=True,special=["<s>"],added=flags),
"gemma":lambda:bpe(P.Split(" ","merged_with_previous"),norm=N.Replace(" ","▁"),dec=D.Sequence([D.Replace("▁"," "),D.ByteFallback(),D.Fuse()]),alpha=None,byte_fallback=True,unk="<unk>",fuse=True,added=flags),
"nofuse-unk":lambda:bpe(P.Whitespace(),alpha=["a","b","c","e","t"],vs=300,unk="<unk>",added=flags),
"meta-always-split":lambda:bpe(P.Metaspace(prepend_scheme="always",split=True),alpha=None,unk="<unk>",fuse=True,dec=D.Metaspace(prepend_scheme="always"),added=flags),
"meta-never":lambda:bpe(P.Metaspace(prepend_scheme="never",split=True),alpha=None,unk="<unk>",fuse=False,dec=D.Metaspace(prepend_scheme="never"),added=flags),
"ws-punct":lambda:bpe(P.Sequence([P.WhitespaceSplit(),P.Punctuation("contiguous")]),alpha=None,unk="<unk>",added=flags),
"split-next":lambda:bpe(P.Split(Regex(r"[aeiou]+"),"merged_with_next"),alpha=None,unk="<unk>",fuse=True,added=flags),
"split-prev":lambda:bpe(P.Split(Regex(r"\p{Lu}|\s"),"merged_with_previous"),alpha=None,unk="<unk>",fuse=True,added=flags),
"split-contig":lambda:bpe(P.Split(Regex(r"[a-m]"),"contiguous"),alpha=None,unk="<unk>",fuse=True,added=flags),
"unigram":lambda:uni(added=flags),
"unigram-bf":lambda:uni(bf=True,added=flags),
"unigram-norm":lambda:uni(norm=N.Sequence([N.NFKC(),N.Replace(Regex(" {2,}")," "),N.Strip()]),added=flags),
"unigram-meta-first":lambda:uni(pre=P.Metaspace(prepend_scheme="first",split=True),bf=True,added=flags),
"strip-accents":lambda:bpe(bl(add_prefix_space=False),norm=N.Sequence([N.NFD(),N.StripAccents(),N.Lowercase()]),dec=D.ByteLevel(),added=flags),
"nfkd-strip":lambda:bpe(bl(add_prefix_space=True),norm=N.Sequence([N.NFKD(),N.Strip(left=True,right=True)]),dec=D.ByteLevel(),added=flags),
"two-bytelevel":lambda:bpe(P.Sequence([bl(add_prefix_space=False,use_regex=True),bl(add_prefix_space=False,use_regex=False)]),dec=D.ByteLevel(),added=flags),
}
pool=["a","b","the ","The","ing"," ","  ","   ","\n","\n\n","\r\n","\t","1","12","1234","3.14","'s","'LL","'ve","’s","é","e\u0301","É","ﬁ","ﬁx","①","Ａ","你","好","世界","こん","カ","한","\u1112\u1161\u11ab","П","р","ш","م","ـ","न","ि","🙂","👍🏽","👨‍👩‍👧","\u200d","\u00a0","\u3000","\u2028","\u0085","\u180e","\u200b","\ufeff","_","-","--","...","!","?","<","|",">","<|a|>","<mask>","<r>","word","words","Éa","éa","<|both|>","<x>","<|aa|>","<|AA|>","<|a","▁","<0x41>","</s>","<s>","<unk>","Ġ","ſ","İ","ß","ẞ","ŉ","Σ","ς","\u0345","\U0001F1E9\U0001F1EA","\u0300","\u0c4d","ǅ","ʰ","²","½","Ⅷ","०","A","Z","AbC","x=1;","/","\\","{","}","#","@","$","€","∑","\x00" if False else "\x1f","\x7f","𝒳","𐍈","\U0010ffff"]
def rtext():
    k=rng.random()
    if k<.6: return "".join(rng.choice(pool) for _ in range(rng.randint(0,25)))
    if k<.8: return "".join(rng.choice(corpus)[:60]+rng.choice(pool) for _ in range(rng.randint(1,3)))
    s=""
    while len(s)<rng.randint(1,20):
        c=rng.choice((rng.randint(1,0x7f),rng.randint(0x80,0x7ff),rng.randint(0x800,0x2fff),rng.randint(0x3000,0xd7ff),rng.randint(0xe000,0xffff),rng.randint(0x10000,0x1ffff)))
        s+=chr(c)
    return s
with gzip.GzipFile(sys.argv[1], "wb", mtime=0) as out:
    for name, make in V.items():
        t = Tokenizer.from_str(make().to_str())
        texts = [rtext() for _ in range(60)]
        ids = [t.encode(x).ids for x in texts]
        lists = ids[:30] + [[rng.randrange(t.get_vocab_size()) for _ in range(rng.randint(0, 9))] for _ in range(30)]
        row = {"name": name, "tokenizer": json.loads(t.to_str()), "texts": texts, "ids": ids, "lists": lists, "decoded": [t.decode(x, skip_special_tokens=False) for x in lists],
               "skipped": [t.decode(x, skip_special_tokens=True) for x in lists]}
        out.write((json.dumps(row, ensure_ascii=False) + "\n").encode())

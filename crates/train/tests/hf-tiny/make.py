"""Makes this folder: a random GPT-2 as transformers saves it, with the logits that it computes.

Made with torch 2.11.0 and transformers 5.22.2: python crates/train/tests/hf-tiny/make.py
"""

import json
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel

HERE = Path(__file__).resolve().parent
IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]

torch.manual_seed(11)
sizes = {"n_layer": 2, "n_head": 2, "n_embd": 12, "n_positions": 10, "vocab_size": 14}
config = GPT2Config(**sizes, initializer_range=0.3, bos_token_id=None, eos_token_id=None)
model = GPT2LMHeadModel(config).eval()
with torch.no_grad():
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(HERE)
    logits = model(torch.tensor([IDS])).logits[0].tolist()
letters = {letter: index for index, letter in enumerate("\n abcdefghijkl")}
tokenizer = Tokenizer(models.WordLevel(letters, unk_token="?"))
tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
tokenizer.decoder = decoders.Fuse()
tokenizer.save(str(HERE / "tokenizer.json"))
(HERE / "generation_config.json").unlink()
(HERE / "logits.json").write_text(json.dumps({"ids": IDS, "logits": logits}) + "\n")

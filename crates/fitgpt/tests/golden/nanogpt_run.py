"""A short run of nanoGPT's loop, from PyTorch: `nanogpt_run.py > nanogpt_run.txt`.

Written from the loop's description: what is drawn from the one generator, in which order, and what
is printed. The test that reads the output trains the same model on the same tokens with
`--sampler=nanogpt` and must print the same losses. Tokens follow a formula, so there is no file.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

SEED, VOCAB, LAYERS, HEADS, WIDTH, BLOCK, BATCH, ACCUMULATION = 1337, 29, 2, 2, 32, 16, 4, 2
MAX_ITERS, EVAL_INTERVAL, EVAL_ITERS, WARMUP = 300, 100, 3, 20
LEARNING_RATE, MIN_LR, DECAY, BETAS, CLIP = 3e-3, 3e-4, 0.1, (0.9, 0.99), 1.0
TOKENS = {"train": 5000, "val": 700}


def tokens(split):
    """A noisy walk: the next id depends on the last one and on a linear congruential generator."""
    noise, here, out = (1 if split == "train" else 2), 0, []
    for _ in range(TOKENS[split]):
        noise = (noise * 1103515245 + 12345) % 2**31
        here = (here * 5 + (noise >> 16) % 4) % VOCAB
        out.append(here)
    return torch.tensor(out)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH, bias=False)
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.attn_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.ln_2 = nn.LayerNorm(WIDTH, bias=False)
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.mlp_proj = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        rows, length, _ = x.shape
        parts = self.c_attn(self.ln_1(x)).split(WIDTH, dim=2)
        q, k, v = (p.view(rows, length, HEADS, -1).transpose(1, 2) for p in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(seen.transpose(1, 2).reshape(x.shape))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.wte.weight = self.head.weight
        drawn = [m for m in self.modules() if isinstance(m, (nn.Linear, nn.Embedding))]
        for module in drawn:  # the tied weight is drawn twice; the last draw stays
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        for block in self.blocks:
            for projection in (block.attn_proj, block.mlp_proj):
                std = 0.02 / math.sqrt(2 * LAYERS)
                nn.init.normal_(projection.weight, mean=0.0, std=std)

    def forward(self, x, y):
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.ln_f(h)).flatten(0, 1), y.flatten())


def rate(iteration):
    if iteration < WARMUP:
        return LEARNING_RATE * (iteration + 1) / (WARMUP + 1)
    share = (iteration - WARMUP) / (MAX_ITERS - WARMUP)
    return MIN_LR + 0.5 * (1 + math.cos(math.pi * share)) * (LEARNING_RATE - MIN_LR)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    data = {split: tokens(split) for split in TOKENS}
    model = Model()
    groups = [[p for p in model.parameters() if (p.dim() >= 2) == wide] for wide in (True, False)]
    optimizer = torch.optim.AdamW(
        [{"params": groups[0], "weight_decay": DECAY}, {"params": groups[1], "weight_decay": 0.0}],
        lr=LEARNING_RATE,
        betas=BETAS,
    )

    def batch(split):
        starts = torch.randint(len(data[split]) - BLOCK, (BATCH,))
        rows = [[data[split][i + s : i + s + BLOCK] for i in starts] for s in (0, 1)]
        return torch.stack(rows[0]), torch.stack(rows[1])

    def estimate(split):
        with torch.no_grad():
            return sum(model(*batch(split)).item() for _ in range(EVAL_ITERS)) / EVAL_ITERS

    ahead = batch("train")
    for iteration in range(MAX_ITERS + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(iteration)
        if iteration % EVAL_INTERVAL == 0:
            train, val = estimate("train"), estimate("val")
            print(f"step {iteration}: train loss {train:.6f}, val loss {val:.6f}")
        for _ in range(ACCUMULATION):
            loss = model(*ahead)
            ahead = batch("train")
            (loss / ACCUMULATION).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"iter {iteration}: loss {loss.item():.6f}")


main()

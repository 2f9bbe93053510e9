# GPT-2 124M on OpenWebText, as nanoGPT reproduces it: validation loss about 2.85 after 300 billion
# tokens. Eight A100s need days; on one card this is the setting to plan and compare with.
# Model, optimizer and data stay at their defaults, which are GPT-2's.

wandb_log = True               # nanoGPT reports there; fitGPT says so and writes log.jsonl
wandb_project = 'owt'          # where that report goes
wandb_run_name = 'gpt2-124M'   # and its name

batch_size = 12                      # nanoGPT's micro-batch; here the plan cuts it as memory needs
block_size = 1024                    # GPT-2's context
gradient_accumulation_steps = 5 * 8  # 12 x 1024 x 40 = 491,520 tokens: half a million, as GPT-3

max_iters = 600000       # 600,000 x 491,520 = 295 billion tokens
lr_decay_iters = 600000  # the cosine ends where the run ends

eval_interval = 1000  # some 600 points on the curve
eval_iters = 200      # 200 x 12 x 1024 = 2.5 million tokens of each split
log_interval = 10     # a line for every 5 million tokens

weight_decay = 1e-1   # GPT-3's value, on matrices and embeddings only

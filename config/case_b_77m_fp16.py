# Case (b): 77M parameters in fp16 on an RTX 4070, exactly as its user typed it. PyTorch survives
# the first evaluation and dies in training on 3.07 GiB of logits. It must run here unchanged.

dataset = 'fineweb'  # GPT-2 tokens of FineWeb, in data/fineweb

n_layer = 12   # as deep as GPT-2 small
n_head = 12    # as many heads
n_embd = 576   # but narrower: heads of 48, 76.8M parameters

batch_size = 16                   # 16 x 1024 rows of logits at a time
block_size = 1024                 # GPT-2's context
gradient_accumulation_steps = 32  # 32 x 16 x 1024 = 524,288 tokens an iteration

eval_iters = 200    # nanoGPT's default, which its evaluation had to pass
dtype = 'float16'   # with a scaled loss, as PyTorch's GradScaler does it

# Case (a): GPT-2 124M with a micro-batch of 64, exactly as its user typed it for a 12 GB card.
# PyTorch dies in the first evaluation on 6.14 GiB of logits (65536 x 50304 in bfloat16). It must
# run here unchanged, in 11.69 GiB and in the 9.7 GiB that other programs had left.

dataset = 'openwebtext_local'  # the user's own copy of OpenWebText

n_layer = 12   # GPT-2 small:
n_head = 12    # 12 x 12 x 768
n_embd = 768   # is 124M parameters

batch_size = 64                  # the key to the case: 64 x 1024 = 65,536 rows of logits
block_size = 1024                # GPT-2's context
gradient_accumulation_steps = 1  # all of an iteration in one micro-batch

eval_iters = 200    # 200 batches of the same 65,536 rows, for each split
max_iters = 20000   # 1.3 billion tokens
log_interval = 100  # a line for every 6.5 million tokens

dtype = 'bfloat16'  # what PyTorch chooses on this card
compile = True      # nanoGPT's default, and what the user ran

# Case (b) after the advice its user was given: a smaller model, smaller evaluations, recomputed
# activations. fitGPT needs none of it (config/case_b_77m_fp16.py runs as it is); this must run too.

dataset = 'fineweb'  # GPT-2 tokens of FineWeb, in data/fineweb

n_layer = 12   # as deep as GPT-2 small
n_head = 8     # 512 / 8 = 64, GPT-2's head size; 12 heads do not divide 512
n_embd = 512   # 63.5M parameters

batch_size = 16                   # as in case (b)
block_size = 1024                 # GPT-2's context
gradient_accumulation_steps = 32  # 524,288 tokens an iteration, as in case (b)

eval_batch_size = 4   # a quarter of the logits; nanoGPT has no such key and ignores it in a file
eval_iters = 100      # with four sequences: 409,600 tokens of each split
eval_interval = 500   # cheaper evaluations can be more frequent
grad_checkpoint = True  # compute activations again in the backward pass instead of keeping them

dtype = 'float16'   # as in case (b)

# GPT-2 124M on OpenWebText with nanoGPT's defaults written out, each with its reason: a file to
# copy and change. Only out_dir differs from what `--dataset=openwebtext` alone would do.

out_dir = 'out-openwebtext'    # a folder of its own, so that no other run is overwritten
dataset = 'openwebtext'        # 9.0 billion tokens of GPT-2's vocabulary, in data/openwebtext

eval_interval = 2000           # an evaluation costs as much as three or four iterations
eval_iters = 200               # 200 x 12 x 1024 tokens of each split
log_interval = 1               # an iteration of half a million tokens deserves a line
always_save_checkpoint = True  # a run of weeks must survive a power cut
init_from = 'scratch'          # 'resume' goes on from out_dir's checkpoint

gradient_accumulation_steps = 5 * 8  # 40 x 12 x 1024 = 491,520 tokens an iteration
batch_size = 12                      # a micro-batch; the plan may cut it further
block_size = 1024                    # GPT-2's context

n_layer = 12   # these three are
n_head = 12    # GPT-2 small:
n_embd = 768   # 123.6M parameters as nanoGPT counts them
dropout = 0.0  # 124M parameters cannot learn 9 billion tokens by heart
bias = False   # nothing is lost, and there is a little less to compute

learning_rate = 6e-4    # GPT-3's rate for 125M
max_iters = 600000      # 600,000 x 491,520 = 295 billion tokens
weight_decay = 1e-1     # GPT-3's value
beta1 = 0.9             # the usual memory of the gradient
beta2 = 0.95            # shorter than Adam's 0.999: it follows a sudden change of the gradients
grad_clip = 1.0         # a rare bad batch must not throw the weights away

decay_lr = True          # warm-up, then a cosine
warmup_iters = 2000      # a billion tokens of ramp
lr_decay_iters = 600000  # the cosine ends where the run ends
min_lr = 6e-5            # a tenth of the largest rate

# A character model of Shakespeare: 10.65M parameters, 1.1 million characters of text.
# The first thing to train: minutes on a GPU, and the text shows at once whether it works.
# The same keys and values as nanoGPT's preset of this name, so losses can be compared.

out_dir = 'out-shakespeare-char' # a folder of its own, so that no other run is overwritten
eval_interval = 250              # often: a model this size starts to learn its text by heart
eval_iters = 200                 # 200 x 64 x 256 = 3.3 million characters of each split
log_interval = 10                # iterations are short; a line for each would only scroll

always_save_checkpoint = False   # past the best validation loss the weights only get worse

dataset = 'shakespeare_char'     # 65 characters, in data/shakespeare_char
gradient_accumulation_steps = 1  # the batch below fits at once
batch_size = 64                  # with 256 characters: 16,384 tokens an iteration
block_size = 256                 # a few lines of a scene; characters are short tokens

n_layer = 6    # large enough to write words, names and verse,
n_head = 6     # small enough for five thousand iterations in minutes;
n_embd = 384   # 384 / 6 = 64, GPT-2's own head size
dropout = 0.2  # each character is seen about 80 times, so learning by heart is the danger

learning_rate = 1e-3   # small models bear a larger rate than the 6e-4 of 124M
max_iters = 5000       # the validation loss is lowest after about 1750
lr_decay_iters = 5000  # the same as max_iters: the cosine ends where the run ends
min_lr = 1e-4          # a tenth of the largest rate
beta2 = 0.99           # few tokens an iteration: average squared gradients over more of them
warmup_iters = 100     # a short ramp is enough at this size

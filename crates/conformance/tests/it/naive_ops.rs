//! The formulas of all ops, as `plan::ops` states them.

use crate::naive::Naive;
use plan::ops::{
    AdamW, Attention, AttentionBackward, AttentionDecode, CacheStore, Dropout, DropoutSite, Embed,
    EmbedBackward, Gelu, GeluBackward, GeluBefore, GeluKind, GradNorm, HeadEval, HeadTrain,
    LayerNorm, LayerNormBackward, Linear, LinearBackwardInput, LinearBackwardWeight, LossScaler,
    PositionFrom, Scaling, SelectPosition, Write,
};
use plan::{StepInputs, TensorId};
use rng::dropout::{DRAWS, MaskKey, Site, attention_draw, threshold};

fn mask_key(dropout: Dropout, inputs: &StepInputs) -> MaskKey {
    let site = match dropout.site {
        DropoutSite::Embedding => Site::Embedding,
        DropoutSite::Attention => Site::Attention,
        DropoutSite::AttentionProjection => Site::AttentionProjection,
        DropoutSite::MlpProjection => Site::MlpProjection,
    };
    MaskKey::new(inputs.seed, inputs.iteration, dropout.layer, site)
}

fn factor(dropout: Dropout, draw: u16) -> f64 {
    if draw >= threshold(dropout.probability) { f64::from(dropout.keep_scale()) } else { 0.0 }
}

/// What dropout multiplies element (row, column) by; rows are counted over the iteration.
fn kept(dropout: Option<Dropout>, inputs: &StepInputs, row: usize, column: usize) -> f64 {
    let Some(dropout) = dropout else { return 1.0 };
    let draws = mask_key(dropout, inputs).draws(row as u64, (column / DRAWS) as u32);
    factor(dropout, draws[column % DRAWS])
}

fn three(dims: &[usize]) -> [usize; 3] {
    dims.try_into().unwrap()
}

pub fn embed(b: &mut Naive, op: &Embed, inputs: &StepInputs) {
    let [rows, positions, width] = three(&b.dims(op.out));
    let (tokens, wte, wpe) = (b.ids(op.tokens), b.get(op.wte), op.wpe.map(|wpe| b.get(wpe)));
    let first = match op.position {
        PositionFrom::Zero => 0,
        PositionFrom::Step => inputs.position as usize,
    };
    let mut out = vec![0.0; rows * positions * width];
    for token in 0..rows * positions {
        for c in 0..width {
            let place = (first + token % positions) * width + c;
            let sum = wte[tokens[token] as usize * width + c]
                + wpe.as_ref().map_or(0.0, |wpe| wpe[place]);
            let row = inputs.first_row as usize * positions + token;
            out[token * width + c] = sum * kept(op.dropout, inputs, row, c);
        }
    }
    b.put(op.out, &out);
}

pub fn embed_backward(b: &mut Naive, op: &EmbedBackward, inputs: &StepInputs) {
    let [rows, positions, width] = three(&b.dims(op.d_out));
    let (tokens, d_out) = (b.ids(op.tokens), b.get(op.d_out));
    let (mut d_wte, mut d_wpe) = (b.get(op.d_wte), op.d_wpe.map(|d_wpe| b.get(d_wpe)));
    for token in 0..rows * positions {
        for c in 0..width {
            let row = inputs.first_row as usize * positions + token;
            let d = d_out[token * width + c] * kept(op.dropout, inputs, row, c);
            d_wte[tokens[token] as usize * width + c] += d;
            if let Some(d_wpe) = &mut d_wpe {
                d_wpe[token % positions * width + c] += d;
            }
        }
    }
    b.put(op.d_wte, &d_wte);
    if let (Some(id), Some(d_wpe)) = (op.d_wpe, d_wpe) {
        b.put(id, &d_wpe);
    }
}

/// The mask row of a token of a `[rows, positions, width]` tensor.
fn mask_row(dims: &[usize], inputs: &StepInputs, token: usize) -> usize {
    inputs.first_row as usize * dims[1] + token
}

pub fn layernorm(b: &mut Naive, op: &LayerNorm, inputs: &StepInputs) {
    let dims = b.dims(op.x);
    let width = *dims.last().unwrap();
    if let Some(add) = &op.add {
        let mut sum = b.get(op.x);
        for (i, branch) in b.get(add.branch).into_iter().enumerate() {
            let row = mask_row(&dims, inputs, i / width);
            sum[i] += branch * kept(add.dropout, inputs, row, i % width);
        }
        b.put(add.sum, &sum);
    }
    let x = b.get(op.add.as_ref().map_or(op.x, |add| add.sum));
    let gain = b.get(op.gain);
    let bias = op.bias.map_or(vec![0.0; width], |bias| b.get(bias));
    let (mut out, mut means, mut rstds) = (Vec::new(), Vec::new(), Vec::new());
    for row in x.chunks_exact(width) {
        let mean = row.iter().sum::<f64>() / width as f64;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / width as f64;
        let rstd = 1.0 / (variance + op.epsilon).sqrt();
        out.extend((0..width).map(|c| (row[c] - mean) * rstd * gain[c] + bias[c]));
        means.push(mean);
        rstds.push(rstd);
    }
    b.put(op.out, &out);
    b.put(op.mean, &means);
    b.put(op.rstd, &rstds);
}

pub fn layernorm_backward(b: &mut Naive, op: &LayerNormBackward, inputs: &StepInputs) {
    let dims = b.dims(op.x);
    let width = *dims.last().unwrap();
    let (d_out, x, gain) = (b.get(op.d_out), b.get(op.x), b.get(op.gain));
    let (mean, rstd) = (b.get(op.mean), b.get(op.rstd));
    let mut d_gain = b.get(op.d_gain);
    let mut d_bias = op.d_bias.map_or(vec![0.0; width], |d_bias| b.get(d_bias));
    let mut d_x = match op.write {
        Write::Overwrite => vec![0.0; x.len()],
        Write::Accumulate => b.get(op.d_x),
    };
    for (token, d_row) in d_out.chunks_exact(width).enumerate() {
        let normal = |c: usize| (x[token * width + c] - mean[token]) * rstd[token];
        let d_normal = |c: usize| d_row[c] * gain[c];
        let mean_d = (0..width).map(d_normal).sum::<f64>() / width as f64;
        let mean_d_normal = (0..width).map(|c| d_normal(c) * normal(c)).sum::<f64>() / width as f64;
        for c in 0..width {
            d_gain[c] += d_row[c] * normal(c);
            d_bias[c] += d_row[c];
            let d = (d_normal(c) - mean_d - normal(c) * mean_d_normal) * rstd[token];
            d_x[token * width + c] += d;
        }
    }
    b.put(op.d_gain, &d_gain);
    if let Some(tensor) = op.d_bias {
        b.put(tensor, &d_bias);
    }
    b.put(op.d_x, &d_x);
    if let Some(again) = &op.again {
        let bias = again.bias.map_or(vec![0.0; width], |bias| b.get(bias));
        let one = |(i, x): (usize, &f64)| {
            (x - mean[i / width]) * rstd[i / width] * gain[i % width] + bias[i % width]
        };
        let made: Vec<f64> = x.iter().enumerate().map(one).collect();
        b.put(op.d_out, &made);
    }
    if let Some(branch) = &op.branch {
        let dropout = branch.dropout;
        let masked = |(i, d): (usize, f64)| {
            d * kept(dropout, inputs, mask_row(&dims, inputs, i / width), i % width)
        };
        let d_branch: Vec<f64> = b.get(op.d_x).into_iter().enumerate().map(masked).collect();
        b.put(branch.d_branch, &d_branch);
    }
}

pub fn linear(b: &mut Naive, op: &Linear) {
    let [outputs, inputs] = b.dims(op.w).try_into().unwrap();
    let (x, w) = (b.get(op.x), b.get(op.w));
    let bias = op.bias.map_or(vec![0.0; outputs], |bias| b.get(bias));
    let mut out = Vec::new();
    for token in x.chunks_exact(inputs) {
        out.extend((0..outputs).map(|o| dot(token, &w[o * inputs..][..inputs]) + bias[o]));
    }
    if let Some(residual) = op.residual {
        out.iter_mut().zip(b.get(residual)).for_each(|(out, stream)| *out += stream);
    }
    let sums = op.gelu.and_then(|gelu| gelu.sums).unwrap_or(op.out);
    b.put(sums, &out);
    if let Some(of) = op.gelu {
        gelu(b, &Gelu { x: sums, out: op.out, kind: of.kind });
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub fn linear_backward_input(b: &mut Naive, op: &LinearBackwardInput) {
    let [outputs, inputs] = b.dims(op.w).try_into().unwrap();
    let (d_out, w) = (b.get(op.d_out), b.get(op.w));
    let mut d_x = Vec::new();
    for token in d_out.chunks_exact(outputs) {
        d_x.extend(
            (0..inputs).map(|i| (0..outputs).map(|o| token[o] * w[o * inputs + i]).sum::<f64>()),
        );
    }
    b.put(op.d_x, &d_x);
    if let Some(GeluBefore { kind, x, again }) = op.gelu {
        gelu_backward(b, &GeluBackward { x, d: op.d_x, kind, again });
    }
}

pub fn linear_backward_weight(b: &mut Naive, op: &LinearBackwardWeight) {
    let [outputs, inputs] = b.dims(op.d_w).try_into().unwrap();
    let (d_out, x) = (b.get(op.d_out), b.get(op.x));
    let mut d_w = b.get(op.d_w);
    let mut d_bias = op.d_bias.map_or(vec![0.0; outputs], |d_bias| b.get(d_bias));
    for (token, x) in d_out.chunks_exact(outputs).zip(x.chunks_exact(inputs)) {
        for o in 0..outputs {
            d_bias[o] += token[o];
            for i in 0..inputs {
                d_w[o * inputs + i] += token[o] * x[i];
            }
        }
    }
    b.put(op.d_w, &d_w);
    if let Some(tensor) = op.d_bias {
        b.put(tensor, &d_bias);
    }
}

/// One head of one sequence: where its queries, keys and values are.
#[derive(Clone, Copy)]
struct Head {
    row: usize,
    head: usize,
    heads: usize,
    positions: usize,
    size: usize,
}

impl Head {
    fn all(rows: usize, heads: usize, positions: usize, width: usize) -> Vec<Head> {
        let size = width / heads;
        (0..rows * heads)
            .map(|i| Head { row: i / heads, head: i % heads, heads, positions, size })
            .collect()
    }

    fn width(&self) -> usize {
        self.heads * self.size
    }

    /// First element of the query (0), key (1) or value (2) of a position.
    fn part(&self, part: usize, position: usize) -> usize {
        let token = self.row * self.positions + position;
        token * 3 * self.width() + part * self.width() + self.head * self.size
    }

    /// First element of a position's output.
    fn out(&self, position: usize) -> usize {
        (self.row * self.positions + position) * self.width() + self.head * self.size
    }

    fn mask(&self, op: Option<Dropout>, inputs: &StepInputs, query: usize, key: usize) -> f64 {
        let Some(dropout) = op else { return 1.0 };
        let head = (inputs.first_row as usize + self.row) * self.heads + self.head;
        let (query, key) = (query as u32, key as u32);
        let draws = mask_key(dropout, inputs).attention_draws(head as u64, query, key);
        factor(dropout, draws[attention_draw(query, key)])
    }

    fn score(&self, qkv: &[f64], query: usize, key: usize) -> f64 {
        let (q, k) = (self.part(0, query), self.part(1, key));
        dot(&qkv[q..q + self.size], &qkv[k..k + self.size]) / (self.size as f64).sqrt()
    }
}

pub fn attention(b: &mut Naive, op: &Attention, inputs: &StepInputs) {
    let [rows, positions, width] = three(&b.dims(op.out));
    let qkv = b.get(op.qkv);
    let mut out = vec![0.0; rows * positions * width];
    let mut lse = Vec::new();
    for head in Head::all(rows, op.heads as usize, positions, width) {
        for query in 0..positions {
            let scores: Vec<f64> = (0..=query).map(|key| head.score(&qkv, query, key)).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|score| (score - most).exp()).sum();
            lse.push(most + sum.ln());
            for (key, score) in scores.iter().enumerate() {
                let p = (score - most).exp() / sum * head.mask(op.dropout, inputs, query, key);
                for c in 0..head.size {
                    out[head.out(query) + c] += p * qkv[head.part(2, key) + c];
                }
            }
        }
    }
    b.put(op.out, &out);
    b.put(op.lse, &lse);
}

pub fn attention_backward(b: &mut Naive, op: &AttentionBackward, inputs: &StepInputs) {
    let [rows, positions, width] = three(&b.dims(op.out));
    let (qkv, out, lse, d_out) = (b.get(op.qkv), b.get(op.out), b.get(op.lse), b.get(op.d_out));
    let mut d_qkv = vec![0.0; qkv.len()];
    let mut deltas = Vec::new();
    for (index, head) in Head::all(rows, op.heads as usize, positions, width).iter().enumerate() {
        let scale = 1.0 / (head.size as f64).sqrt();
        for query in 0..positions {
            let at = head.out(query)..head.out(query) + head.size;
            let delta = dot(&d_out[at.clone()], &out[at.clone()]);
            deltas.push(delta);
            for key in 0..=query {
                let p = (head.score(&qkv, query, key) - lse[index * positions + query]).exp();
                let mask = head.mask(op.dropout, inputs, query, key);
                let value = head.part(2, key);
                let d_p = dot(&d_out[at.clone()], &qkv[value..value + head.size]) * mask;
                let d_score = p * (d_p - delta) * scale;
                let (q, k) = (head.part(0, query), head.part(1, key));
                for c in 0..head.size {
                    d_qkv[value + c] += p * mask * d_out[at.start + c];
                    d_qkv[q + c] += d_score * qkv[k + c];
                    d_qkv[k + c] += d_score * qkv[q + c];
                }
            }
        }
    }
    b.put(op.d_qkv, &d_qkv);
    b.put(op.delta, &deltas);
}

/// The error function: its series near zero, a continued fraction of its complement elsewhere.
fn erf(x: f64) -> f64 {
    if x.abs() < 3.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..100 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return sum * 2.0 / std::f64::consts::PI.sqrt();
    }
    let fraction = (1..=60).rev().fold(x.abs(), |f, n| x.abs() + f64::from(n) / 2.0 / f);
    let complement = (-x * x).exp() / fraction / std::f64::consts::PI.sqrt();
    (1.0 - complement).copysign(x)
}

const TANH_CUBE: f64 = 0.044715;

fn tanh_argument(x: f64) -> f64 {
    (2.0 / std::f64::consts::PI).sqrt() * (x + TANH_CUBE * x * x * x)
}

fn gelu_of(kind: GeluKind, x: f64) -> f64 {
    match kind {
        GeluKind::Erf => 0.5 * x * (1.0 + erf(x / 2.0_f64.sqrt())),
        GeluKind::Tanh => 0.5 * x * (1.0 + tanh_argument(x).tanh()),
    }
}

pub fn gelu(b: &mut Naive, op: &Gelu) {
    let out: Vec<f64> = b.get(op.x).into_iter().map(|x| gelu_of(op.kind, x)).collect();
    b.put(op.out, &out);
}

pub fn gelu_backward(b: &mut Naive, op: &GeluBackward) {
    let slope = |x: f64| match op.kind {
        GeluKind::Erf => {
            let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
            0.5 * (1.0 + erf(x / 2.0_f64.sqrt())) + x * density
        }
        GeluKind::Tanh => {
            let t = tanh_argument(x).tanh();
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 3.0 * TANH_CUBE * x * x);
            0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner
        }
    };
    let x = b.get(op.x);
    let d: Vec<f64> = b.get(op.d).iter().zip(&x).map(|(d, &x)| d * slope(x)).collect();
    b.put(op.d, &d);
    if op.again {
        let made: Vec<f64> = x.iter().map(|&x| gelu_of(op.kind, x)).collect();
        b.put(op.x, &made);
    }
}

/// The tensors that both heads have.
struct HeadTensors {
    x: TensorId,
    w: TensorId,
    targets: TensorId,
    token_loss: TensorId,
    row_loss: TensorId,
    padding: u64,
}

/// Writes the losses and calls back with each token that has a target: index and probabilities.
fn head(
    b: &mut Naive,
    op: &HeadTensors,
    inputs: &StepInputs,
    mut each: impl FnMut(usize, Vec<f64>),
) {
    let [rows, positions, width] = three(&b.dims(op.x));
    let (x, w, targets) = (b.get(op.x), b.get(op.w), b.ids(op.targets));
    let mut token_loss = vec![0.0; rows * positions];
    for (token, x) in x.chunks_exact(width).enumerate() {
        if targets[token] < 0 {
            continue;
        }
        let vocabulary = w.len() / width - op.padding as usize;
        let rows = w.chunks_exact(width).take(vocabulary);
        let logits: Vec<f64> = rows.map(|row| dot(x, row)).collect();
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|logit| (logit - most).exp()).sum();
        token_loss[token] = most + sum.ln() - logits[targets[token] as usize];
        each(token, logits.iter().map(|logit| (logit - most).exp() / sum).collect());
    }
    b.put(op.token_loss, &token_loss);
    let mut row_loss = b.get(op.row_loss);
    for (row, losses) in token_loss.chunks_exact(positions).enumerate() {
        row_loss[inputs.first_row as usize + row] = losses.iter().sum();
    }
    b.put(op.row_loss, &row_loss);
}

pub fn head_train(b: &mut Naive, op: &HeadTrain, inputs: &StepInputs) {
    let &HeadTrain { x, w, targets, token_loss, row_loss, padding, .. } = op;
    let (x_values, w_values, ids) = (b.get(x), b.get(w), b.ids(targets));
    let width = *b.dims(x).last().unwrap();
    let factor = f64::from(inputs.inverse_tokens) * f64::from(b.state(op.state).loss_scale);
    let (mut d_x, mut d_w) = (vec![0.0; x_values.len()], b.get(op.d_w));
    let tensors = HeadTensors { x, w, targets, token_loss, row_loss, padding };
    head(b, &tensors, inputs, |token, mut d_logits| {
        d_logits[ids[token] as usize] -= 1.0;
        for (id, d) in d_logits.into_iter().enumerate() {
            for c in 0..width {
                d_x[token * width + c] += d * factor * w_values[id * width + c];
                d_w[id * width + c] += d * factor * x_values[token * width + c];
            }
        }
    });
    b.put(x, &d_x);
    b.put(op.d_w, &d_w);
}

pub fn head_eval(b: &mut Naive, op: &HeadEval, inputs: &StepInputs) {
    let &HeadEval { x, w, targets, token_loss, row_loss, padding, .. } = op;
    head(b, &HeadTensors { x, w, targets, token_loss, row_loss, padding }, inputs, |_, _| {});
}

/// Puts keys and values of tokens at `first` and after into the cache.
fn store(b: &mut Naive, qkv: TensorId, cache: TensorId, first: usize) {
    let [_, rows, heads, block, size] = b.dims(cache).try_into().unwrap();
    let [_, positions, _] = three(&b.dims(qkv));
    let (values, mut cached) = (b.get(qkv), b.get(cache));
    for head in Head::all(rows, heads, positions, heads * size) {
        for position in 0..positions {
            for part in [1, 2] {
                let from = head.part(part, position);
                let lane = ((part - 1) * rows + head.row) * heads + head.head;
                let to = (lane * block + first + position) * size;
                cached[to..to + size].copy_from_slice(&values[from..from + size]);
            }
        }
    }
    b.put(cache, &cached);
}

pub fn cache_store(b: &mut Naive, op: &CacheStore) {
    store(b, op.qkv, op.cache, 0);
}

pub fn attention_decode(b: &mut Naive, op: &AttentionDecode, inputs: &StepInputs) {
    let position = inputs.position as usize;
    store(b, op.qkv, op.cache, position);
    let [_, rows, heads, block, size] = b.dims(op.cache).try_into().unwrap();
    let (qkv, cache) = (b.get(op.qkv), b.get(op.cache));
    let mut out = vec![0.0; rows * heads * size];
    for head in Head::all(rows, heads, 1, heads * size) {
        let query = &qkv[head.part(0, 0)..][..size];
        let cached = |part: usize, key: usize| {
            let lane = (part * rows + head.row) * heads + head.head;
            &cache[(lane * block + key) * size..][..size]
        };
        let score = |key: usize| dot(query, cached(0, key)) / (size as f64).sqrt();
        let most = (0..=position).map(score).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = (0..=position).map(|key| (score(key) - most).exp()).sum();
        for key in 0..=position {
            let p = (score(key) - most).exp() / sum;
            for c in 0..size {
                out[head.out(0) + c] += p * cached(1, key)[c];
            }
        }
    }
    b.put(op.out, &out);
}

pub fn select_position(b: &mut Naive, op: &SelectPosition, inputs: &StepInputs) {
    let [_, positions, width] = three(&b.dims(op.x));
    let x = b.get(op.x);
    let rows = x.chunks_exact(positions * width);
    let at = inputs.position as usize * width;
    let out: Vec<f64> = rows.flat_map(|row| row[at..at + width].to_vec()).collect();
    b.put(op.out, &out);
}

pub fn grad_norm(b: &mut Naive, op: &GradNorm) {
    let squares: f64 = b.get(op.gradients).iter().map(|g| g * g).sum();
    let mut state = b.state(op.state);
    state.grad_norm = (squares.sqrt() / f64::from(state.loss_scale)) as f32;
    state.found_inf = !state.grad_norm.is_finite();
    b.put_state(op.state, &state);
}

pub fn loss_scaler(b: &mut Naive, op: &LossScaler, inputs: &StepInputs) {
    let mut state = b.state(op.state);
    let clip = match inputs.grad_clip / (f64::from(state.grad_norm) + 1e-6) {
        _ if inputs.grad_clip == 0.0 => 1.0,
        factor if factor > 1.0 => 1.0,
        factor => factor, // nan stays nan
    };
    state.grad_multiplier = (clip / f64::from(state.loss_scale)) as f32;
    state.skipped = false;
    if let Scaling::Dynamic { growth_interval } = op.scaling {
        state.skipped = state.found_inf;
        state.growth = if state.found_inf { 0 } else { state.growth + 1 };
        if state.found_inf {
            state.loss_scale *= 0.5;
        } else if state.growth == growth_interval {
            state.loss_scale *= 2.0;
            state.growth = 0;
        }
    }
    state.updates += u64::from(!state.skipped);
    b.put_state(op.state, &state);
}

pub fn adamw(b: &mut Naive, op: &AdamW, inputs: &StepInputs) {
    let state = b.state(op.state);
    let (mut w, g) = (b.get(op.weights), b.get(op.gradients));
    let (mut m, mut v) = (b.get(op.m), b.get(op.v));
    let [beta1, beta2, eps, decay] = [op.beta1, op.beta2, op.eps, op.weight_decay];
    let (lr, t) = (inputs.lr, state.updates as i32);
    for i in (0..w.len()).filter(|_| !state.skipped) {
        let g = g[i] * f64::from(state.grad_multiplier);
        m[i] = beta1 * m[i] + (1.0 - beta1) * g;
        v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
        let deviation = (v[i] / (1.0 - beta2.powi(t))).sqrt() + eps;
        w[i] = w[i] * (1.0 - lr * decay) - lr * (m[i] / (1.0 - beta1.powi(t))) / deviation;
    }
    b.put(op.weights, &w);
    b.put(op.m, &m);
    b.put(op.v, &v);
    b.put(op.gradients, &vec![0.0; w.len()]);
}

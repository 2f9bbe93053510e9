// The planner: every change of a slider is planned anew. The state is in the address, so that a
// plan can be sent to somebody.

import { h, fill, say, choice, css, copyButton } from '/dom.js';
import { about, ask } from '/store.js';
import { ArenaMap, stacked, roleColour } from '/arena.js';
import * as f from '/format.js';

const SLIDERS = [
  ['n_layer', 'Layers', [1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 128, 192]],
  ['n_head', 'Heads', [1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 25, 28, 32, 36, 40, 48, 56, 64, 96, 128]],
  ['n_embd', 'Width', [64, 96, 128, 192, 256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1408, 1536, 1600, 1792, 2048, 2304, 2560, 3072, 4096, 5120, 6144, 8192, 12288]],
  ['block_size', 'Context, tokens', [32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 4096, 8192, 16384, 32768, 65536]],
  ['batch_size', 'Batch, sequences', [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512]],
  ['gradient_accumulation_steps', 'Accumulation', [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 256]],
  ['max_iters', 'Iterations', [100, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 300000, 600000, 1000000]],
];

const CHOICES = [
  ['dtype', 'Number format', ['auto', 'bfloat16', 'float16', 'float32']],
  ['grad_checkpoint', 'Recompute', [['auto', 'if needed'], ['True', 'always'], ['False', 'never']]],
  ['optimizer_state', 'Moments', ['float32', 'bfloat16', 'auto']],
  ['offload', 'Offload', [['False', 'no'], ['auto', 'if needed or faster'], ['optimizer', 'moments'], ['activations', 'activations']]],
  ['residual', 'Residual stream', [['auto', 'as the format'], ['float32', 'float32']]],
  ['bias', 'Biases', [['False', 'no'], ['True', 'yes']]],
];

const PRESETS = [['124M', { n_layer: 12, n_head: 12, n_embd: 768 }], ['350M', { n_layer: 24, n_head: 16, n_embd: 1024 }], ['774M', { n_layer: 36, n_head: 20, n_embd: 1280 }], ['1558M', { n_layer: 48, n_head: 25, n_embd: 1600 }]];

const USUAL = { gpu: 'RTX 4070', n_layer: '12', n_head: '12', n_embd: '768', block_size: '1024', batch_size: '12', gradient_accumulation_steps: '40', max_iters: '600000', dtype: 'auto', grad_checkpoint: 'auto',
  optimizer_state: 'float32', offload: 'False', residual: 'auto', dropout: '0.0', bias: 'False', dataset: 'openwebtext' };

const ROLES = [['weights', 'weight'], ['master', 'master'], ['gradients', 'gradient'], ['moments', 'moment'], ['activations', 'activation'], ['logits', 'logits'], ['workspace', 'workspace'], ['cache', 'cache'], ['tokens', 'tokens'], ['state', 'state'], ['unused', 'unused']];

let moveTo = null;
/** The address changed while the view is open. */
export function moved(query) { if (moveTo) { moveTo(query); return true; } return false; }

export function open(main, query, remember) {
  const settings = { ...USUAL, ...Object.fromEntries([...query].filter(([key]) => key in USUAL || key === 'vram')) };
  let controller = null, turn = 0, choices = null, mapPhase = 'train', waiting = null;
  const inputs = new Map();
  const card = h('select', { onchange: () => set({ gpu: card.value }, ['vram']) });
  const vramRange = h('input', { type: 'range', min: '1', max: '1000', step: '1', 'aria-label': 'Memory to use', oninput: () => set({ vram: `${(cardBytes() * Number(vramRange.value) / 1000 / 2 ** 30).toFixed(2)}GiB` }) });
  const vramText = h('span', { class: 'value' });
  const form = h('form', { class: 'card', onsubmit: (event) => event.preventDefault(), 'aria-label': 'Settings' },
    h('div', { class: 'field' }, h('label', null, 'Card ', card)),
    h('div', { class: 'field' }, h('div', { class: 'top' }, h('label', null, 'Memory to use'), vramText), vramRange),
    h('div', { class: 'row' }, PRESETS.map(([name, sizes]) => h('button', { type: 'button', class: 'small', title: 'GPT-2 of this size', onclick: () => set(stringed(sizes)) }, name)),
      h('button', { type: 'button', class: 'small', onclick: largest }, 'Largest that fits')),
    SLIDERS.map((row) => slider(...row)),
    h('div', { class: 'pair' }, CHOICES.map(([key, label, words]) => {
      const select = h('select', { onchange: () => set({ [key]: select.value }) }, words.map((word) => Array.isArray(word) ? h('option', { value: word[0] }, word[1]) : h('option', { value: word }, word)));
      inputs.set(key, () => { select.value = settings[key]; });
      return h('div', { class: 'field' }, h('label', null, label, select));
    }), dataset(), dropout()));
  const verdict = h('div', { class: 'verdict', role: 'status' }), sentence = h('p', { class: 'muted' }), bars = h('div', { class: 'bars' }), legend = h('ul', { class: 'legend' });
  const stats = ['Parameters', 'Speed', 'Time of the run', 'Tokens an iteration', 'Slices'].map((name) => [name, h('dd'), h('div', { class: 'sub' })]);
  const advice = h('div', { class: 'stack' }), problem = h('p', { class: 'note bad', hidden: true });
  const config = h('pre', { class: 'code', tabindex: '0', 'aria-label': 'Config' }), command = h('pre', { class: 'code wrap', tabindex: '0', 'aria-label': 'Command' });
  const map = new ArenaMap();
  const result = h('div', { class: 'stack' },
    h('section', { class: 'card stack' }, problem, verdict, sentence, h('dl', { class: 'stats' }, stats.map(([name, value, sub]) => h('div', { class: 'stat' }, h('dt', null, name), value, sub))), bars, legend, advice),
    h('div', { class: 'two' },
      h('section', { class: 'card' }, h('div', { class: 'row spread' }, h('h2', null, 'Its arena'), choice('Phase', [['train', 'Train'], ['eval', 'Eval'], ['sample', 'Sample'], ['save', 'Save']], 'train', (value) => { mapPhase = value; drawMap(); })), map.element),
      h('div', { class: 'stack' },
        h('section', { class: 'card' }, h('div', { class: 'row spread' }, h('h2', null, 'As a command'), copyButton(() => command.textContent)), command),
        h('section', { class: 'card' }, h('div', { class: 'row spread' }, h('h2', null, 'As a config, config.py'), copyButton(() => config.textContent)), config))));
  main.append(h('h1', { class: 'hidden-visually' }, 'Plan'), h('div', { class: 'plan' }, form, result));

  function slider(key, label, steps) {
    const range = h('input', { type: 'range', min: '0', max: String(steps.length - 1), step: '1', 'aria-label': label, oninput: () => set({ [key]: String(steps[Number(range.value)]) }) });
    const number = h('input', { type: 'number', min: '1', 'aria-label': `${label}, exact`, onchange: () => set({ [key]: String(Math.max(1, Math.round(Number(number.value) || 1))) }) });
    inputs.set(key, () => {
      const value = Number(settings[key]);
      let index = steps.findIndex((step) => step >= value);
      if (index < 0) index = steps.length - 1;
      range.value = String(index);
      range.setAttribute('aria-valuetext', settings[key]);
      if (document.activeElement !== number) number.value = settings[key];
    });
    return h('div', { class: 'field' }, h('label', null, label), h('div', { class: 'slider' }, range, number));
  }

  function dataset() {
    const select = h('select', { onchange: () => set({ dataset: select.value }) }, ['openwebtext', 'fineweb-edu', 'shakespeare', 'shakespeare_char', 'builtin'].map((name) => h('option', { value: name }, name)));
    inputs.set('dataset', () => { select.value = settings.dataset; });
    return h('div', { class: 'field' }, h('label', null, 'Data set', select));
  }

  function dropout() {
    const select = h('select', { onchange: () => set({ dropout: select.value }) }, ['0.0', '0.1', '0.2'].map((value) => h('option', { value }, value)));
    inputs.set('dropout', () => { select.value = settings.dropout; });
    return h('div', { class: 'field' }, h('label', null, 'Dropout', select));
  }

  function cardBytes() {
    const here = choices && choices.here;
    if (settings.gpu === 'here') return here ? here.memory_bytes : 2 ** 34;
    const found = choices && choices.choices.cards.find((one) => one.name === settings.gpu);
    return found ? found.memory_bytes : 12 * 2 ** 30;
  }

  function set(changes, removed = []) {
    Object.assign(settings, changes);
    removed.forEach((key) => delete settings[key]);
    show();
    keep();
    replan();
  }

  function keep() {
    const now = new URLSearchParams();
    for (const [key, value] of Object.entries(settings)) if (USUAL[key] !== value) now.set(key, value);
    remember(now);
  }

  function show() {
    for (const update of inputs.values()) update();
    card.value = settings.gpu;
    const all = cardBytes(), asked = settings.vram ? Number.parseFloat(settings.vram) * 2 ** 30 : all;
    vramRange.value = String(Math.round(1000 * Math.min(1, asked / all)));
    vramRange.disabled = settings.gpu === 'here' && choices && choices.here.kind === 'cpu';
    say(vramText, settings.vram ? `${settings.vram.replace('GiB', ' GiB')} of ${f.bytes(all)}` : f.bytes(all));
  }

  function address() {
    const now = new URLSearchParams();
    for (const [key, value] of Object.entries(settings)) if (key === 'gpu' || USUAL[key] !== value || SLIDERS.some(([name]) => name === key)) now.set(key, value);
    return now;
  }

  async function replan() {
    if (controller) controller.abort();
    controller = new AbortController();
    const mine = turn += 1;
    result.classList.add('stale');
    try {
      const found = await ask(`/api/plan?${address()}`, { signal: controller.signal });
      if (mine !== turn) return;
      problem.hidden = true;
      answer(found);
    } catch (error) {
      if (error.name === 'AbortError' || mine !== turn) return;
      problem.hidden = false;
      say(problem, error.message);
    }
    result.classList.remove('stale');
  }

  function answer(plan) {
    verdict.className = `verdict ${plan.fits ? 'good' : 'bad'}`;
    const share = `${f.bytes(plan.device_bytes)} of ${f.bytes(plan.budget_bytes)}`;
    fill(verdict, plan.error ? [h('strong', null, 'Cannot be planned'), h('span', null, plan.error)] : plan.fits ? [h('strong', null, 'Fits'), h('span', null, `${share} on ${plan.device}`)] : [h('strong', null, 'Does not fit'), h('span', null, `the smallest plan needs ${f.bytes(plan.device_bytes)}, ${plan.missing_bytes ? `${f.bytes(plan.missing_bytes)} more than ${f.bytes(plan.budget_bytes)}` : `${f.bytes(plan.missing_host_bytes)} more host memory than there is`}`)]);
    say(sentence, plan.sentence || (plan.supported ? ' ' : 'Training refuses this card: its kernels need an RTX 30 series, A100 or newer. This plan is for memory only.'));
    const set = (index, value, sub) => { say(stats[index][1], value); say(stats[index][2], sub || ' '); };
    set(0, f.parameters(plan.parameters), `${settings.n_layer} × ${settings.n_embd}`);
    set(1, plan.predicted_tokens_per_second ? `${f.short(plan.predicted_tokens_per_second)} tok/s` : '–', plan.predicted_by ? `by ${plan.predicted_by}` : 'not predicted');
    set(2, f.duration(plan.predicted_run_seconds), `${f.grouped(Number(settings.max_iters))} iterations`);
    set(3, f.short(plan.tokens_per_iteration), '');
    set(4, plan.slices ? f.grouped(plan.slices.length) : '–', plan.slices ? `${groups(plan.slices)}, ${recomputed(plan.recompute || [])}` : '');
    const nano = plan.nanogpt_bytes || 0, most = Math.max(plan.budget_bytes, Math.min(plan.device_bytes, 4 * plan.budget_bytes), Math.min(nano, 4 * plan.budget_bytes)) * 1.03;
    const parts = plan.roles ? ROLES.map(([name, role]) => [name, plan.roles[name] || 0, roleColour(role)]) : [['smallest plan', plan.arena_bytes || 0, css('--bad')]];
    parts.push(['driver and code', plan.context_bytes, roleColour('context')]);
    if (plan.host_bytes && plan.device_bytes > plan.arena_bytes + plan.context_bytes) parts.push(['host buffers', plan.device_bytes - plan.arena_bytes - plan.context_bytes, roleColour('host')]);
    fill(bars, stacked('fitGPT', parts, most, plan.budget_bytes, f.bytes(plan.device_bytes)), nano ? stacked('nanoGPT', [['nanoGPT with torch.compile', Math.min(nano, most), nano > plan.budget_bytes ? css('--bad') : css('--role-state')]], most, plan.budget_bytes, f.bytes(nano)) : null,
      nano ? h('p', { class: 'small-text muted' }, nano > plan.budget_bytes ? `nanoGPT would run out of memory: it needs ${f.bytes(nano - plan.budget_bytes)} more than there is, by the doctor's model of PyTorch.` : `nanoGPT would fit too, with ${f.bytes(nano)}, by the doctor's model of PyTorch.`) : null);
    fill(legend, parts.filter(([, size]) => size > 0).map(([name, size, paint]) => h('li', null, h('span', { class: 'swatch', style: { background: paint } }), `${name} ${f.bytes(size)}`)));
    say(config, plan.config);
    say(command, plan.command);
    if (plan.fits) { fill(advice); drawMap(); } else { suggest(); map.element.hidden = true; }
  }

  function drawMap() {
    clearTimeout(waiting);
    const mine = turn;
    waiting = setTimeout(async () => {
      try {
        const query = address();
        query.set('phase', mapPhase);
        const found = await ask(`/api/plan/arena?${query}`);
        if (mine !== turn) return;
        map.element.hidden = false;
        map.show(found);
      } catch { map.element.hidden = true; }
    }, 120);
  }

  async function suggest() {
    const mine = turn;
    fill(advice, h('p', { class: 'muted small-text' }, 'Looking for settings that fit …'));
    try {
      const query = address();
      query.set('suggest', '1');
      const found = await ask(`/api/plan?${query}`);
      if (mine !== turn) return;
      const rows = (found.suggestions || []).map((one) => h('li', null, h('button', { type: 'button', class: 'small', onclick: () => set(stringed(one.settings)) }, Object.entries(one.settings).map(([key, value]) => `${key}=${value}`).join(' ')), ` ${f.bytes(one.device_bytes)}${one.predicted_tokens_per_second ? `, ${f.short(one.predicted_tokens_per_second)} tok/s` : ''}: ${one.note}`));
      const large = (found.largest || []).slice(0, 4).map((one) => `${one.name} ${f.bytes(one.bytes)}`).join(', ');
      fill(advice, large ? h('p', { class: 'small-text muted' }, `The largest tensors: ${large}.`) : null, rows.length ? [h('h3', null, 'Settings near these that fit'), h('ul', { class: 'stack', style: { listStyle: 'none', padding: '0', gap: '.4rem' } }, rows)] : h('p', { class: 'small-text' }, 'No settings near these fit. Try "Largest that fits".'));
    } catch { fill(advice); }
  }

  async function largest() {
    const mine = turn += 1;
    try {
      const found = await ask(`/api/plan/largest?${address()}`);
      if (mine === turn) set(stringed({ n_layer: found.n_layer, n_head: found.n_head, n_embd: found.n_embd }));
    } catch (error) { problem.hidden = false; say(problem, error.message); }
  }

  about().then((found) => {
    choices = found;
    const old = choices.choices.cards.filter((one) => !one.supported), good = choices.choices.cards.filter((one) => one.supported);
    const option = (one) => h('option', { value: one.name }, `${one.name} · ${f.bytes(one.memory_bytes)}`);
    fill(card, h('option', { value: 'here' }, `This machine: ${choices.here.name || choices.here.kind}`), h('optgroup', { label: 'Cards' }, good.map(option)), h('optgroup', { label: 'Older cards, plan only' }, old.map(option)));
    show();
  }).catch(() => { fill(card, h('option', { value: settings.gpu }, settings.gpu)); show(); });
  moveTo = (now) => { for (const key of Object.keys(settings)) delete settings[key]; Object.assign(settings, USUAL, Object.fromEntries(now)); show(); replan(); };
  const theme = window.matchMedia('(prefers-color-scheme: dark)');
  theme.addEventListener('change', replan);
  show();
  replan();
  return () => { if (controller) controller.abort(); turn += 1; clearTimeout(waiting); theme.removeEventListener('change', replan); moveTo = null; };
}

function stringed(values) {
  return Object.fromEntries(Object.entries(values).map(([key, value]) => [key, value === true ? 'True' : value === false ? 'False' : String(value)]));
}

function groups(items) {
  const runs = [];
  for (const item of items) { const last = runs[runs.length - 1]; if (last && last[0] === item) last[1] += 1; else runs.push([item, 1]); }
  return runs.map(([item, count]) => count > 1 ? `${count} × ${item}` : String(item)).join(' + ');
}

// Layers of one level need not be neighbours: they are counted together.
function recomputed(levels) {
  const together = [...levels].sort((a, b) => levels.indexOf(a) - levels.indexOf(b));
  return levels.every((level) => level === 'R0') ? 'nothing recomputed' : `layers at ${groups(together)}`;
}

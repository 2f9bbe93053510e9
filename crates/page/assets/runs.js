// The runs: a list, the numbers of the chosen one, charts of all that are laid over one another.

import { h, fill, say, choice, css, gently } from '/dom.js';
import { known, listen, want, part, control } from '/store.js';
import { View, Chart } from '/chart.js';
import * as f from '/format.js';

const AXES = { iter: ['iteration', 'iter', (x, whole) => whole ? f.grouped(x) : f.short(x)], tokens: ['tokens', 'tokens', (x) => f.short(x)],
  time: ['time', 'seconds', (x) => f.duration(x)] };

const STATES = { running: ['running', 'good busy'], finished: ['finished', 'info'], interrupted: ['stopped', 'warn'], diverged: ['diverged', 'bad'], error: ['failed', 'bad'],
  stale: ['no news', 'warn'], broken: ['unreadable', 'bad'], waiting: ['waiting', ''], reading: ['reading', 'busy'] };

const CHARTS = [
  { title: 'Loss', key: 'loss', wide: true, robust: true, value: (y, tick) => tick ? f.short(y) : f.loss(y, 4) },
  { title: 'Gradient norm', key: 'grad_norm', robust: true, value: (y) => f.short(y) },
  { title: 'Learning rate', key: 'lr', zero: true, value: (y) => f.rate(y) },
  { title: 'Speed, tokens a second', key: 'tokens_per_second', zero: true, robust: true, value: (y) => f.short(y) },
  { title: 'Model FLOPs utilisation', key: 'mfu', zero: true, value: (y) => `${f.short(y)} %` },
  { title: 'Memory of the device, seen', key: 'device_bytes_seen', zero: true, binary: true, value: (y, tick) => f.bytes(y, tick) },
  { title: 'Memory of the process', key: 'resident_bytes', zero: true, binary: true, value: (y, tick) => f.bytes(y, tick) },
  { title: 'Loss scale', key: 'loss_scale', value: (y) => f.short(y), onlyIf: (y) => y.some((one) => one !== null && one !== 1) },
  { title: 'GPU load', key: 'gpu_busy', part: 'hardware', zero: true, value: (y) => `${f.short(y)} %` },
  { title: 'GPU clock', key: 'gpu_clock', part: 'hardware', zero: true, value: (y) => `${f.grouped(y)} MHz` },
  { title: 'GPU temperature', key: 'gpu_temperature', part: 'hardware', value: (y) => `${f.short(y)} °C` },
  { title: 'GPU power', key: 'gpu_power', part: 'hardware', zero: true, value: (y) => `${f.short(y)} W` },
];

export const colour = (id) => css(`--run${id % 8}`);

export function pill(summary) {
  const [text, kind] = STATES[summary.status] || [summary.status, ''];
  return [`${text}${summary.status === 'stale' ? ` for ${f.duration(Date.now() / 1000 - summary.updated)}` : summary.status === 'reading' ? ` ${f.percent(summary.reading)}` : ''}`, `pill ${kind}`];
}

/** The runs of the address, else the newest that trains, else the newest. */
export function usual(ids) {
  const all = [...known.runs.values()].filter((run) => run.summary);
  const there = ids.filter((id) => all.some((run) => run.id === id));
  if (there.length) return there;
  const busy = all.filter((run) => run.summary.status === 'running');
  const best = (busy.length ? busy : all).sort((a, b) => (b.summary.updated || 0) - (a.summary.updated || 0))[0];
  return best ? [best.id] : [];
}

export function open(main, query, remember) {
  const view = new View();
  const state = { chosen: (query.get('run') || '').split(',').filter(Boolean).map(Number), axis: AXES[query.get('by')] ? query.get('by') : 'iter', smooth: Number(query.get('smooth') || 0.6),
    log: query.get('log') === '1', logX: query.get('logx') === '1', picked: Boolean(query.get('run')), zoomed: new Map(), sample: null };
  view.logX = state.logX;
  const list = h('ul', { class: 'list', 'aria-label': 'Runs' });
  const body = h('div', { class: 'stack' });
  const shell = h('div', { class: 'runs' }, h('aside', { class: 'stack', 'aria-label': 'Runs' }, list), body);
  main.append(h('h1', { class: 'hidden-visually' }, 'Runs'), shell);
  const items = new Map();

  const head = heading(state);
  const axis = () => AXES[state.axis];
  const charts = CHARTS.map((options) => {
    const chart = new Chart(view, { ...options, axis: (x, whole) => axis()[2](x, whole), axisName: () => axis()[0], time: () => state.axis === 'time' });
    chart.say(options.wide ? 'The first loss comes with the first logged iteration.' : '');
    return [options, chart];
  });
  const reset = h('button', { type: 'button', class: 'small', disabled: true, onclick: () => view.zoom(null) }, 'Reset zoom');
  const smooth = h('input', { type: 'range', min: '0', max: '0.98', step: '0.02', value: String(state.smooth), 'aria-label': 'Smoothing',
    oninput: (event) => { state.smooth = Number(event.target.value); keep(); draw(); } });
  const tools = h('div', { class: 'tools card' },
    choice('Drawn over', [['iter', 'Iterations'], ['tokens', 'Tokens'], ['time', 'Time']], state.axis, (value) => { state.axis = value; state.zoomed.clear(); view.zoom(null); keep(); draw(); }),
    choice('Scale of the loss', [[false, 'Linear'], [true, 'Log']], state.log, (value) => { state.log = value; keep(); draw(); }),
    h('label', null, h('input', { type: 'checkbox', checked: state.logX, onchange: (event) => { state.logX = view.logX = event.target.checked; keep(); view.redraw(); } }), 'log across'),
    h('label', null, 'smoothing', smooth), reset,
    h('span', { class: 'small-text muted' }, 'Drag to zoom, shift-drag to move, double-click for all.'));
  const compare = h('section', { class: 'card', hidden: true });
  const texts = samples(state, () => draw());
  const events = eventList();
  const grid = h('div', { class: 'charts' }, charts.map(([, chart]) => chart.element));
  const content = h('div', { class: 'stack' }, head.element, tools, grid, compare, h('div', { class: 'split' }, texts.element, events.element));
  const nothing = h('div');

  function keep() {
    const now = new URLSearchParams();
    if (state.picked) now.set('run', state.chosen.join(','));
    if (state.axis !== 'iter') now.set('by', state.axis);
    if (state.smooth !== 0.6) now.set('smooth', String(state.smooth));
    if (state.log) now.set('log', '1');
    if (state.logX) now.set('logx', '1');
    remember(now);
  }

  function pick(id, together) {
    state.picked = true;
    if (together) state.chosen = state.chosen.includes(id) ? state.chosen.filter((one) => one !== id) : [...state.chosen, id];
    else state.chosen = [id];
    if (!state.chosen.length) state.chosen = [id];
    state.zoomed.clear();
    keep();
    refresh();
    fetchPart();
  }

  function refresh() {
    const all = [...known.runs.values()].filter((run) => run.summary);
    if (all.length && (!state.picked || !state.chosen.some((id) => known.runs.has(id)))) state.chosen = usual(state.picked ? state.chosen : []);
    if (!all.length) {
      fill(body, nothing);
      fill(nothing, known.heard ? empty() : h('div', { class: 'empty' }, h('h2', null, 'Loading'), h('p', null, 'Asking the server for its runs.')));
      fill(list);
      return;
    }
    if (content.parentNode !== body) fill(body, content);
    for (const run of all.sort((a, b) => a.id - b.id)) {
      if (!items.has(run.id)) items.set(run.id, item(run.id, all.length, pick));
      const one = items.get(run.id);
      if (one.element.parentNode !== list) list.append(one.element);
      one.show(run.summary, state.chosen, all.length);
    }
    for (const [id, one] of items) if (!known.runs.has(id)) { one.element.remove(); items.delete(id); }
    want(state.chosen);
    draw();
  }

  function draw() {
    const chosen = state.chosen.map((id) => known.runs.get(id)).filter((run) => run && run.summary);
    const first = chosen[0];
    if (!first) return;
    reset.disabled = !view.range;
    head.show(first);
    for (const [options, chart] of charts) {
      chart.log = options.key === 'loss' && state.log;
      const { series, now } = lines(options, chosen, state, axis()[1]);
      chart.show(series, options.wide ? markers(first, axis()[1]) : [], now);
      const has = series.some((one) => one.y.some((y) => y !== null)) && (!options.onlyIf || series.some((one) => options.onlyIf(one.y)));
      chart.element.hidden = !options.wide && !has;
      if (options.wide) chart.say(first.error ? first.error : first.base ? stateText(first.summary) : 'Loading the curve.');
    }
    showComparison(compare, chosen);
    texts.show(first);
    events.show(first);
  }

  const fetchPart = gently(140, async () => {
    if (!view.range) { state.zoomed.clear(); draw(); return; }
    const [from, to] = view.range, asked = JSON.stringify([view.range, state.axis]);
    state.asked = asked;
    await Promise.all(state.chosen.map(async (id) => {
      try {
        const found = await part(id, state.axis, from, to, Math.max(600, body.clientWidth));
        if (state.asked === asked) state.zoomed.set(id, found);
      } catch { /* the whole curve stays */ }
    }));
    draw();
  });
  view.changed = () => { reset.disabled = !view.range; fetchPart(); };

  const soon = gently(120, refresh);
  const stop = listen((what) => { if (what !== 'link') soon(); });
  const clock = setInterval(() => { for (const [id, one] of items) { const run = known.runs.get(id); if (run && run.summary) one.show(run.summary, state.chosen, items.size); } }, 5000);
  const theme = window.matchMedia('(prefers-color-scheme: dark)');
  theme.addEventListener('change', soon);
  refresh();
  return () => { stop(); clearInterval(clock); theme.removeEventListener('change', soon); want([]); };
}

function empty() {
  return h('div', { class: 'empty' }, h('h2', null, 'No runs here yet'),
    h('p', null, 'A run appears as soon as its folder has a log. Train one, or give the folder of a run.'),
    h('pre', { class: 'code' }, 'fitgpt train --ui\nfitgpt ui out-builtin'),
    h('p', null, 'Plans and diagnoses work without a run: see Plan and Doctor above.'));
}

function stateText(summary) {
  return { broken: `The log cannot be read: ${summary.problem || 'no line is an event'}.`, waiting: 'The log is still empty: the run is about to start.', reading: `Reading the log: ${f.percent(summary.reading)}.` }[summary.status]
    || 'The first loss comes with the first logged iteration.';
}

function item(id, count, pick) {
  const swatch = h('span', { class: 'swatch', style: { background: `var(--run${id % 8})` } });
  const name = h('span');
  const state = h('span', { class: 'pill' });
  const numbers = h('span', { class: 'numbers' });
  const bar = h('i');
  const box = h('input', { type: 'checkbox', 'aria-label': 'lay over', onclick: (event) => { event.stopPropagation(); pick(id, true); } });
  const button = h('div', { class: 'item', role: 'button', tabindex: '0', onclick: (event) => pick(id, event.ctrlKey || event.metaKey || event.shiftKey),
    onkeydown: (event) => { if (event.target === button && (event.key === 'Enter' || event.key === ' ')) { event.preventDefault(); pick(id, event.ctrlKey); } } },
  h('span', { class: 'row spread' }, h('span', { class: 'name' }, box, swatch, name), state), h('span', { class: 'progress' }, bar), numbers);
  const element = h('li', null, button);
  return { element, show(summary, chosen, all) {
    const [text, kind] = pill(summary);
    say(name, summary.name);
    say(state, text);
    if (state.className !== kind) state.className = kind;
    const share = summary.max_iters ? Math.min(1, (summary.iter || 0) / (summary.max_iters + 1)) : 0;
    bar.style.width = `${100 * share}%`;
    const left = summary.eta_seconds === null ? '' : `${f.duration(summary.eta_seconds)} left`;
    say(numbers, [summary.iter === null ? '' : `${f.short(summary.iter)} of ${f.short((summary.max_iters || 0) + 1)}`, summary.best ? `best val ${f.loss(summary.best.val_loss, 3)}` : summary.loss ? `loss ${f.loss(summary.loss, 3)}` : '', left].filter(Boolean).join('  ·  '));
    const on = chosen.includes(summary.id);
    button.className = `item${on ? ' on' : ''}`;
    button.setAttribute('aria-pressed', String(on));
    box.checked = on;
    box.setAttribute('aria-label', `lay ${summary.name} over the others`);
    box.hidden = all < 2;
  } };
}

function heading() {
  const title = h('h2', { style: { fontSize: '1.2rem', overflowWrap: 'anywhere' } }), state = h('span', { class: 'pill' }), about = h('p', { class: 'muted small-text' });
  const notes = h('div', { class: 'stack' });
  const names = ['Loss', 'Validation loss', 'Best', 'Iteration', 'Speed', 'Time left', 'Memory'];
  const values = names.map(() => [h('dd'), h('div', { class: 'sub' })]);
  const stats = h('dl', { class: 'stats' }, names.map((name, index) => h('div', { class: 'stat' }, h('dt', null, name), values[index])));
  const said = h('span', { class: 'small-text muted', role: 'status' });
  const act = (action, text) => async () => {
    try { await control(action); say(said, text); } catch (error) { say(said, error.message); }
  };
  const save = h('button', { type: 'button', onclick: act('save', 'It saves after this step.') }, 'Save now');
  const stop = h('button', { type: 'button', class: 'danger', onclick: () => {
    if (stop.textContent === 'Really stop?') { stop.textContent = 'Stop after this step'; act('stop', 'It saves and stops after this step.')(); return; }
    stop.textContent = 'Really stop?';
    setTimeout(() => { stop.textContent = 'Stop after this step'; }, 4000);
  } }, 'Stop after this step');
  const buttons = h('div', { class: 'row', hidden: true }, said, save, stop);
  const element = h('section', { class: 'card stack' }, h('div', { class: 'row spread' }, h('div', null, h('div', { class: 'row' }, title, state), about), buttons), notes, stats);
  return { element, show(run) {
    const { summary } = run, [text, kind] = pill(summary);
    say(title, summary.name);
    say(state, text);
    state.className = kind;
    const config = run.detail && run.detail.config;
    const model = config ? `${config.n_layer} layers, ${config.n_head} heads, width ${config.n_embd}, context ${config.block_size}, batch ${config.batch_size} × ${config.gradient_accumulation_steps}, ${config.dataset}` : '';
    say(about, [model, summary.device].filter(Boolean).join(' · ') || ' ');
    buttons.hidden = !(known.control && summary.own && summary.status === 'running');
    const last = summary.last_eval;
    const set = (index, value, sub) => { say(values[index][0], value); say(values[index][1], sub || ' '); };
    set(0, f.loss(summary.loss), summary.lr === null ? '' : `lr ${f.rate(summary.lr)}`);
    set(1, last ? f.loss(last.val_loss) : '–', last ? `± ${f.loss(last.val_standard_error)}, train ${f.loss(last.train_loss)}` : '');
    set(2, summary.best ? f.loss(summary.best.val_loss) : '–', summary.best ? `at ${f.grouped(summary.best.iter)}` : '');
    set(3, summary.iter === null ? '–' : f.grouped(summary.iter), summary.max_iters === null ? '' : `of ${f.grouped(summary.max_iters + 1)}${summary.evaluating !== null ? `, evaluating ${f.percent(summary.evaluating)}` : ''}`);
    set(4, summary.tokens_per_second ? `${f.short(summary.tokens_per_second)} tok/s` : '–', summary.ms ? `${f.short(summary.ms)} ms each` : '');
    set(5, f.duration(summary.eta_seconds), summary.seconds === null ? '' : `${f.short(summary.tokens)} tokens in ${f.duration(summary.seconds)}`);
    const seen = summary.most_device_bytes || summary.most_resident_bytes;
    set(6, f.bytes(summary.arena_bytes), seen ? `arena; ${f.bytes(seen)} seen` : 'arena');
    const found = [];
    if (summary.status === 'broken') found.push(h('p', { class: 'note bad' }, `The log cannot be read: ${summary.problem || 'no line is an event'}. Is this the out_dir of a run?`));
    else if (summary.unreadable) found.push(h('p', { class: 'note' }, `${f.grouped(summary.unreadable)} line${summary.unreadable === 1 ? '' : 's'} of the log cannot be read and ${summary.unreadable === 1 ? 'is' : 'are'} left out. ${summary.problem || ''}`));
    if (summary.status === 'stale') found.push(h('p', { class: 'note' }, `No news for ${f.duration(Date.now() / 1000 - summary.updated)}: the run was killed, or its folder is no longer copied here.`));
    if (summary.message) found.push(h('p', { class: 'note bad' }, summary.message));
    if (notes.textContent !== found.map((one) => one.textContent).join('')) fill(notes, found);
    notes.hidden = !found.length;
  } };
}

function smoothed(values, weight) {
  if (!weight) return values;
  const out = new Array(values.length);
  let sum = 0, scale = 0;
  for (let i = 0; i < values.length; i += 1) {
    if (values[i] === null) { out[i] = null; continue; }
    sum = weight * sum + (1 - weight) * values[i];
    scale = weight * scale + (1 - weight);
    out[i] = sum / scale;
  }
  return out;
}

function lines(options, chosen, state, across) {
  const series = [], now = [];
  for (const run of chosen) {
    if (!run.base) continue;
    const data = (state.zoomed.get(run.id) || run.base)[options.part || 'train'], x = data[across], y = data[options.key], paint = colour(run.id);
    const several = chosen.length > 1 ? `${run.summary.name} ` : '';
    if (x && y && x.some((one) => one !== null)) {
      const strength = options.robust ? state.smooth : 0;
      if (strength) series.push({ x, y, low: data[`${options.key}_low`], high: data[`${options.key}_high`], colour: paint, style: 'faint', name: `${several}raw`, quiet: true });
      series.push({ x, y: smoothed(y, strength), low: strength ? null : data[`${options.key}_low`], high: strength ? null : data[`${options.key}_high`], colour: paint, style: several && options.key === 'loss' ? 'pale' : 'line', name: `${several}${options.key === 'loss' ? 'train' : options.title.toLowerCase()}` });
      const last = y[y.length - 1];
      if (chosen.length === 1 && last !== null) now.push(options.value(last));
    }
    if (options.key === 'loss' && run.detail && run.detail.evals.length) {
      const evals = run.detail.evals, ex = evals.map((one) => one[across]);
      if (ex.some((one) => one !== null)) {
        const alone = chosen.length === 1, paler = alone ? colour(run.id + 1) : paint;
        series.push({ x: ex, y: evals.map((one) => one.val_loss), error: evals.map((one) => one.val_standard_error), colour: paler, style: 'points', name: `${several}val` });
        // With several runs, one strong line each is enough to compare.
        if (alone) series.push({ x: ex, y: evals.map((one) => one.train_loss), error: evals.map((one) => one.train_standard_error), colour: colour(run.id + 2), style: 'points', dash: [4, 4], name: `${several}train, evaluated` });
      }
    }
  }
  const legend = options.key === 'loss' ? series.filter((one) => !one.quiet).map((one) => h('span', { style: { marginRight: '.9rem', whiteSpace: 'nowrap' } }, h('span', { class: 'swatch', style: { background: one.colour, marginRight: '.35rem', height: one.dash ? '.25rem' : '.7rem', verticalAlign: one.dash ? 'middle' : 'baseline' } }), one.name)) : now.join('');
  return { series, now: legend };
}

function markers(run, across) {
  if (!run.detail) return [];
  const paint = { best: css('--good'), notice: css('--warn'), save: css('--muted'), start: css('--accent'), resume: css('--accent'), end: css('--ink') };
  return run.detail.marks.filter((mark) => mark[across] !== null).map((mark) => ({ x: mark[across], kind: mark.kind, text: mark.text, colour: paint[mark.kind] || css('--muted') }));
}

function showComparison(card, chosen) {
  card.hidden = chosen.length < 2;
  if (card.hidden) return;
  const configs = chosen.map((run) => (run.detail && run.detail.config) || {});
  const keys = [...new Set(configs.flatMap((config) => Object.keys(config)))].filter((key) => key !== 'out_dir' && new Set(configs.map((config) => JSON.stringify(config[key]))).size > 1);
  const name = (run) => h('td', null, h('span', { class: 'swatch', style: { background: colour(run.id) } }), run.summary.name);
  const text = JSON.stringify([keys, configs.length, chosen.map((run) => [run.id, run.summary.iter, run.summary.best, run.summary.tokens_per_second])]);
  if (card.shown === text) return;
  card.shown = text;
  fill(card, h('h2', null, `${chosen.length} runs compared`), h('div', { class: 'scroll' }, h('table', null,
    h('thead', null, h('tr', null, ['run', 'best val', 'at', 'loss', 'iteration', 'tokens', 'time', 'tok/s', ...keys].map((key) => h('th', { scope: 'col' }, key)))),
    h('tbody', null, chosen.map((run, index) => h('tr', null, name(run), [run.summary.best ? f.loss(run.summary.best.val_loss) : '–', run.summary.best ? f.grouped(run.summary.best.iter) : '–', f.loss(run.summary.loss), f.grouped(run.summary.iter), f.short(run.summary.tokens), f.duration(run.summary.seconds), f.short(run.summary.tokens_per_second),
      ...keys.map((key) => String(configs[index][key] ?? '–'))].map((cell) => h('td', null, cell))))))),
  keys.length ? null : h('p', { class: 'small-text muted' }, 'All their settings are the same.'));
}

function samples(state, redraw) {
  const text = h('div', { class: 'sample', tabindex: '0', 'aria-label': 'Sample' }), label = h('span', { class: 'muted small-text' });
  const slider = h('input', { type: 'range', min: '0', max: '0', value: '0', 'aria-label': 'Evaluation whose text is shown', oninput: () => { state.sample = Number(slider.value) === Number(slider.max) ? null : Number(slider.value); redraw(); } });
  const element = h('section', { class: 'card' }, h('div', { class: 'row spread' }, h('h2', null, 'What it writes'), label), slider, text);
  return { element, show(run) {
    const all = run.detail ? run.detail.samples : [];
    slider.max = String(Math.max(0, all.length - 1));
    slider.disabled = all.length < 2;
    const index = state.sample === null ? all.length - 1 : Math.min(state.sample, all.length - 1);
    slider.value = String(Math.max(0, index));
    const one = all[index];
    say(label, one ? `after ${f.grouped(one.iter)} iterations, ${index + 1} of ${all.length}` : '');
    say(text, one ? one.text : run.detail ? 'No text yet. With --ui, or with eval_sample=True, a run writes one at each evaluation, always from the same prompt, so that you can read how it learns.' : 'Loading.');
    text.classList.toggle('muted', !one);
  } };
}

function eventList() {
  const list = h('ul', { class: 'events', tabindex: '0', 'aria-label': 'Events, newest first' });
  const element = h('section', { class: 'card' }, h('h2', null, 'Events'), list);
  let shown = null;
  return { element, show(run) {
    const marks = run.detail ? run.detail.marks : [];
    const key = `${run.id} ${marks.length} ${marks.length ? marks[marks.length - 1].iter : ''}`;
    if (key === shown) return;
    shown = key;
    const rows = marks.slice(-300).reverse().map((mark) => h('li', null, h('span', { class: 'at' }, f.grouped(mark.iter)), h('span', { class: `kind ${mark.kind}` }, mark.kind), h('span', null, mark.text)));
    fill(list, rows.length ? rows : h('li', { class: 'muted' }, 'Nothing yet.'));
  } };
}

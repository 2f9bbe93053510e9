// The playground: text streams token by token; each shows its probability and its rivals.

import { h, fill, say } from '/dom.js';
import { known, listen, post } from '/store.js';
import { usual } from '/runs.js';
import * as f from '/format.js';

const saved = { prompt: '', temperature: '0.8', top_k: '200', top_p: '1', seed: '1337', tokens: '200' };

export function open(main, query, remember) {
  let chosen = query.has('run') ? Number(query.get('run')) : null, running = null;
  const run = h('select', { onchange: () => { chosen = Number(run.value); remember(new URLSearchParams({ run: String(chosen) })); show(); } });
  const which = h('select', null, h('option', { value: 'last' }, 'last, the newest'), h('option', { value: 'best' }, 'best by validation loss'));
  const prompt = h('textarea', { rows: '4', placeholder: 'Once upon a time', value: saved.prompt, 'aria-label': 'Prompt', oninput: () => { saved.prompt = prompt.value; } });
  const number = (key, label, min, max, step) => {
    const input = h('input', { type: 'number', min, max, step, value: saved[key], oninput: () => { saved[key] = input.value; } });
    return h('div', { class: 'field' }, h('label', null, label, input));
  };
  const go = h('button', { type: 'submit', class: 'first' }, 'Generate');
  const stop = h('button', { type: 'button', disabled: true, onclick: () => running && running.abort() }, 'Stop');
  const said = h('p', { class: 'muted small-text', role: 'status' }), problem = h('p', { class: 'note bad', hidden: true, role: 'alert' });
  const form = h('form', { class: 'card', novalidate: true, onsubmit: (event) => { event.preventDefault(); generate(); } }, h('h1', null, 'Playground'),
    h('div', { class: 'field' }, h('label', null, 'Run', run)), h('div', { class: 'field' }, h('label', null, 'Checkpoint', which)), h('div', { class: 'field' }, h('label', null, 'Prompt', prompt)),
    h('div', { class: 'pair' }, number('temperature', 'Temperature', '0', '10', '0.1'), number('top_k', 'Top-k, 0 = all', '0', '100000', '1'), number('top_p', 'Top-p', '0.01', '1', '0.01'), number('seed', 'Seed', '0', '999999999', '1'), number('tokens', 'Tokens', '1', '2000', '10')),
    h('div', { class: 'row' }, go, stop), problem);
  const output = h('div', { class: 'text', tabindex: '0', 'aria-label': 'Generated text' }, h('span', { class: 'muted' }, 'The text appears here, token by token. Its colour shows how likely the model found each token; point at one for its rivals.'));
  const rivals = h('div', { class: 'tip', id: 'rivals', hidden: true });
  const key = h('div', { class: 'row small-text muted' }, 'likely', ['p4', 'p3', 'p2', 'p1', 'p0'].map((one) => h('span', { class: `key ${one}` })), 'surprising');
  const content = h('div', { class: 'side' }, form, h('section', { class: 'card stack' }, h('div', { class: 'row spread' }, said, key), output));
  const nothing = h('div');
  main.append(content, nothing, rivals);

  function show() {
    const all = [...known.runs.values()].filter((one) => one.summary && one.summary.checkpoints.length);
    const [id] = usual(chosen === null ? [] : [chosen]);
    const now = all.find((one) => one.id === id) || all[0];
    content.hidden = !now;
    if (!now) {
      fill(nothing, h('div', { class: 'empty' }, h('h2', null, known.heard ? 'No checkpoint yet' : 'Loading'), h('p', null, 'A run has something to say after its first save: at its first evaluation after iteration 0, or when you press "Save now".')));
      return;
    }
    fill(nothing);
    const text = JSON.stringify(all.map((one) => [one.id, one.summary.name]));
    if (run.shown !== text) { run.shown = text; fill(run, all.map((one) => h('option', { value: String(one.id) }, one.summary.name))); }
    run.value = String(now.id);
    for (const option of which.options) option.disabled = !now.summary.checkpoints.includes(option.value);
    if (!now.summary.checkpoints.includes(which.value)) which.value = now.summary.checkpoints[0];
  }

  async function generate() {
    if (running) running.abort();
    const mine = running = new AbortController();
    problem.hidden = true;
    stop.disabled = false;
    go.disabled = true;
    say(said, 'Loading the checkpoint on the CPU …');
    fill(output, h('span', { class: 'given' }, saved.prompt || '\n'));
    let count = 0;
    const began = performance.now();
    try {
      const wish = { run: Number(run.value), checkpoint: which.value, prompt: saved.prompt, temperature: Number(saved.temperature), top_k: Number(saved.top_k), top_p: Number(saved.top_p), seed: Number(saved.seed), tokens: Number(saved.tokens) };
      const answer = await post('/api/sample', wish, { signal: mine.signal });
      if (!answer.ok) throw new Error((await answer.json()).error);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const lines = (rest + value).split('\n');
        rest = lines.pop();
        for (const line of lines.filter(Boolean)) {
          const part = JSON.parse(line);
          if (part.error) throw new Error(part.error);
          if (part.start) say(said, `${f.parameters(part.start.parameters)} parameters after ${f.grouped(part.start.iter)} iterations, ${f.bytes(part.start.bytes)} of its own, one thread of lowest priority`);
          if ('token' in part) { count += 1; output.append(token(part)); }
          if (part.end) { if (part.end.rest) output.append(part.end.rest); say(said, `${f.grouped(part.end.tokens)} tokens, ${f.short(part.end.tokens / part.end.seconds)} a second`); }
        }
      }
    } catch (error) {
      if (error.name === 'AbortError') say(said, `Stopped after ${count} tokens, ${f.duration((performance.now() - began) / 1000)}.`);
      else { problem.hidden = false; say(problem, error.message); say(said, ''); }
    }
    if (running === mine) { running = null; stop.disabled = true; go.disabled = false; }
  }

  function token(part) {
    const shade = part.p >= 0.8 ? 'p4' : part.p >= 0.4 ? 'p3' : part.p >= 0.1 ? 'p2' : part.p >= 0.02 ? 'p1' : 'p0';
    const element = h('span', { class: `token ${shade}`, onpointerenter: () => explain(element, part), onpointerleave: hide }, part.token);
    element.part = part;
    return element;
  }

  function explain(element, part) {
    const rows = part.rivals.some(([text]) => text === part.raw) ? part.rivals : [...part.rivals, [part.raw, part.p]];
    fill(rivals, rows.map(([text, p]) => h('div', { class: `rival${text === part.raw ? ' drawn' : ''}` }, h('code', null, visible(text)), h('span', { class: 'meter' }, h('i', { style: { width: `${100 * p}%` } })), h('span', null, f.percent(p)))));
    rivals.hidden = false;
    const box = element.getClientRects()[0], width = rivals.offsetWidth, height = rivals.offsetHeight;
    rivals.style.left = `${Math.max(8, Math.min(box.left, window.innerWidth - width - 8))}px`;
    rivals.style.top = `${box.bottom + 8 + height > window.innerHeight ? box.top - height - 6 : box.bottom + 6}px`;
  }
  function hide() { rivals.hidden = true; }

  // With the keyboard: arrows walk from token to token.
  let walked = -1;
  output.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], tokens = output.querySelectorAll('.token');
    if (!step || !tokens.length) return;
    event.preventDefault();
    walked = Math.max(0, Math.min(tokens.length - 1, walked + step));
    const { part } = tokens[walked];
    explain(tokens[walked], part);
    document.getElementById('live').textContent = `${visible(part.raw)} ${f.percent(part.p)}; rivals ${part.rivals.slice(0, 3).map(([text, p]) => `${visible(text)} ${f.percent(p)}`).join(', ')}`;
  });
  output.addEventListener('blur', hide);
  window.addEventListener('scroll', hide, { passive: true });

  const end = listen((what) => { if (what !== 'link') show(); });
  show();
  return () => { end(); if (running) running.abort(); window.removeEventListener('scroll', hide); };
}

function visible(text) {
  return text.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/^ | $/g, '␣') || '∅';
}

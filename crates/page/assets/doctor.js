// The doctor: a log or a whole forum post in, a diagnosis out, in the reader's language.

import { h, fill, say, css, copyButton } from '/dom.js';
import { about, post } from '/store.js';
import { stacked } from '/arena.js';
import * as f from '/format.js';

const LANGUAGES = [['auto', 'as the text'], ['en', 'English'], ['ja', '日本語'], ['zh', '中文'], ['de', 'Deutsch'], ['fr', 'Français']];
const EXAMPLE = `I try to train nanoGPT on my RTX 3060 (12 GB) with batch_size = 32, block_size = 1024, n_layer = 12, n_head = 12, n_embd = 768

step 0: train loss 10.9897, val loss 10.9892
Traceback (most recent call last):
  File "train.py", line 300, in <module>
    scaler.scale(loss).backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of 11.76 GiB of which 1.92 GiB is free. Process 4242 has 9.83 GiB memory in use. Of the allocated memory 9.31 GiB is allocated by PyTorch, and 210.13 MiB is reserved by PyTorch but unallocated.`;

const saved = { text: '', language: 'auto' };

export function open(main) {
  const text = h('textarea', { rows: '14', 'aria-label': 'Log or post', placeholder: 'Paste the log of a run that ran out of memory, or the whole post about it.', spellcheck: 'false', value: saved.text });
  const language = h('select', null, LANGUAGES.map(([code, name]) => h('option', { value: code, lang: code === 'auto' ? null : code }, name)));
  language.value = saved.language;
  const card = h('select', null, h('option', { value: '' }, 'as the text says'));
  const used = h('input', { type: 'text', placeholder: 'e.g. 1.97GiB', autocomplete: 'off' });
  const button = h('button', { type: 'submit', class: 'first' }, 'Diagnose');
  const problem = h('p', { class: 'note bad', hidden: true, role: 'alert' });
  const report = h('section', { class: 'card report', 'aria-live': 'polite' }, h('p', { class: 'muted' }, 'The diagnosis appears here: what held the memory, which tensor did not fit and when, which advice helps, and the command that runs the config unchanged with fitGPT. Nothing leaves this machine.'));
  const form = h('form', { class: 'card', onsubmit: (event) => { event.preventDefault(); diagnose(); } }, h('h1', null, 'Doctor'), text,
    h('div', { class: 'pair' }, h('div', { class: 'field' }, h('label', null, 'Language', language)), h('div', { class: 'field' }, h('label', null, 'Card', card))),
    h('div', { class: 'field' }, h('label', null, 'Held by other programs', used)),
    h('div', { class: 'row' }, button, h('button', { type: 'button', onclick: () => { text.value = EXAMPLE; diagnose(); } }, 'Try an example')), problem);
  main.append(h('div', { class: 'side' }, form, report));
  language.addEventListener('change', () => { if (text.value.trim()) diagnose(); });
  about().then((found) => { fill(card, h('option', { value: '' }, 'as the text says'), found.choices.cards.map((one) => h('option', { value: one.name }, one.name))); }).catch(() => {});
  let turn = 0;

  async function diagnose() {
    const mine = turn += 1;
    Object.assign(saved, { text: text.value, language: language.value });
    button.disabled = true;
    report.classList.add('stale');
    problem.hidden = true;
    try {
      const answer = await post('/api/doctor', { text: text.value, language: language.value, gpu: card.value || undefined, used: used.value || undefined });
      const found = await answer.json();
      if (!answer.ok) throw new Error(found.error);
      if (mine === turn) show(found.shown, found.document);
    } catch (error) { problem.hidden = false; say(problem, error.message); }
    button.disabled = false;
    report.classList.remove('stale');
  }

  function show(found, facts) {
    report.lang = found.language;
    const most = Math.max(1, ...found.memory.rows.map((row) => row.bytes)), peak = Math.max(1, found.peaks.free || 0, ...found.peaks.rows.map((row) => row.needed));
    const list = (section, row) => section.rows.length ? [h('h2', null, section.title), h('ul', null, section.rows.map((one) => h('li', null, row(one))))] : null;
    const advice = (one) => [h('b', null, one.verdict), ` ${one.advice}${one.saved ? ` (${one.saved})` : ''}. ${one.note}`];
    fill(report, found.summary.map((line, index) => h('p', { class: index === 0 ? 'lead' : null }, line)),
      found.memory.rows.length ? [h('h2', null, found.memory.title), h('div', { class: 'bars' }, found.memory.rows.map((row) => stacked(row.name, [[row.name, row.bytes, css('--accent')]], most * 1.02, null, row.text))), found.memory.total ? h('p', { class: 'muted small-text' }, found.memory.total) : null] : null,
      found.peaks.rows.length ? [h('h2', null, found.peaks.title), h('div', { class: 'bars' }, found.peaks.rows.map((row) => stacked(row.name, [[row.name, row.bytes, found.peaks.free !== null && row.needed > found.peaks.free ? css('--bad') : css('--good')]], peak * 1.02, found.peaks.free, row.text)))] : null,
      list(found.claims, advice), list(found.advice, advice), list(found.fixes, (one) => one), list(found.remedies, (one) => one), list(found.unknown, (one) => one),
      found.commands.map((one) => [h('div', { class: 'row spread' }, h('h2', null, one.title), copyButton(() => one.command)), h('pre', { class: 'code wrap', tabindex: '0' }, one.command)]),
      found.patch ? [h('div', { class: 'row spread' }, h('h2', null, found.patch.title), copyButton(() => found.patch.diff)), h('pre', { class: 'code', tabindex: '0' }, found.patch.diff), h('p', { class: 'muted small-text' }, found.patch.limits)] : null,
      facts.fitgpt_device_bytes ? h('p', { class: 'muted small-text' }, `fitGPT: ${f.bytes(facts.fitgpt_device_bytes)}`) : null);
  }

  if (saved.text) diagnose();
  return () => { turn += 1; };
}

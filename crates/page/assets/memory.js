// The memory of a run: the map of its arena in each phase, planned bytes beside those that were seen.

import { h, fill, say, choice, css } from '/dom.js';
import { known, listen, ask, want } from '/store.js';
import { ArenaMap, stacked, roleColour } from '/arena.js';
import { usual } from '/runs.js';
import * as f from '/format.js';

const PHASES = [['train', 'Train'], ['eval', 'Eval'], ['sample', 'Sample'], ['save', 'Save']];

export function open(main, query, remember) {
  const state = { run: query.has('run') ? Number(query.get('run')) : null, phase: PHASES.some(([name]) => name === query.get('phase')) ? query.get('phase') : 'train' };
  const map = new ArenaMap();
  const select = h('select', { 'aria-label': 'Run', onchange: () => { state.run = Number(select.value); keep(); load(); } });
  const tabs = choice('Phase', PHASES, state.phase, (value) => { state.phase = value; keep(); load(); });
  const note = h('p', { class: 'note info', hidden: true }), bars = h('div', { class: 'bars' }), about = h('p', { class: 'muted small-text' });
  const card = h('section', { class: 'card stack' }, h('div', { class: 'row spread' }, h('h2', null, 'The arena'), tabs), about, note, map.element);
  const seen = h('section', { class: 'card stack' }, h('h2', null, 'Planned beside seen'), bars);
  const content = h('div', { class: 'stack' }, h('div', { class: 'row' }, h('h1', null, 'Memory of'), h('div', { style: { minWidth: '12rem', flex: '0 1 24rem' } }, select)), card, seen);
  const nothing = h('div');
  main.append(content, nothing);
  let asked = 0, last = null, loadedFor = null;

  function keep() {
    const now = new URLSearchParams();
    if (state.run !== null) now.set('run', String(state.run));
    if (state.phase !== 'train') now.set('phase', state.phase);
    remember(now);
  }

  function chosen() {
    const [id] = usual(state.run === null ? [] : [state.run]);
    return id === undefined ? null : known.runs.get(id);
  }

  async function load() {
    const run = chosen(), turn = asked += 1;
    if (!run) return;
    loadedFor = `${run.id} ${run.summary.generation} ${state.phase}`;
    try {
      const found = await ask(`/api/runs/${run.id}/arena?phase=${state.phase}`);
      if (turn !== asked) return;
      last = found;
      map.element.hidden = false;
      map.show(found);
      note.hidden = found.is_same !== false;
      note.className = 'note info';
      say(note, found.is_same === false ? `Planned again on this machine: ${f.bytes(found.arena_bytes)} here, ${f.bytes(found.logged_arena_bytes)} where the run was planned. Scratch memory depends on the threads of the machine.` : '');
      say(about, `${found.segments.join(' and ')}: predicted time across, address up. ${f.bytes(found.arena_bytes)} in one block, of which ${f.bytes(found.held_bytes)} live for the whole run. Plan ${found.hash}.`);
    } catch (error) {
      if (turn !== asked) return;
      last = null;
      map.element.hidden = true;
      note.hidden = false;
      note.className = 'note';
      say(note, `There is no map: ${error.message}.`);
      say(about, ' ');
    }
    show();
  }

  function show() {
    const run = chosen();
    content.hidden = !run;
    if (!run) {
      fill(nothing, h('div', { class: 'empty' }, h('h2', null, known.heard ? 'No run to show' : 'Loading'), h('p', null, 'The memory of a run is known from its first line on. To see the memory of a model before it trains, use Plan.'), h('p', null, h('a', { href: '#/plan' }, 'Plan a model'))));
      return;
    }
    fill(nothing);
    const options = [...known.runs.values()].filter((one) => one.summary).map((one) => [one.id, one.summary.name]);
    const key = JSON.stringify(options);
    if (select.shown !== key) { select.shown = key; fill(select, options.map(([id, name]) => h('option', { value: String(id) }, name))); }
    select.value = String(run.id);
    const { summary } = run;
    const planned = summary.arena_bytes || 0, device = summary.most_device_bytes, resident = summary.most_resident_bytes;
    const context = last ? last.context_bytes : 0, buffers = last ? Math.max(0, last.device_bytes - last.arena_bytes - context) : 0, budget = last ? last.budget_bytes : null;
    const all = planned + context + buffers, most = Math.max(all, device || 0, resident || 0, budget && budget < 4 * all ? budget : 0, 1) * 1.02;
    const limit = budget && budget <= most ? budget : null;
    const held = last ? Math.min(last.held_bytes, planned) : 0;
    fill(bars,
      stacked('planned', [['for the whole run', held, roleColour('weight')], ['for a phase or a step', planned - held, roleColour('activation')], ['host buffers', buffers, roleColour('host')], ['driver, code, data', context, roleColour('context')]], most, limit),
      device ? stacked('seen on the device', [['seen', device, css('--accent')]], most, limit) : null,
      resident ? stacked(device ? 'seen on the host' : 'seen (resident)', [['seen', resident, css('--accent')]], most, device ? null : limit) : null,
      h('p', { class: 'muted small-text' }, device || resident ? `The most that the system counted for the process${limit ? `; the red line is the limit of ${f.bytes(limit)}` : ''}.` : 'Nothing was measured yet.'));
    if (loadedFor !== `${run.id} ${summary.generation} ${state.phase}`) load();
    want([]);
  }

  const stop = listen((what) => { if (what !== 'link') show(); });
  const theme = window.matchMedia('(prefers-color-scheme: dark)'), redraw = () => { if (last) map.show(last); show(); };
  theme.addEventListener('change', redraw);
  show();
  return () => { stop(); theme.removeEventListener('change', redraw); };
}

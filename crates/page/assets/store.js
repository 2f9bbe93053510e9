// What the page knows: summaries of all runs, and the data of those that are shown. Fed by the
// server's live stream; a part that was missed is fetched again.

import { gently } from '/dom.js';

export const POINT = ['iter', 'tokens', 'seconds', 'loss', 'lr', 'grad_norm', 'tokens_per_second', 'ms', 'mfu',
  'loss_scale', 'device_bytes_seen', 'resident_bytes'];
export const READING = ['iter', 'tokens', 'seconds', 'gpu_busy', 'gpu_clock', 'gpu_temperature', 'gpu_power'];

const BUCKETS = 1200;

export const known = { runs: new Map(), control: false, instance: null, online: false, heard: false, about: null };

const listeners = new Set();
/** Calls on every change; returns how to stop. The argument says what changed: 'runs', 'data', 'link'. */
export function listen(call) { listeners.add(call); return () => listeners.delete(call); }
function tell(what, id) { for (const call of listeners) call(what, id); }

export async function ask(path, options = {}) {
  const answer = await fetch(path, { credentials: 'same-origin', ...options });
  const kind = answer.headers.get('content-type') || '';
  const document = kind.includes('json') && !kind.includes('ndjson') ? await answer.json() : null;
  if (!answer.ok) throw new Error((document && document.error) || `the server answered ${answer.status}`);
  return document;
}

export function post(path, body, options = {}) {
  return fetch(path, { method: 'POST', credentials: 'same-origin', headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body), ...options });
}

export async function about() {
  known.about = known.about || ask('/api/about').catch((error) => { known.about = null; throw error; });
  return known.about;
}

let source = null;
export function connect() {
  if (source) source.close();
  source = new EventSource('/api/events');
  source.addEventListener('hello', (event) => hello(JSON.parse(event.data)));
  source.addEventListener('run', (event) => news(JSON.parse(event.data)));
  source.onerror = () => {
    known.online = false;
    tell('link');
    // The browser tries again by itself, unless the server refused it.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
  };
}

function record(id) {
  let run = known.runs.get(id);
  if (!run) {
    run = { id, summary: null, detail: null, base: null, seriesNews: 0, detailNews: 0, generation: -1, wanted: false, loading: null };
    known.runs.set(id, run);
  }
  return run;
}

function hello(index) {
  const again = known.instance !== index.instance;
  Object.assign(known, { instance: index.instance, control: index.control, online: true, heard: true });
  if (again) known.runs.clear();
  const ids = new Set(index.runs.map((summary) => summary.id));
  for (const id of known.runs.keys()) if (!ids.has(id)) known.runs.delete(id);
  for (const summary of index.runs) {
    const run = record(summary.id);
    run.summary = summary;
    if (run.wanted && (run.seriesNews !== summary.news || run.generation !== summary.generation)) load(run);
  }
  tell('runs');
  tell('link');
}

function news(message) {
  const run = record(message.id);
  const isNew = !run.summary;
  run.summary = message.summary;
  if (run.wanted && run.base) {
    const missed = message.news === null || run.seriesNews < message.from || message.summary.generation !== run.generation;
    if (missed) loadSoon(run);
    else message.news.forEach((item, index) => apply(run, item, message.from + 1 + index));
  }
  tell(isNew ? 'runs' : 'data', run.id);
}

function apply(run, item, number) {
  if (number > run.seriesNews) {
    run.seriesNews = number;
    if (item.point) append(run.base.train, POINT, item.point);
    if (item.hardware) append(run.base.hardware, READING, item.hardware);
  }
  if (number > run.detailNews) {
    run.detailNews = number;
    if (item.eval) {
      run.detail.evals = run.detail.evals.filter((one) => one.iter < item.eval.iter);
      run.detail.evals.push(item.eval);
    }
    if (item.mark) run.detail.marks.push(item.mark);
    if (item.sample) {
      run.detail.samples = run.detail.samples.filter((one) => one.iter !== item.sample.iter);
      run.detail.samples.push(item.sample);
    }
  }
  if (run.base.train.iter.length > 3 * BUCKETS) loadSoon(run);
}

function append(columns, names, row) {
  if (!columns.iter) names.slice(0, 3).forEach((name) => { columns[name] = []; });
  const before = columns.iter.length;
  names.forEach((name, index) => {
    const value = row[index];
    if (!columns[name]) {
      if (value === null) return;
      columns[name] = new Array(before).fill(null);
    }
    columns[name].push(value);
    for (const edge of ['_low', '_high']) if (columns[name + edge]) columns[name + edge].push(value);
  });
}

const loadSoon = gently(1500, (run) => load(run));

async function load(run) {
  if (run.loading) return run.loading;
  run.loading = (async () => {
    try {
      const detail = await ask(`/api/runs/${run.id}`);
      const series = await ask(`/api/runs/${run.id}/series?buckets=${BUCKETS}`);
      run.detail = detail;
      run.detailNews = detail.summary.news;
      run.base = { train: series.train.columns, hardware: series.hardware.columns };
      run.seriesNews = series.news;
      run.generation = series.generation;
      run.total = series.train.points;
      run.error = null;
    } catch (error) { run.error = error.message; }
    run.loading = null;
    tell('data', run.id);
  })();
  return run.loading;
}

/** Says which runs are shown: their data is fetched and kept up to date. */
export function want(ids) {
  for (const run of known.runs.values()) {
    run.wanted = ids.includes(run.id);
    if (run.wanted && !run.base && !run.loading && run.summary) load(run);
    if (run.wanted && run.base && run.generation !== run.summary.generation) loadSoon(run);
  }
}

/** The part of a run's series that a zoomed view shows. */
export async function part(id, axis, from, to, buckets, signal) {
  const query = new URLSearchParams({ axis, from: String(from), to: String(to), buckets: String(Math.round(buckets)) });
  const series = await ask(`/api/runs/${id}/series?${query}`, { signal });
  return { train: series.train.columns, hardware: series.hardware.columns };
}

export async function control(action) {
  const answer = await post('/api/control', { action });
  const document = await answer.json();
  if (!answer.ok) throw new Error(document.error);
  return document;
}

// Drives the page in a real browser (chromium, headless) and prints what it compared, a line each:
// `name: figure (limit)`. `cargo xtask peers page` runs it with Node 20.10 or newer:
//   node --experimental-websocket page.mjs FITGPT CHROMIUM SCRATCH [SHOTS]
// It needs no packages: it speaks the browser's own protocol over a WebSocket. Exit code 1: something
// is beyond its limit. With ASSETS=crates/page/assets the files of the page come from that folder
// instead of from the program, so that work on them needs no build.

import { spawn } from 'node:child_process';
import { mkdirSync, writeFileSync, openSync, writeSync, closeSync, readFileSync, existsSync } from 'node:fs';
import { join } from 'node:path';

const ASSETS = process.env.ASSETS;
const KINDS = { js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml', html: 'text/html' };

const [fitgpt, chromium, scratch, shots] = process.argv.slice(2);
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const children = new Set();
let failed = 0;

function compared(name, figure, limit, good) {
  console.log(`${good ? '' : 'FAILED '}${name}: ${figure} (${limit})`);
  if (!good) failed += 1;
}

function start(program, args, options = {}) {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], cwd: scratch, ...options });
  children.add(child);
  child.said = '';
  for (const pipe of [child.stdout, child.stderr]) pipe.on('data', (data) => { child.said = (child.said + data).slice(-20000); });
  child.ended = new Promise((done) => child.on('exit', () => { children.delete(child); done(); }));
  return child;
}

async function until(what, is, seconds = 30) {
  const began = performance.now();
  for (;;) {
    const found = await is();
    if (found) return { found, seconds: (performance.now() - began) / 1000 };
    if (performance.now() - began > 1000 * seconds) throw new Error(`waited ${seconds} s for: ${what}`);
    await wait(20);
  }
}

/** A tab of the browser. */
class Tab {
  static async open(port) {
    const answer = await fetch(`http://127.0.0.1:${port}/json/new?about:blank`, { method: 'PUT' });
    const tab = new Tab();
    tab.id = 0; tab.calls = new Map(); tab.problems = [];
    tab.socket = new WebSocket((await answer.json()).webSocketDebuggerUrl);
    await new Promise((done, broken) => { tab.socket.onopen = done; tab.socket.onerror = () => broken(new Error('no connection to the browser')); });
    tab.socket.onmessage = (event) => tab.heard(JSON.parse(event.data));
    for (const part of ['Page', 'Runtime', 'Log']) await tab.call(`${part}.enable`);
    if (ASSETS) await tab.call('Fetch.enable', { patterns: [{ urlPattern: '*', requestStage: 'Response' }] });
    return tab;
  }

  heard(message) {
    if (message.id) { const { done, broken } = this.calls.get(message.id); this.calls.delete(message.id); if (message.error) broken(new Error(message.error.message)); else done(message.result); return; }
    if (message.method === 'Fetch.requestPaused') this.replace(message.params);
    if (message.method === 'Runtime.exceptionThrown') this.problems.push(message.params.exceptionDetails.exception?.description || 'exception');
    // A server that is down and a refused request are part of the tests; everything else is not.
    if (message.method === 'Log.entryAdded' && message.params.entry.level === 'error' && message.params.entry.source !== 'network') this.problems.push(message.params.entry.text);
  }

  /** The server's answer with the file of the folder as its body. */
  async replace({ requestId, request, responseHeaders }) {
    const path = new URL(request.url).pathname, name = path === '/' ? 'index.html' : path.slice(1), file = join(ASSETS, name);
    const kind = KINDS[name.split('.').pop()];
    if (path.startsWith('/api') || !kind || !responseHeaders || !existsSync(file)) { await this.call('Fetch.continueRequest', { requestId }).catch(() => {}); return; }
    const headers = responseHeaders.filter((one) => one.name.toLowerCase() !== 'content-length');
    await this.call('Fetch.fulfillRequest', { requestId, responseCode: 200, responseHeaders: headers, body: readFileSync(file).toString('base64') }).catch(() => {});
  }

  call(method, params = {}) {
    this.id += 1;
    const id = this.id;
    return new Promise((done, broken) => { this.calls.set(id, { done, broken }); this.socket.send(JSON.stringify({ id, method, params })); });
  }

  async run(code) {
    const { result, exceptionDetails } = await this.call('Runtime.evaluate', { expression: code, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description || exceptionDetails.text);
    return result.value;
  }

  async look(width, height, dark) {
    await this.call('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: false });
    await this.call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }] });
  }

  async visit(url) { await this.call('Page.navigate', { url: 'about:blank' }); await this.call('Page.navigate', { url }); }

  async picture(name) {
    if (!shots) return;
    const { data } = await this.call('Page.captureScreenshot', { format: 'png' });
    writeFileSync(join(shots, `page-${name}.png`), Buffer.from(data, 'base64'));
  }
}

const cell = (name) => `[...document.querySelectorAll('.stat')].find((one) => one.querySelector('dt').textContent === '${name}')?.querySelector('dd')`;
const stat = (name) => `${cell(name)}?.textContent`;
const click = (text) => `[...document.querySelectorAll('button')].find((one) => one.textContent === '${text}' && !one.closest('[hidden]')).click()`;

async function browser() {
  const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--remote-debugging-port=0', `--user-data-dir=${join(scratch, 'profile')}`, 'about:blank'];
  const child = start(chromium, flags);
  const { found } = await until('the browser', () => child.said.match(/ws:\/\/127\.0\.0\.1:(\d+)\//));
  return Number(found[1]);
}

async function serve(args) {
  const child = start(fitgpt, args);
  const { found } = await until('the page\'s address', () => child.said.match(/page:\S* (http:\/\/\S+)/));
  return { child, url: found[1] };
}

async function trains(tab) {
  const { child, url } = await serve(['train', '--ui', '--out_dir=out-first', '--max_iters=100000', '--eval_interval=500', '--eval_iters=20', '--log_interval=10']);
  await tab.look(1440, 900, false);
  await tab.visit(`${url}#/runs`);
  const first = await until('a loss', () => tab.run(`/^\\d/.test(${stat('Loss')} || '')`));
  compared('first loss on the page', `${first.seconds.toFixed(2)} s`, '10 s', first.seconds < 10);
  let slowest = 0;
  for (let round = 0; round < 5; round += 1) {
    const before = await tab.run(stat('Iteration'));
    const { seconds } = await until('a newer iteration', async () => (await tab.run(stat('Iteration'))) !== before);
    slowest = Math.max(slowest, seconds);
  }
  compared('news of a run that trains', `${slowest.toFixed(2)} s`, '1 s', slowest < 1);
  const drawn = await tab.run(`(() => { const c = document.querySelector('.chart.wide canvas'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; })()`);
  compared('pixels of the loss chart', drawn, 'more than 2000', drawn > 2000);
  await tab.run(click('Save now'));
  const saved = await until('a save', () => existsSync(join(scratch, 'out-first', 'last.safetensors')));
  compared('save from the page', `${saved.seconds.toFixed(2)} s`, '5 s', saved.seconds < 5);
  await until('a sample of an evaluation', () => tab.run(`document.querySelector('.sample').textContent.length > 60 && !document.querySelector('.sample').classList.contains('muted')`), 90);
  compared('texts at evaluations', await tab.run(`document.querySelector('.sample').textContent.length`) + ' characters', 'more than 60', true);
  await playground(tab, url);
  await tab.visit(`${url}#/runs`);
  await until('the buttons', () => tab.run(`Boolean([...document.querySelectorAll('button')].find((one) => one.textContent === 'Stop after this step' && !one.closest('[hidden]')))`));
  await tab.run(click('Stop after this step'));
  await tab.run(click('Really stop?'));
  const stopped = await until('the end of the run', () => child.exitCode !== null);
  compared('stop from the page', `${stopped.seconds.toFixed(2)} s`, '15 s', stopped.seconds < 15);
}

async function playground(tab, url) {
  await tab.visit(`${url}#/playground`);
  await until('the playground', () => tab.run(`Boolean(document.querySelector('form textarea')) && !document.querySelector('.side').hidden`));
  await tab.run(`document.querySelector('form textarea').value = 'The '; document.querySelector('form textarea').dispatchEvent(new Event('input')); document.querySelector('button.first').click()`);
  const streamed = await until('twenty tokens', () => tab.run(`document.querySelectorAll('.text .token').length >= 20`), 60);
  compared('twenty tokens beside a run that trains', `${streamed.seconds.toFixed(2)} s`, '60 s', true);
  await tab.run(`document.querySelectorAll('.text .token')[10].dispatchEvent(new PointerEvent('pointerenter'))`);
  const rivals = await tab.run(`document.querySelectorAll('#rivals .rival').length`);
  compared('rivals of a token', rivals, 'at least 8', rivals >= 8);
}

async function plans(tab, url) {
  await tab.look(1440, 900, false);
  await tab.visit(`${url}#/plan?gpu=RTX+4070`);
  await until('a plan', () => tab.run(`document.querySelector('.verdict strong')?.textContent === 'Fits'`));
  await wait(600);
  const times = [];
  for (const layers of [14, 16, 18, 20, 24, 12]) {
    times.push(await tab.run(`new Promise((done) => { const input = document.querySelector('input[aria-label="Layers, exact"]'), stat = ${cell('Parameters')}; const before = stat.textContent, began = performance.now(); input.value = '${layers}'; input.dispatchEvent(new Event('change')); const look = () => stat.textContent !== before ? done(performance.now() - began) : requestAnimationFrame(look); look(); setTimeout(() => done(9999), 5000); })`));
  }
  const median = times.sort((a, b) => a - b)[3];
  compared('a slider moves until the new plan is shown, median', `${median.toFixed(0)} ms`, '150 ms with the frame of the browser', median < 150);
  await tab.run(`document.querySelector('select').value = 'RTX 3060'; document.querySelector('select').dispatchEvent(new Event('change'))`);
  await tab.run(click('Largest that fits'));
  const largest = await until('the largest model', () => tab.run(`location.hash.includes('n_embd')`));
  compared('the largest model that fits', `${largest.seconds.toFixed(2)} s`, '2 s', largest.seconds < 2);
  const hash = await tab.run('location.hash');
  await tab.visit(`${url}${hash}`);
  await until('the same plan from the address', () => tab.run(`document.querySelector('.verdict strong')?.textContent === 'Fits' && location.hash === '${hash}'`));
  compared('a plan in the address', hash.length + ' characters', 'comes back', true);
}

async function doctor(tab, url) {
  await tab.visit(`${url}#/doctor`);
  await until('the doctor', () => tab.run(`Boolean(document.querySelector('.side button.first'))`));
  await tab.run(click('Try an example'));
  const answered = await until('a diagnosis', () => tab.run(`(document.querySelector('.report .lead')?.textContent || '').includes('6.14 GiB')`));
  compared('the doctor answers', `${answered.seconds.toFixed(2)} s`, '5 s', answered.seconds < 5);
  for (const [code, word] of [['ja', 'メモリ'], ['zh', '显存'], ['de', 'Speicher'], ['fr', 'mémoire']]) {
    await tab.run(`document.querySelector('.side select').value = '${code}'; document.querySelector('.side select').dispatchEvent(new Event('change'))`);
    await until(`the report in ${code}`, () => tab.run(`document.querySelector('.report').lang === '${code}' && document.querySelector('.report').textContent.includes('${word}')`));
  }
  compared('languages of the doctor', 5, '5', true);
}

async function compares(tab, url) {
  await tab.visit(`${url}#/runs?run=0,1`);
  await until('two runs', () => tab.run(`document.querySelectorAll('.item.on').length === 2 && document.querySelectorAll('table tbody tr').length === 2 && [...document.querySelectorAll('table th')].length > 8`));
  const keys = await tab.run(`[...document.querySelectorAll('table th')].some((one) => one.textContent === 'n_layer')`);
  compared('two runs over one another', keys ? 'their difference is named' : 'nothing', 'n_layer', keys);
}

async function hostile(tab, url) {
  const folder = join(scratch, 'out-hostile');
  mkdirSync(folder, { recursive: true });
  const evil = '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 1"><b>bold</b>';
  const start = JSON.parse(readFileSync(join(scratch, 'out-first', 'log.jsonl'), 'utf8').split('\n')[0]);
  start.config.dataset = evil;
  const lines = [start, { kind: 'sample', iter: 1, text: evil, unix_time: 1, seconds: 1 }, { kind: 'notice', text: evil, dropped: null, unix_time: 1, seconds: 2 }];
  writeFileSync(join(folder, 'log.jsonl'), lines.map((line) => JSON.stringify(line)).join('\n') + `\n${evil}\n`);
  const { found: id } = await until('the hostile run', async () => {
    const { runs } = await (await fetch(`${url}api/runs`)).json();
    return runs.find((one) => one.name === 'out-hostile' && one.samples === 1)?.id;
  });
  await tab.visit(`${url}#/runs?run=${id}`);
  await until('its text', () => tab.run(`document.querySelector('.sample')?.textContent.includes('<script>')`));
  await wait(500);
  const hacked = await tab.run(`window.hacked === undefined && !document.querySelector('main b:not(.tip b), main img')`);
  compared('a sample with a script', hacked ? 'stays text' : 'EXECUTES', 'stays text', hacked);
}

async function million(tab) {
  const folder = join(scratch, 'million', 'out-long');
  mkdirSync(folder, { recursive: true });
  const first = JSON.parse(readFileSync(join(scratch, 'out-first', 'log.jsonl'), 'utf8').split('\n')[0]);
  first.config.max_iters = 1000000;
  const file = openSync(join(folder, 'log.jsonl'), 'w');
  writeSync(file, JSON.stringify(first) + '\n');
  let part = '';
  for (let iter = 0; iter < 1000000; iter += 1) {
    part += `{"kind":"iter","iter":${iter},"loss":${(1 + 3 / (1 + iter / 3000) + Math.sin(iter * 12.9898) * 0.05).toFixed(6)},"lr":0.0006,"grad_norm":0.51817262172${iter % 10},"loss_scale":1.0,"tokens_per_second":55009.26508588805,"ms":9.307523,"arena_bytes":9937920,"device_bytes_seen":null,"resident_bytes":42364928,"unix_time":${(1.79e9 + iter / 100).toFixed(3)},"seconds":${(iter / 100).toFixed(3)}}\n`;
    if (part.length > 1 << 22) { writeSync(file, part); part = ''; }
  }
  writeSync(file, part);
  closeSync(file);
  const began = performance.now();
  const { child, url } = await serve(['ui', join(scratch, 'million')]);
  await tab.visit(`${url}#/runs`);
  await until('a million iterations', () => tab.run(`${stat('Iteration')} === '1,000,000' && document.querySelectorAll('.chart:not([hidden])').length > 3`), 60);
  const whole = (performance.now() - began) / 1000;
  compared('a run of 1,000,000 logged iterations, from the start of the server', `${whole.toFixed(2)} s`, '2 s on an idle machine', whole < 2);
  const again = performance.now();
  await tab.visit(`${url}#/runs`);
  await until('it again', () => tab.run(`${stat('Iteration')} === '1,000,000' && document.querySelectorAll('.chart:not([hidden])').length > 3`), 60);
  const seconds = (performance.now() - again) / 1000;
  compared('the same, opened in a browser', `${seconds.toFixed(2)} s`, '2 s', seconds < 2);
  const frames = await tab.run(`new Promise((done) => { const canvas = document.querySelector('.chart.wide canvas'), box = canvas.getBoundingClientRect(); const times = []; let last = performance.now(), n = 0; const step = () => { const now = performance.now(); times.push(now - last); last = now; canvas.dispatchEvent(new WheelEvent('wheel', { deltaY: n % 20 < 10 ? -100 : 100, shiftKey: true, clientX: box.left + box.width / 2, clientY: box.top + 50, cancelable: true })); n += 1; if (n < 60) requestAnimationFrame(step); else done(times.sort((a, b) => a - b)[Math.floor(times.length / 2)]); }; requestAnimationFrame(step); })`);
  compared('a frame while zooming, median', `${frames.toFixed(1)} ms`, '50 ms', frames < 50);
  child.kill('SIGINT');
  await child.ended;
}

async function reconnects(tab, first) {
  await tab.visit(`${first.url}#/runs`);
  await until('the connection', () => tab.run(`document.getElementById('link')?.textContent?.startsWith('live')`));
  first.child.kill('SIGINT');
  await first.child.ended;
  await until('the loss of the connection', () => tab.run(`document.getElementById('link')?.textContent?.startsWith('connection lost')`));
  const port = new URL(first.url).port;
  const second = await serve(['ui', '--port', port]);
  const back = await until('the new connection', () => tab.run(`document.getElementById('link')?.textContent?.startsWith('live')`));
  compared('reconnect after the server restarts', `${back.seconds.toFixed(2)} s`, '10 s', back.seconds < 10);
  return second;
}

async function pictures(tab, url) {
  const views = [['runs', '#/runs?run=0,1'], ['plan', '#/plan?gpu=RTX+4070&batch_size=64&gradient_accumulation_steps=1&max_iters=20000'], ['memory', '#/memory?run=0'], ['doctor', '#/doctor'], ['playground', '#/playground?run=0']];
  let widest = 0;
  for (const [width, height] of [[360, 780], [1440, 900], [2560, 1440]]) {
    for (const dark of [false, true]) {
      await tab.look(width, height, dark);
      for (const [name, hash] of views) {
        await tab.visit(`${url}${hash}`);
        await wait(1500);
        if (name === 'playground') { await tab.run(`document.querySelector('form textarea').value = 'The old '; document.querySelector('form textarea').dispatchEvent(new Event('input')); document.querySelector('button.first').click()`); await until('a text', () => tab.run(`document.querySelectorAll('.text .token').length > 150`), 60); }
        if (name === 'doctor') { await tab.run(click('Try an example')); await wait(1200); }
        widest = Math.max(widest, await tab.run('document.documentElement.scrollWidth - window.innerWidth'));
        await tab.picture(`${name}-${width}-${dark ? 'dark' : 'light'}`);
      }
    }
  }
  compared('pixels beyond the window at 360, 1440 and 2560', widest, '0', widest <= 0);
}

try {
  const tab = await Tab.open(await browser());
  await trains(tab);
  const second = start(fitgpt, ['train', '--n_layer=1', '--out_dir=out-second', '--max_iters=2000', '--eval_interval=500', '--log_interval=20']);
  await second.ended;
  let ui = await serve(['ui']);
  await plans(tab, ui.url);
  await doctor(tab, ui.url);
  await compares(tab, ui.url);
  ui = await reconnects(tab, ui);
  await hostile(tab, ui.url);
  await pictures(tab, ui.url);
  await million(tab);
  compared('errors in the console', tab.problems.length ? tab.problems.join(' | ').slice(0, 300) : 'none', 'none', !tab.problems.length);
} catch (error) {
  console.log(`FAILED: ${error.message}`);
  failed += 1;
} finally {
  for (const child of children) child.kill('SIGKILL');
}
process.exit(failed ? 1 : 0);

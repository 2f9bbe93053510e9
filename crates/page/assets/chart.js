// A chart on a canvas: lines with a band, points with error bars, marks on the axis; zoom by
// dragging, with the wheel or by keys. Charts of one view share their range and their cursor.

import { h, fill, css, announce } from '/dom.js';

/** The range and cursor that the charts of a view share. */
export class View {
  constructor() { this.range = null; this.cursor = null; this.charts = new Set(); this.logX = false; this.changed = () => {}; }
  zoom(from, to) { this.range = from === null || !(to > from) ? null : [from, to]; this.redraw(); this.changed(); }
  point(x) { this.cursor = x; this.redraw(); }
  redraw() { for (const chart of this.charts) chart.later(); }
}

const SPACE = { left: 58, right: 12, top: 8, bottom: 24 };

export class Chart {
  /** options: title, wide, value (formats y), axis (formats x), log */
  constructor(view, options) {
    this.view = view;
    this.options = options;
    this.series = [];
    this.marks = [];
    this.log = Boolean(options.log);
    this.now = h('span', { class: 'now' });
    this.canvas = h('canvas', { tabindex: '0', role: 'img', 'aria-label': options.title,
      'aria-keyshortcuts': 'ArrowLeft ArrowRight + - 0' });
    this.none = h('div', { class: 'none' });
    this.tip = h('div', { class: 'tip', hidden: true });
    this.plot = h('div', { class: 'plot' }, this.canvas, this.none, this.tip);
    this.element = h('section', { class: `card chart${options.wide ? ' wide' : ''}` },
      h('header', null, h('h2', null, options.title), this.now), this.plot);
    view.charts.add(this);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  /** series: { x, y, low, high, error, colour, name, style: line|faint|points } */
  show(series, marks, now) {
    this.series = series.filter((one) => one.x && one.y && one.x.length);
    this.marks = marks || [];
    fill(this.now, now || '');
    this.later();
  }

  say(text) { this.none.textContent = text; }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  bounds() {
    let from = Infinity, to = -Infinity;
    for (const { x } of this.series) {
      if (x[0] < from) from = x[0];
      if (x[x.length - 1] > to) to = x[x.length - 1];
    }
    if (!(to >= from)) return null;
    return to === from ? [from - 1, to + 1] : [from, to];
  }

  scale() {
    const all = this.bounds();
    if (!all) return null;
    const [from, to] = this.view.range || all;
    let low = Infinity, high = -Infinity;
    const see = (value) => {
      if (value === null || !isFinite(value) || (this.log && value <= 0)) return;
      if (value < low) low = value;
      if (value > high) high = value;
    };
    // A few values far above the rest (the first losses) would flatten all others.
    const seen = [];
    for (const one of this.series) {
      for (let i = 0; i < one.x.length; i += 1) {
        if (one.x[i] < from || one.x[i] > to || one.y[i] === null) continue;
        if (one.style === 'faint' && this.options.robust) { seen.push(one.y[i]); continue; }
        see(one.y[i]);
        if (one.error) { see(one.y[i] - one.error[i]); see(one.y[i] + one.error[i]); }
      }
    }
    if (seen.length) {
      seen.sort((a, b) => a - b);
      see(seen[Math.floor(seen.length * 0.002)]);
      see(seen[Math.min(seen.length - 1, Math.floor(seen.length * 0.998))]);
    }
    if (!(high >= low)) return null;
    if (this.options.zero && !this.log) low = Math.min(0, low);
    if (high === low) { const pad = Math.abs(high) * 0.05 || 1; high += pad; if (!this.options.zero) low -= pad; }
    const width = this.plot.clientWidth, height = this.plot.clientHeight;
    const inner = { x: SPACE.left, y: SPACE.top, w: Math.max(10, width - SPACE.left - SPACE.right), h: Math.max(10, height - SPACE.top - SPACE.bottom) };
    const logX = this.view.logX;
    const left = logX ? Math.log10(Math.max(from, 1)) : from, right = logX ? Math.log10(Math.max(to, 2)) : to;
    const xOf = (x) => inner.x + ((logX ? Math.log10(Math.max(x, 1)) : x) - left) / (right - left) * inner.w;
    const atX = (pixel) => { const v = left + (pixel - inner.x) / inner.w * (right - left); return logX ? 10 ** v : v; };
    let bottom, top;
    if (this.log) { bottom = Math.log10(low); top = Math.log10(high); } else { bottom = low; top = high; }
    const pad = (top - bottom) * 0.06 || 0.5;
    top += pad;
    if (!(this.options.zero && low === 0)) bottom -= pad;
    const yOf = (y) => inner.y + inner.h - ((this.log ? Math.log10(Math.max(y, 1e-30)) : y) - bottom) / (top - bottom) * inner.h;
    return { inner, from, to, xOf, atX, yOf, bottom, top, width, height };
  }

  draw() {
    const { canvas } = this;
    const width = this.plot.clientWidth, height = this.plot.clientHeight, ratio = window.devicePixelRatio || 1;
    if (!width || !height) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const ink = canvas.getContext('2d');
    ink.setTransform(ratio, 0, 0, ratio, 0, 0);
    ink.clearRect(0, 0, width, height);
    const scale = this.scale();
    this.none.hidden = Boolean(scale);
    if (!scale) return;
    this.current = scale;
    this.grid(ink, scale);
    ink.save();
    ink.beginPath();
    ink.rect(scale.inner.x, scale.inner.y - 2, scale.inner.w, scale.inner.h + 4);
    ink.clip();
    for (const one of this.series) this.paint(ink, scale, one);
    ink.restore();
    this.axisMarks(ink, scale);
    this.cursor(ink, scale);
    if (this.drag) {
      ink.fillStyle = css('--accent');
      ink.globalAlpha = 0.15;
      ink.fillRect(Math.min(this.drag.x0, this.drag.x1), scale.inner.y, Math.abs(this.drag.x1 - this.drag.x0), scale.inner.h);
      ink.globalAlpha = 1;
    }
  }

  grid(ink, { inner, from, to, xOf, yOf, bottom, top }) {
    ink.font = `11px ${css('--sans')}`;
    ink.lineWidth = 1;
    ink.textBaseline = 'middle';
    ink.textAlign = 'right';
    const unit = this.options.binary ? 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(top, 1)) / 10)) : 1;
    const ys = this.log ? logTicks(bottom, top) : ticks(bottom / unit, top / unit, Math.max(2, inner.h / 48)).map((tick) => tick * unit);
    for (const y of ys) {
      const at = Math.round(yOf(y)) + 0.5;
      if (at < inner.y - 1 || at > inner.y + inner.h + 1) continue;
      ink.strokeStyle = css('--grid');
      line(ink, inner.x, at, inner.x + inner.w, at);
      ink.fillStyle = css('--muted');
      ink.fillText(this.options.value(y, true), inner.x - 7, at);
    }
    ink.textAlign = 'center';
    ink.textBaseline = 'top';
    const xs = this.view.logX ? logTicks(Math.log10(Math.max(from, 1)), Math.log10(Math.max(to, 2))) : this.options.time && this.options.time() ? timeTicks(from, to, inner.w / 90) : ticks(from, to, Math.max(2, inner.w / 90));
    for (const x of xs) {
      const at = xOf(x);
      if (at < inner.x + 8 || at > inner.x + inner.w - 8) continue;
      ink.fillStyle = css('--muted');
      ink.fillText(this.options.axis(x), at, inner.y + inner.h + 8);
    }
    ink.strokeStyle = css('--strong');
    line(ink, inner.x, inner.y + inner.h + 0.5, inner.x + inner.w, inner.y + inner.h + 0.5);
  }

  paint(ink, { xOf, yOf, from, to }, one) {
    ink.strokeStyle = one.colour;
    ink.fillStyle = one.colour;
    const { x, y } = one;
    const start = Math.max(0, lower(x, from) - 1), end = Math.min(x.length, lower(x, to) + 2);
    if (one.low && one.high && one.style !== 'points') {
      ink.globalAlpha = 0.13;
      ink.beginPath();
      let open = false;
      for (let i = start; i < end; i += 1) if (one.high[i] !== null) { const px = xOf(x[i]), py = yOf(one.high[i]); if (open) ink.lineTo(px, py); else { ink.moveTo(px, py); open = true; } }
      for (let i = end - 1; i >= start; i -= 1) if (one.low[i] !== null) ink.lineTo(xOf(x[i]), yOf(one.low[i]));
      ink.fill();
    }
    ink.globalAlpha = { faint: 0.28, pale: 0.5 }[one.style] || 1;
    ink.lineWidth = one.style === 'faint' ? 1 : one.style === 'pale' ? 1.2 : 1.8;
    ink.setLineDash(one.dash || []);
    ink.lineJoin = 'round';
    ink.beginPath();
    let open = false;
    for (let i = start; i < end; i += 1) {
      if (y[i] === null || (this.log && y[i] <= 0)) { open = false; continue; }
      const px = xOf(x[i]), py = yOf(y[i]);
      if (open) ink.lineTo(px, py); else { ink.moveTo(px, py); open = true; }
    }
    ink.stroke();
    ink.setLineDash([]);
    if (one.style === 'points') {
      const close = (end - start) > 400;
      for (let i = start; i < end; i += 1) {
        if (y[i] === null) continue;
        const px = xOf(x[i]), py = yOf(y[i]);
        if (one.error && one.error[i]) {
          ink.globalAlpha = 0.55;
          ink.lineWidth = 1.2;
          line(ink, px, yOf(y[i] - one.error[i]), px, yOf(y[i] + one.error[i]));
        }
        ink.globalAlpha = 1;
        if (!close) { ink.beginPath(); ink.arc(px, py, one.dash ? 2 : 2.8, 0, 7); ink.fill(); }
      }
    }
    ink.globalAlpha = 1;
  }

  axisMarks(ink, { inner, xOf, from, to }) {
    for (const mark of this.marks) {
      if (mark.x < from || mark.x > to || mark.x === null) continue;
      const at = xOf(mark.x), y = inner.y + inner.h;
      ink.fillStyle = mark.colour;
      ink.beginPath();
      if (mark.kind === 'notice') { ink.moveTo(at, y - 8); ink.lineTo(at + 4.5, y); ink.lineTo(at - 4.5, y); }
      else if (mark.kind === 'best') { ink.moveTo(at, y - 9); ink.lineTo(at + 4, y - 4.5); ink.lineTo(at, y); ink.lineTo(at - 4, y - 4.5); }
      else { ink.rect(at - 1, y - (mark.kind === 'save' ? 5 : 10), 2, mark.kind === 'save' ? 5 : 10); }
      ink.fill();
    }
  }

  cursor(ink, { inner, xOf, yOf, from, to, width }) {
    const x = this.view.cursor;
    if (x === null || x < from || x > to) { this.tip.hidden = true; return; }
    const at = Math.round(xOf(x)) + 0.5;
    ink.strokeStyle = css('--muted');
    ink.setLineDash([3, 3]);
    line(ink, at, inner.y, at, inner.y + inner.h);
    ink.setLineDash([]);
    const rows = [];
    let place = null;
    for (const one of this.series) {
      if (one.quiet) continue;
      const index = nearest(one.x, x);
      if (index < 0 || one.y[index] === null) continue;
      if (place === null) place = one.x[index];
      ink.fillStyle = one.colour;
      ink.beginPath();
      ink.arc(xOf(one.x[index]), yOf(one.y[index]), 3.4, 0, 7);
      ink.fill();
      const error = one.error && one.error[index] ? ` ± ${this.options.value(one.error[index])}` : '';
      rows.push(h('div', { class: 'line' }, h('span', { class: 'swatch', style: { background: one.colour } }), `${one.name} `, h('b', null, this.options.value(one.y[index]) + error)));
    }
    const close = this.marks.filter((mark) => mark.text && Math.abs(xOf(mark.x) - at) < 6).slice(-3);
    for (const mark of close) rows.push(h('div', { class: 'muted' }, `${mark.kind}: ${mark.text.slice(0, 140)}`));
    if (!this.hovered || !rows.length) { this.tip.hidden = true; return; }
    fill(this.tip, h('div', { class: 'muted' }, `${this.options.axisName()} ${this.options.axis(place === null ? x : place, true)}`), rows);
    this.tip.hidden = false;
    const left = at + 14 + this.tip.offsetWidth > width ? at - 14 - this.tip.offsetWidth : at + 14;
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${inner.y + 4}px`;
    this.spoken = [`${this.options.axisName()} ${this.options.axis(place === null ? x : place, true)}`, ...rows.map((row) => row.textContent)].join(', ');
  }

  listen() {
    const { canvas, view } = this;
    const at = (event) => event.clientX - canvas.getBoundingClientRect().left;
    canvas.addEventListener('pointermove', (event) => {
      if (!this.current) return;
      this.hovered = true;
      if (this.drag) { this.drag.x1 = at(event); this.later(); return; }
      if (this.pan) {
        const { atX } = this.pan.scale, shift = atX(this.pan.x) - atX(at(event));
        view.zoom(this.pan.range[0] + shift, this.pan.range[1] + shift);
        return;
      }
      view.point(this.current.atX(at(event)));
    });
    canvas.addEventListener('pointerleave', () => { this.hovered = false; if (!this.drag && !this.pan) view.point(null); });
    canvas.addEventListener('pointerdown', (event) => {
      if (!this.current || event.button || event.pointerType === 'touch') return;
      canvas.setPointerCapture(event.pointerId);
      if (event.shiftKey && view.range) this.pan = { x: at(event), range: [...view.range], scale: this.current };
      else this.drag = { x0: at(event), x1: at(event) };
    });
    const end = () => {
      const { drag } = this;
      [this.drag, this.pan] = [null, null];
      if (drag && Math.abs(drag.x1 - drag.x0) > 6) {
        const [a, b] = [this.current.atX(drag.x0), this.current.atX(drag.x1)].sort((x, y) => x - y);
        view.zoom(a, b);
      } else this.later();
    };
    canvas.addEventListener('pointerup', end);
    canvas.addEventListener('pointercancel', end);
    canvas.addEventListener('dblclick', () => view.zoom(null));
    canvas.addEventListener('wheel', (event) => {
      if (!this.current || !(event.ctrlKey || event.shiftKey || event.altKey)) return;
      event.preventDefault();
      this.zoomBy(event.deltaY + event.deltaX > 0 ? 1.25 : 0.8, this.current.atX(at(event)));
    }, { passive: false });
    canvas.addEventListener('keydown', (event) => this.key(event));
    canvas.addEventListener('blur', () => { this.hovered = false; view.point(null); });
  }

  zoomBy(factor, around) {
    const all = this.bounds(), [from, to] = this.view.range || all;
    const range = [around - (around - from) * factor, around + (to - around) * factor];
    if (range[1] - range[0] >= all[1] - all[0]) this.view.zoom(null);
    else this.view.zoom(Math.max(range[0], all[0]), Math.min(range[1], all[1]));
  }

  key(event) {
    if (!this.current) return;
    const [from, to] = this.view.range || this.bounds(), step = (to - from) / 60;
    const cursor = this.view.cursor === null ? (from + to) / 2 : this.view.cursor;
    const moves = { ArrowLeft: () => this.point(Math.max(from, cursor - step)), ArrowRight: () => this.point(Math.min(to, cursor + step)),
      '+': () => this.zoomBy(0.7, cursor), '=': () => this.zoomBy(0.7, cursor), '-': () => this.zoomBy(1.43, cursor), '0': () => this.view.zoom(null) };
    if (!moves[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    moves[event.key]();
  }

  point(x) {
    this.hovered = true;
    this.view.point(x);
    requestAnimationFrame(() => requestAnimationFrame(() => announce(this.spoken || '')));
  }
}

function line(ink, x0, y0, x1, y1) { ink.beginPath(); ink.moveTo(x0, y0); ink.lineTo(x1, y1); ink.stroke(); }

/** The first index whose value is at least this. */
export function lower(values, value) {
  let low = 0, high = values.length;
  while (low < high) { const middle = (low + high) >> 1; if (values[middle] < value) low = middle + 1; else high = middle; }
  return low;
}

function nearest(values, value) {
  if (!values.length) return -1;
  const index = Math.min(values.length - 1, lower(values, value));
  return index > 0 && value - values[index - 1] < values[index] - value ? index - 1 : index;
}

export function ticks(from, to, count) {
  const rough = (to - from) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= rough) || rough;
  const found = [];
  for (let value = Math.ceil(from / step) * step; value <= to + step * 1e-9 && found.length < 50; value += step) found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return found;
}

function timeTicks(from, to, count) {
  const rough = (to - from) / Math.max(2, count);
  const step = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800].find((value) => value >= rough);
  if (!step || step === 1) return ticks(from, to, count);
  const found = [];
  for (let value = Math.ceil(from / step) * step; value <= to && found.length < 50; value += step) found.push(value);
  return found;
}

function logTicks(bottom, top) {
  const wide = top - bottom > 2.2, found = [];
  for (let power = Math.floor(bottom); power <= Math.ceil(top); power += 1) {
    for (const factor of wide ? [1] : top - bottom > 0.9 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7]) {
      const value = factor * 10 ** power, at = Math.log10(value);
      if (at >= bottom && at <= top) found.push(value);
    }
  }
  return found.length >= 2 ? found : ticks(10 ** bottom, 10 ** top, 4).filter((value) => value > 0);
}

// The arena on a canvas: time across, address up, one rectangle for the lifetime of each tensor.

import { h, fill, say, css, announce } from '/dom.js';
import * as f from '/format.js';

const LEFT = 70, RIGHT = 10, TOP = 14, BOTTOM = 26;
export const roleColour = (role) => css(`--role-${role}`) || css('--muted');

export class ArenaMap {
  constructor() {
    this.canvas = h('canvas', { tabindex: '0', role: 'img', 'aria-label': 'Map of the arena' });
    this.box = h('div', { class: 'map' }, this.canvas);
    this.hover = h('p', { class: 'hover muted', role: 'status' }, 'Point at a rectangle for its name, bytes and lifetime.');
    this.legend = h('ul', { class: 'legend' });
    this.element = h('div', null, this.box, this.legend, this.hover);
    this.canvas.addEventListener('pointermove', (event) => { const r = this.canvas.getBoundingClientRect(); this.find(event.clientX - r.left, event.clientY - r.top); });
    this.canvas.addEventListener('pointerleave', () => { this.chosen = null; this.draw(); this.explain(); });
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  show(map) {
    this.map = map;
    this.chosen = null;
    // Small ones last, so that large ones do not hide them.
    this.order = map.rectangles.map((_, index) => index).sort((a, b) => map.rectangles[b][3] * (map.rectangles[b][1] - map.rectangles[b][0]) - map.rectangles[a][3] * (map.rectangles[a][1] - map.rectangles[a][0]));
    this.largest = map.rectangles.map((_, index) => index).sort((a, b) => map.rectangles[b][3] - map.rectangles[a][3]).slice(0, 60);
    this.at = -1;
    const at = map.peak ? (map.peak.from + map.peak.to) / 2 : 0.5, sums = new Map();
    for (const [from, to, , size, role] of map.rectangles) if (from <= at && to >= at) sums.set(role, (sums.get(role) || 0) + size);
    const rows = [...sums].sort((a, b) => b[1] - a[1]).map(([role, size]) => h('li', null, h('span', { class: 'swatch', style: { background: roleColour(map.roles[role]) } }), `${map.roles[role]} ${f.bytes(size)}`));
    fill(this.legend, rows, map.peak ? h('li', { class: 'muted' }, `at the peak: ${f.bytes(map.peak.live_bytes)}`) : null);
    this.canvas.setAttribute('aria-label', `Map of the arena, phase ${map.phase}: ${map.rectangles.length} tensors in ${f.bytes(map.arena_bytes)}. Arrow keys walk through the largest.`);
    this.draw();
    this.explain();
  }

  scale() {
    const w = this.box.clientWidth, hgt = this.box.clientHeight, { map } = this;
    const room = map.budget_bytes ? Math.max(0, map.budget_bytes - map.context_bytes) : 0;
    // The limit of the card is a line, unless the arena is so small beside it that nothing could be seen.
    const top = room && room < 3 * map.arena_bytes ? Math.max(room, map.arena_bytes) * 1.03 : map.arena_bytes * 1.06;
    return { w, hgt, top, room, x: (share) => LEFT + share * (w - LEFT - RIGHT), y: (address) => hgt - BOTTOM - address / top * (hgt - TOP - BOTTOM) };
  }

  draw() {
    const { canvas, map } = this, ratio = window.devicePixelRatio || 1;
    const width = this.box.clientWidth, height = this.box.clientHeight;
    if (!width || !map) return;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const ink = canvas.getContext('2d');
    ink.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { x, y, top, room } = this.scale(), colours = map.roles.map(roleColour), edge = css('--surface');
    ink.fillStyle = css('--raised');
    ink.fillRect(x(0), y(map.arena_bytes), x(1) - x(0), y(0) - y(map.arena_bytes));
    ink.lineWidth = 0.5;
    for (const index of this.order) {
      const [from, to, offset, size, role] = map.rectangles[index];
      const x0 = x(from), y0 = y(offset + size), w = Math.max(0.4, x(to) - x0), hh = Math.max(0.4, y(offset) - y0);
      ink.fillStyle = colours[role];
      ink.fillRect(x0, y0, w, hh);
      if (w > 4 && hh > 4) { ink.strokeStyle = edge; ink.strokeRect(x0, y0, w, hh); }
    }
    this.axes(ink, map, x, y, top, room);
    if (this.chosen !== null && this.chosen !== undefined) {
      const [from, to, offset, size] = map.rectangles[this.chosen];
      ink.strokeStyle = css('--ink');
      ink.lineWidth = 2;
      ink.strokeRect(x(from), y(offset + size), Math.max(2, x(to) - x(from)), Math.max(2, y(offset) - y(offset + size)));
    }
  }

  axes(ink, map, x, y, top, room) {
    ink.font = `11px ${css('--sans')}`;
    ink.textBaseline = 'middle';
    ink.textAlign = 'right';
    ink.fillStyle = css('--muted');
    for (let tick = 0; tick <= 4; tick += 1) { const bytes = map.arena_bytes / 4 * tick; ink.fillText(f.bytes(bytes), LEFT - 8, y(bytes)); }
    ink.textBaseline = 'top';
    ink.textAlign = 'left';
    let start = 0;
    map.steps.forEach((step, index) => {
      const next = map.steps[index + 1];
      if (next && next[4] === step[4]) return;
      const x0 = x(map.steps[start][0]), x1 = x(step[1]);
      ink.fillStyle = css('--strong');
      ink.fillRect(x0, y(0), 1, 7);
      if (x1 - x0 > ink.measureText(step[4]).width + 8) { ink.fillStyle = css('--muted'); ink.fillText(step[4], x0 + 4, y(0) + 8); }
      start = index + 1;
    });
    if (room && room <= top) {
      ink.strokeStyle = css('--bad');
      ink.lineWidth = 1.5;
      ink.setLineDash([6, 4]);
      ink.beginPath(); ink.moveTo(x(0), y(room)); ink.lineTo(x(1), y(room)); ink.stroke();
      ink.setLineDash([]);
      ink.fillStyle = css('--bad');
      ink.textAlign = 'right';
      ink.textBaseline = 'top';
      ink.fillText(`limit ${f.bytes(room)} beside driver and code`, x(1) - 4, y(room) + 4);
    }
    if (map.peak) {
      const at = x((map.peak.from + map.peak.to) / 2);
      ink.strokeStyle = css('--ink');
      ink.lineWidth = 1;
      ink.setLineDash([2, 3]);
      ink.beginPath(); ink.moveTo(at, TOP - 4); ink.lineTo(at, y(0)); ink.stroke();
      ink.setLineDash([]);
      ink.fillStyle = css('--ink');
      ink.textBaseline = 'top';
      ink.textAlign = at > x(0.8) ? 'right' : 'left';
      ink.fillText('peak', at + (at > x(0.8) ? -5 : 5), 1);
    }
  }

  find(px, py) {
    if (!this.map) return;
    const { x, y } = this.scale();
    let found = null;
    for (const index of this.order) {
      const [from, to, offset, size] = this.map.rectangles[index];
      if (px >= x(from) - 0.5 && px <= Math.max(x(to), x(from) + 1) && py <= y(offset) + 0.5 && py >= y(offset + size) - 0.5) found = index;
    }
    if (found !== this.chosen) { this.chosen = found; this.draw(); this.explain(); }
  }

  explain() {
    if (!this.map || this.chosen === null || this.chosen === undefined) { say(this.hover, 'Point at a rectangle for its name, bytes and lifetime.'); return ''; }
    const [from, to, offset, size, role, name, first, last] = this.map.rectangles[this.chosen];
    const text = `${this.map.names[name]}: ${f.bytes(size)}, ${this.map.roles[role]}, at ${f.bytes(offset)}; ${from <= 0 && to >= 1 ? 'lives for the whole time' : `lives from step ${first} to ${last}, ${((to - from) * 100).toFixed(1)} % of the time`}`;
    say(this.hover, text);
    return text;
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !this.map || !this.largest.length) return;
    event.preventDefault();
    this.at = (this.at + step + this.largest.length) % this.largest.length;
    this.chosen = this.largest[this.at];
    this.draw();
    announce(this.explain());
  }
}

/** A stacked bar: parts [name, bytes, colour] on a scale of `most` bytes, with a limit. */
export function stacked(label, parts, most, limit, text) {
  const total = parts.reduce((sum, [, size]) => sum + size, 0);
  const pieces = parts.filter(([, size]) => size > 0).map(([name, size, paint]) => h('i', { title: `${name} ${f.bytes(size)}`, style: { width: `${100 * size / most}%`, background: paint } }));
  return h('div', { class: 'bar-row' }, h('span', null, label),
    h('div', { class: 'track', role: 'img', 'aria-label': `${label}: ${parts.filter(([, size]) => size > 0).map(([name, size]) => `${name} ${f.bytes(size)}`).join(', ')}` }, h('div', { class: 'fillbar' }, pieces), limit ? h('span', { class: 'limit', title: `limit ${f.bytes(limit)}`, style: { left: `calc(${Math.min(100, 100 * limit / most)}% - 1px)` } }) : null),
    h('span', { class: 'size' }, text || f.bytes(total)));
}

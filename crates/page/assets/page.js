// Finds the view that the address names and keeps the state of the connection in sight.

import { h, fill, say } from '/dom.js';
import { known, listen, connect } from '/store.js';
import * as runs from '/runs.js';
import * as memory from '/memory.js';
import * as plan from '/plan.js';
import * as doctor from '/doctor.js';
import * as playground from '/playground.js';

const VIEWS = [['runs', 'Runs', runs], ['memory', 'Memory', memory], ['plan', 'Plan', plan], ['doctor', 'Doctor', doctor],
  ['playground', 'Playground', playground]];

const main = document.getElementById('main');
const links = new Map(VIEWS.map(([name, title]) => [name, h('a', { href: `#/${name}` }, title)]));
fill(document.getElementById('nav'), [...links.values()]);

let leave = null, current = null;

/** The view and its state: #/plan?gpu=RTX+4070 */
function address() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const found = VIEWS.find(([name]) => name === path) || VIEWS[0];
  return { name: found[0], title: found[1], view: found[2], query: new URLSearchParams(query || '') };
}

/** Keeps a view's state in the address without a step in the history. */
export function remember(name, query) {
  const text = query.toString(), hash = `#/${name}${text ? `?${text}` : ''}`;
  if (location.hash !== hash) history.replaceState(null, '', hash);
}

function open() {
  const { name, title, view, query } = address();
  for (const [other, link] of links) { if (other === name) link.setAttribute('aria-current', 'page'); else link.removeAttribute('aria-current'); }
  links.get(name).scrollIntoView({ block: 'nearest', inline: 'nearest' });
  document.title = `${title} · fitGPT`;
  if (current === name && view.moved && view.moved(query)) return;
  if (leave) leave();
  fill(main);
  window.scrollTo(0, 0);
  current = name;
  leave = view.open(main, query, (changed) => remember(name, changed));
}

const link = document.getElementById('link');
function showLink() {
  const [text, kind] = known.online ? [known.control ? 'live, in control' : 'live', 'good'] : known.heard ? ['connection lost, trying again', 'bad busy'] : ['connecting', 'busy'];
  link.className = `pill ${kind}`;
  say(link, text);
}

listen((what) => { if (what === 'link') showLink(); });
window.addEventListener('hashchange', open);
connect();
open();

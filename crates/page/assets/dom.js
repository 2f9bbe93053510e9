// Builds elements. All text becomes text nodes: nothing that a model or a log says is ever HTML.

export function h(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'class') element.className = value;
    else if (key === 'style') Object.assign(element.style, value);
    else if (key in element && typeof value !== 'string') element[key] = value;
    else element.setAttribute(key, value === true ? '' : value);
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

/** Sets a text only if it changed, so that screen readers and selections are left alone. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function announce(text) {
  say(document.getElementById('live'), text);
}

/** A row of buttons of which one is chosen. */
export function choice(label, options, chosen, pick) {
  const buttons = options.map(([value, text]) => h('button', {
    type: 'button', class: 'choice', 'aria-pressed': String(value === chosen),
    onclick: () => { mark(value); pick(value); },
  }, text));
  const group = h('div', { class: 'choices', role: 'group', 'aria-label': label }, buttons);
  function mark(value) {
    options.forEach(([other], index) => buttons[index].setAttribute('aria-pressed', String(other === value)));
  }
  group.mark = mark;
  return group;
}

export function copyButton(text) {
  const button = h('button', { type: 'button', class: 'small', onclick: async () => {
    try { await navigator.clipboard.writeText(text()); button.textContent = 'Copied'; }
    catch { button.textContent = 'Select and copy'; }
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  } }, 'Copy');
  return button;
}

/** A value of the style sheet. */
export function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Calls with the newest arguments, at most once in so many milliseconds. */
export function gently(wait, work) {
  let timer = null, last = 0, args = null;
  return (...now) => {
    args = now;
    if (timer) return;
    timer = setTimeout(() => { timer = null; last = performance.now(); work(...args); },
      Math.max(0, wait - (performance.now() - last)));
  };
}

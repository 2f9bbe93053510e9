// Numbers for people.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

export function bytes(count, brief) {
  if (count === null || count === undefined || !isFinite(count)) return '–';
  let unit = 0, value = count;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${unit === 0 ? Math.round(value) : brief ? trim(value.toPrecision(3)) : value.toFixed(2)} ${UNITS[unit]}`;
}

export function grouped(number) {
  if (number === null || number === undefined || !isFinite(number)) return '–';
  return Math.round(number).toLocaleString('en-US');
}

/** 59700 → 59.7k */
export function short(number, digits = 3) {
  if (number === null || number === undefined || !isFinite(number)) return '–';
  const size = Math.abs(number);
  for (const [limit, letter] of [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e3, 'k']]) {
    if (size >= limit * 0.9995) return trim((number / limit).toPrecision(digits)) + letter;
  }
  if (size >= 1 || size === 0) return trim(number.toPrecision(Math.max(digits, String(Math.trunc(size)).length)));
  if (size >= 1e-3) return trim(number.toPrecision(digits));
  return number.toExponential(1).replace('e-', 'e−');
}

function trim(text) {
  return text.includes('.') && !text.includes('e') ? text.replace(/\.?0+$/, '') : text;
}

export function loss(number, digits = 4) {
  return number === null || number === undefined || !isFinite(number) ? '–' : number.toFixed(digits);
}

export function rate(number) {
  if (number === null || number === undefined || !isFinite(number)) return '–';
  return number === 0 ? '0' : number >= 0.01 ? short(number) : number.toExponential(2).replace(/\.?0+e/, 'e').replace('e-', 'e−');
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return '–';
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${String(s % 60).padStart(2, '0')}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${String(Math.floor(s % 3600 / 60)).padStart(2, '0')}m`;
  if (s < 86400 * 730) return `${Math.floor(s / 86400)}d${String(Math.floor(s % 86400 / 3600)).padStart(2, '0')}h`;
  return `${(s / 86400 / 365.25).toFixed(1)} years`;
}

export function ago(unix) {
  if (!unix) return 'never';
  const seconds = Date.now() / 1000 - unix;
  return seconds < 2 ? 'now' : `${duration(seconds)} ago`;
}

export function percent(share) {
  return share === null || share === undefined || !isFinite(share) ? '–' : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}

export function parameters(count) {
  if (!count) return '–';
  return count >= 1e9 ? `${(count / 1e9).toFixed(2)}B` : count >= 1e6 ? `${(count / 1e6).toFixed(count >= 1e8 ? 0 : 1)}M` : `${(count / 1e3).toFixed(0)}k`;
}

"""What makes the page of `kvreplay report` one to work in: the program in it, which reads the rows
that the page holds and loads nothing."""

SCRIPT = r"""
'use strict';
(function () {
const data = JSON.parse(document.getElementById('data').textContent);
const at = {};
data.columns.forEach((name, i) => { at[name] = i; });
const isText = new Set(data.texts), keys = new Set(data.keys), higher = new Set(data.higher);
const rows = data.rows.map((fields, i) => ({fields, i}));
let columns = data.main.slice(), order = null, down = false, wanted = '', chosen = null;
const off = new Set();
const $ = id => document.getElementById(id);
const field = (row, name) => name in at ? row.fields[at[name]] : '';
const number = text => text === '' || isNaN(text) ? NaN : Number(text);
const make = (tag, content, attributes, space) => {
  const element = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  for (const child of [].concat(content === undefined ? [] : content)) element.append(child);
  return element;
};
const svg = (tag, attributes, content) =>
  make(tag, content, attributes, 'http://www.w3.org/2000/svg');

const countsBytes = name => name.replace(/\./g, '_').split('_').includes('bytes');
const grouped = value => value.toLocaleString('en-US', {maximumFractionDigits: 0});
function size(value) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit + 1 < units.length) { value /= 1000; unit++; }
  const digits = unit === 0 || Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2;
  return value.toFixed(digits) + ' ' + units[unit];
}
function plain(value) {
  if (Math.abs(value) >= 1000) return grouped(value);
  return String(Number(value.toPrecision(4)));
}
function shown(name, text) {
  if (text === '') return '-';
  const value = number(text);
  if (isText.has(name) || isNaN(value)) return text;
  if (countsBytes(name)) return size(value);
  return /^-?\d+$/.test(text) ? text : plain(value);
}
const stretched = row => field(row, 'projection').includes(', stretched from ');
const cellText = (row, name) => shown(name, field(row, name)) +
  (['hit_rate', 'best_hit_rate'].includes(name) && field(row, name) !== '' && stretched(row) ? '*' : '');
const noFit = row => number(field(row, 'dram_share')) > 1;
const short = name => name.split('.').pop();

function current() {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  const kept = rows.filter(row => words.every(word => {
    const test = word.match(/^([\w.]+)(<=|>=|=|<|>)(.*)$/);
    if (!test) return data.columns.some(name => (isText.has(name) || keys.has(name)) &&
      field(row, name).toLowerCase().includes(word));
    const name = data.columns.find(one => one.toLowerCase() === test[1] || short(one).toLowerCase() === test[1]);
    if (!name) return false;
    const text = field(row, name).toLowerCase(), left = number(text), right = number(test[3]);
    if (test[2] === '=') return text === test[3] || left === right;
    return test[2] === '<' ? left < right : test[2] === '>' ? left > right :
      test[2] === '<=' ? left <= right : left >= right;
  }));
  if (order === null) return kept;
  const sign = down ? -1 : 1;
  return kept.sort((a, b) => {
    const x = field(a, order), y = field(b, order);
    const last = text => text === '' || (!isText.has(order) && isNaN(number(text)));
    if (last(x) || last(y)) return last(x) - last(y) || a.i - b.i;
    const side = isText.has(order) ? x.localeCompare(y) : number(x) - number(y);
    return sign * side || a.i - b.i;
  });
}

function table() {
  const head = make('tr', columns.map(name => {
    const cell = make('th', [], {'title': data.help[name] || '', 'data-name': name,
      'class': isText.has(name) ? 'text' : '', 'tabindex': '0', 'role': 'button',
      'aria-sort': order === name ? (down ? 'descending' : 'ascending') : 'none'});
    short(name).split('_').forEach((part, i) => {
      if (i) cell.append('_', make('wbr'));
      cell.append(part);
    });
    if (order === name) cell.append(down ? ' \u25bc' : ' \u25b2');
    return cell;
  }));
  const kept = current();
  const body = kept.map(row => {
    const line = make('tr', columns.map(name => make('td', cellText(row, name),
      {'class': isText.has(name) ? 'text' : '', 'title': field(row, name)})), {'data-row': row.i, 'tabindex': '0'});
    line.className = (noFit(row) ? 'nofit ' : '') + (chosen === row.i ? 'chosen' : '');
    return line;
  });
  const place = $('rows');
  place.replaceChildren(make('thead', head), make('tbody', body));
  const all = rows.length + (rows.length === 1 ? ' row' : ' rows');
  $('count').textContent = kept.length === rows.length ? all : kept.length + ' of ' + all;
  chart();
}

function sortBy(name) {
  if (order === name) { if (down) { order = null; down = false; } else down = true; }
  else { order = name; down = higher.has(name); }
  table();
}

function columnList() {
  const place = $('columns');
  for (const name of data.columns) {
    const box = make('input', [], {type: 'checkbox', value: name});
    box.checked = columns.includes(name);
    box.addEventListener('change', () => {
      columns = box.checked ? data.columns.filter(one => one === name || columns.includes(one)) :
        columns.filter(one => one !== name);
      table();
    });
    place.append(make('label', [box, ' ' + name], {title: data.help[name] || ''}));
  }
  const all = set => () => {
    columns = set.slice();
    place.querySelectorAll('input').forEach(box => { box.checked = columns.includes(box.value); });
    table();
  };
  $('all').addEventListener('click', all(data.columns));
  $('usual').addEventListener('click', all(data.main));
}

/* --- The chart ------------------------------------------------------------------------------- */

const colours = ['#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#8A8A2B', '#7B5AA6', '#777777'];
function pick(id, names, value, change) {
  const list = $(id);
  names.forEach(name => list.append(make('option', name === '' ? 'nothing' : short(name), {value: name})));
  list.value = value;
  list.addEventListener('change', () => { change(list.value); chart(); });
}
let x = data.x, y = data.y, by = data.by;
function ticks(low, high, log) {
  const found = [];
  if (log) {
    const steps = high / low > 50 ? [1] : [1, 2, 5];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const step of steps) {
        const value = step * 10 ** power;
        if (value >= low && value <= high) found.push(value);
      }
    return found;
  }
  const raw = (high - low) / 5, unit = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 2.5, 5, 10].find(one => one * unit >= raw) * unit || 1;
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step)
    found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return found;
}
function range(values, log) {
  let low = Math.min(...values), high = Math.max(...values);
  if (log) return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low >= 0 && low - room < 0.25 * high ? Math.min(0, low) : low - room, high + room];
}
const series = row => by === '' ? '' : by.split('\u0001').map(name => field(row, name)).join(', ');
function chart() {
  const place = $('chart'), width = 820, height = 400, left = 74, bottom = 46, top = 12, right = 14;
  place.replaceChildren();
  const isKey = keys.has(x);
  const all = current().filter(row => !isNaN(number(field(row, x))) && !isNaN(number(field(row, y))));
  const names = [...new Set(rows.map(series))];
  const colour = name => colours[names.indexOf(name) % colours.length];
  const points = all.filter(row => !off.has(series(row)));
  let logX = $('logx').checked, logY = $('logy').checked;
  const xs = points.map(row => number(field(row, x))), ys = points.map(row => number(field(row, y)));
  logX = logX && xs.every(value => value > 0);
  logY = logY && ys.every(value => value > 0);
  legend(names, colour);
  if (!points.length) {
    place.append(svg('text', {x: width / 2, y: height / 2, 'text-anchor': 'middle'}, 'no row has both'));
    return;
  }
  const [x0, x1] = range(xs, logX), [y0, y1] = range(ys, logY);
  const scale = (value, low, high, log) => log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  const px = value => left + scale(value, x0, x1, logX) * (width - left - right);
  const py = value => height - bottom - scale(value, y0, y1, logY) * (height - bottom - top);
  const label = (name, value) => countsBytes(name) ? size(value) : plain(value);
  for (const value of ticks(x0, x1, logX)) place.append(
    svg('line', {x1: px(value), x2: px(value), y1: top, y2: height - bottom, 'class': 'grid'}),
    svg('text', {x: px(value), y: height - bottom + 16, 'text-anchor': 'middle'}, label(x, value)));
  for (const value of ticks(y0, y1, logY)) place.append(
    svg('line', {x1: left, x2: width - right, y1: py(value), y2: py(value), 'class': 'grid'}),
    svg('text', {x: left - 6, y: py(value) + 4, 'text-anchor': 'end'}, label(y, value)));
  place.append(
    svg('text', {x: (left + width - right) / 2, y: height - 8, 'text-anchor': 'middle', 'class': 'axis'}, short(x)),
    svg('text', {x: 12, y: (height - bottom) / 2, 'text-anchor': 'middle', 'class': 'axis',
      transform: `rotate(-90 12 ${(height - bottom) / 2})`}, short(y)));
  if (isKey) {
    const lines = {};
    for (const row of points) {
      const line = data.keys.filter(name => name !== x).map(name => field(row, name)).join('\u0001');
      (lines[line] = lines[line] || []).push(row);
    }
    for (const line of Object.values(lines)) {
      line.sort((a, b) => number(field(a, x)) - number(field(b, x)));
      place.append(svg('polyline', {fill: 'none', stroke: colour(series(line[0])), 'stroke-width': 1.5,
        points: line.map(row => px(number(field(row, x))) + ',' + py(number(field(row, y)))).join(' ')}));
    }
  }
  for (const row of points) {
    const mark = svg('circle', {cx: px(number(field(row, x))), cy: py(number(field(row, y))), r: chosen === row.i ? 8 : 5,
      'data-row': row.i, fill: noFit(row) ? 'none' : colour(series(row)), stroke: noFit(row) ? colour(series(row)) : 'var(--back)',
      'stroke-width': noFit(row) ? 2 : 1, tabindex: 0, role: 'button', 'aria-label': summary(row).join(', '),
      'pointer-events': 'all'});
    mark.addEventListener('pointerenter', event => tip(event, row));
    mark.addEventListener('pointerleave', () => { $('tip').hidden = true; });
    place.append(mark);
  }
}
function legend(names, colour) {
  $('legend').replaceChildren(...(by === '' || names.length > 40 ? [] : names.map(name => {
    const chip = make('button', [make('i', [], {style: ''}), name || 'nothing'],
      {type: 'button', 'aria-pressed': String(!off.has(name)), title: 'show or hide'});
    chip.firstChild.style.background = colour(name);
    chip.addEventListener('click', () => { if (!off.delete(name)) off.add(name); chart(); });
    return chip;
  })));
}
const summary = row => data.keys.filter(name => field(row, name) !== '' &&
  (name === 'system' || new Set(rows.map(one => field(one, name))).size > 1))
  .map(name => keys.has(name) && !isText.has(name) ? short(name) + ' ' + shown(name, field(row, name)) : field(row, name));
function tip(event, row) {
  const place = $('tip');
  place.replaceChildren(make('b', summary(row).join(', ')), make('br'),
    short(x) + ' ' + cellText(row, x), make('br'), short(y) + ' ' + cellText(row, y),
    ...(noFit(row) ? [make('br'), 'does not fit in DRAM'] : []));
  place.hidden = false;
  const box = place.getBoundingClientRect();
  place.style.left = Math.max(4, Math.min(event.clientX + 12, document.documentElement.clientWidth - box.width - 6)) + 'px';
  place.style.top = (event.clientY + 14 + box.height > innerHeight ? event.clientY - box.height - 8 : event.clientY + 14) + 'px';
}

/* --- One cell -------------------------------------------------------------------------------- */

function settingsOf(row) {
  const config = data.config || {}, parts = [];
  let system = (config.system || {})[field(row, 'system')];
  if (system && !Array.isArray(system)) system = [system];
  if (!system && field(row, 'composition')) {
    try { system = [JSON.parse(field(row, 'composition'))]; } catch (error) { system = null; }
  }
  for (const name of data.keys) {
    const path = name.match(/^system\.(?:[^.]+\.)?(\w+)\.(\w+)$/);
    if (!path || field(row, name) === '' || !system) continue;
    const same = system.filter(one => one[path[1]] && String(one[path[1]][path[2]]) === field(row, name));
    if (same.length) system = same;
  }
  if (system) parts.push(['system ' + field(row, 'system') + (system.length > 1 ? ' (one of ' + system.length + ' variants)' : ''), system[0]]);
  for (const kind of ['device', 'platform', 'model']) {
    let found = (config[kind] || {})[field(row, kind)];
    if (Array.isArray(found)) found = found.length === 1 ? found[0] : null;
    if (found) parts.push([kind + ' ' + field(row, kind), found]);
  }
  return parts;
}
function list(object) {
  return make('dl', Object.entries(object).map(([name, value]) => {
    let text = JSON.stringify(value);
    if (value && typeof value === 'object' && !Array.isArray(value)) {
      const rest = Object.entries(value).filter(([key]) => key !== 'part');
      text = (value.part || '') + (rest.length ? (value.part ? ': ' : '') +
        rest.map(([key, one]) => key + ' ' + JSON.stringify(one)).join(', ') : '');
    }
    return make('div', [make('dt', name), make('dd', text.replace(/"/g, ''))]);
  }));
}
function choose(i, scroll) {
  chosen = chosen === i ? null : i;
  const place = $('cell');
  place.hidden = chosen === null;
  if (chosen !== null) {
    const row = rows[i], metrics = {};
    for (const name of data.columns) if (field(row, name) !== '' && name !== 'composition') metrics[name] = cellText(row, name);
    place.replaceChildren(
      make('button', '\u00d7', {type: 'button', 'class': 'close', 'aria-label': 'close'}),
      make('h3', summary(row).join(', ') || 'row ' + (i + 1)),
      ...settingsOf(row).map(([name, object], k) => make('details', [make('summary', name), list(object)], k ? {} : {open: ''})),
      make('details', [make('summary', 'every number'), list(metrics)], settingsOf(row).length ? {} : {open: ''}));
    place.querySelector('.close').addEventListener('click', () => choose(i));
    const pictures = $('timelines');
    if (pictures) pictures.querySelectorAll('figure').forEach(one => {
      one.classList.toggle('chosen', Number(one.dataset.cell) === i);
    });
  }
  table();
  if (chosen !== null && scroll) place.scrollIntoView({block: 'nearest'});
}

/* --- Start ----------------------------------------------------------------------------------- */

const rowAt = event => {
  const found = event.target.closest('[data-row]');
  return found ? Number(found.dataset.row) : null;
};
for (const id of ['rows', 'chart']) {
  const act = event => {
    const head = event.target.closest('th');
    if (head) return sortBy(head.dataset.name);
    const row = rowAt(event);
    if (row !== null) choose(row, true);
  };
  $(id).addEventListener('click', act);
  $(id).addEventListener('keydown', event => {
    if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); act(event); }
  });
}
$('filter').addEventListener('input', event => { wanted = event.target.value; table(); });
for (const id of ['logx', 'logy']) $(id).addEventListener('change', chart);
const numbers = data.columns.filter(name => !isText.has(name) && rows.some(row => !isNaN(number(field(row, name)))));
pick('x', numbers, x, value => { x = value; });
pick('y', numbers, y, value => { y = value; });
pick('by', ['', ...data.keys], by, value => { by = value; off.clear(); });
$('logx').checked = data.logx;
$('logy').checked = data.logy;
columnList();
document.querySelectorAll('.script').forEach(element => {
  element.hidden = element.classList.contains('chart') && rows.length < 2;
});
table();
}());
"""

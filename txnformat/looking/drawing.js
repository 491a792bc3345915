// Pictures: small functions that make SVG. All text goes in as text nodes.
const SVG = "http://www.w3.org/2000/svg";
const WORDS = {
  committed: "committed", aborted: "aborted", open: "open", prepared: "prepared", late: "late: its timeout is over",
  plain: "without a transaction", hanging: "hanging", "given-up": "given up",
};
const LETTERS = { committed: "C", aborted: "A", open: "O", prepared: "P", late: "L", plain: "", hanging: "H", "given-up": "G" };

// Characters that are not seen, or turn the text around them, as escapes: an id or a column may have them.
function visible(text) {
  return typeof text === "string" ? text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (one) => one === "\n" ? one : `\\u{${one.codePointAt(0).toString(16)}}`) : text;
}

function svg(name, attributes, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  node.append(...children.map(visible));
  return node;
}

function html(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : key === "title" || key === "aria-label" ? visible(value) : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined).map(visible));
  return node;
}

// A colour and a pattern for each outcome: nothing is told by colour alone.
function patterns() {
  const made = (name, ...marks) => svg("pattern", { id: "p-" + name, width: 8, height: 8, patternUnits: "userSpaceOnUse" },
    svg("rect", { width: 8, height: 8, class: name }), ...marks);
  return svg("svg", { width: 0, height: 0, "aria-hidden": "true", focusable: "false" }, svg("defs", {},
    made("committed"),
    made("aborted", svg("path", { d: "M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4", class: "hatch" })),
    made("open", svg("circle", { cx: 4, cy: 4, r: 1.5, class: "dot" })),
    made("prepared", svg("path", { d: "M2,0 v8 M6,0 v8", class: "hatch" })),
    made("late", svg("path", { d: "M0,0 l8,8 M8,0 l-8,8", class: "hatch" })),
    made("given-up", svg("path", { d: "M0,6 l4,-4 l4,4", class: "hatch" })),
    made("plain", svg("path", { d: "M0,4 h8", class: "hatch" }))));
}

function swatch(outcome) {
  return svg("svg", { width: 22, height: 14, "aria-hidden": "true" },
    svg("rect", { width: 22, height: 14, rx: 2, fill: `url(#p-${outcome === "hanging" ? "late" : outcome})` }));
}

function block(outcome, x, y, width, height, title, picked) {
  const shown = Math.max(1.5, width);
  const group = svg("g", { "data-outcome": outcome },
    svg("title", {}, title),
    svg("rect", { x, y, width: shown, height, rx: 1.5, fill: `url(#p-${outcome})`, ...(picked ? { class: "picked" } : {}) }));
  if (shown >= 14 && LETTERS[outcome]) {
    group.append(svg("circle", { cx: x + shown / 2, cy: y + height / 2, r: 7, class: outcome }),
      svg("text", { x: x + shown / 2, y: y + height / 2 + 4, "text-anchor": "middle", class: "on" }, LETTERS[outcome]));
  }
  return group;
}

// One partition: its transactions over its offsets, as of a sample.
function strip(width, place, blocks, scale) {
  const height = 34;
  const x = (offset) => ((offset - scale.low) / Math.max(1, scale.high - scale.low)) * (width - 2) + 1;
  const clipped = (offset) => Math.min(Math.max(offset, scale.low), scale.high);
  const [start, stable, end] = place;
  const made = svg("svg", { width, height, role: "img", "aria-label": scale.label });
  const from = x(clipped(Math.max(start, scale.low)));
  made.append(svg("rect", { x: from, y: 3, width: Math.max(0, x(clipped(end)) - from), height: 24, class: "ground" }));
  made.append(svg("rect", { x: from, y: 28, width: Math.max(0, x(clipped(stable)) - from), height: 5, class: "stable" }));
  for (const one of blocks) {
    const left = x(clipped(Math.max(one.start, start)));
    if (one.end > start) made.append(block(one.outcome, left, 4, x(clipped(one.end)) - left, 22, one.title, one.picked));
  }
  made.append(svg("line", { x1: x(clipped(end)), x2: x(clipped(end)), y1: 0, y2: height, class: "end" }));
  made.append(svg("line", { x1: x(clipped(stable)), x2: x(clipped(stable)), y1: 0, y2: height, class: "lso" }));
  return made;
}

// Lanes over time: one for each transactional id.
function lanes(width, found, scale, cursor, label) {
  const row = 24;
  const left = Math.min(190, width * 0.34);
  const height = found.length * row + 22;
  const x = (ms) => left + ((Math.min(Math.max(ms, scale.low), scale.high) - scale.low) / Math.max(1, scale.high - scale.low)) * (width - left - 4);
  const made = svg("svg", { width, height, role: "img", "aria-label": label });
  found.forEach((lane, index) => {
    const y = index * row;
    const most = Math.max(4, Math.floor((left - 8) / 6.6));
    const name = lane.name.length > most ? lane.name.slice(0, most - 1) + "…" : lane.name;
    made.append(svg("rect", { x: left, y: y + 2, width: width - left - 2, height: row - 4, class: "ground" }),
      svg("text", { x: left - 6, y: y + 16, "text-anchor": "end" }, svg("title", {}, lane.name), name));
    for (const one of lane.bars) made.append(block(one.outcome, x(one.from), y + 4, x(one.to) - x(one.from), row - 8, one.title, one.picked));
  });
  made.append(svg("line", { x1: x(cursor), x2: x(cursor), y1: 0, y2: height - 18, class: "cursor" }));
  const when = (ms) => width - left > 330 ? clock(ms) : clock(ms).slice(11);
  made.append(svg("text", { x: left, y: height - 5, class: "soft" }, when(scale.low)),
    svg("text", { x: width - 4, y: height - 5, "text-anchor": "end", class: "soft" }, when(scale.high)));
  return made;
}

function bars(width, values, label) {
  const height = 80;
  const top = Math.max(1, ...values);
  const made = svg("svg", { width, height, role: "img", "aria-label": label });
  const each = width / Math.max(1, values.length);
  values.forEach((value, index) => {
    const tall = (value / top) * (height - 4);
    made.append(svg("rect", { x: index * each, y: height - tall, width: Math.max(1, each - 1), height: tall, class: "bar" }));
  });
  made.append(svg("line", { x1: 0, x2: width, y1: height - 1, y2: height - 1, class: "end" }));
  return made;
}

const number = (value) => Number(value).toLocaleString("en-US");

function clock(ms) {
  return new Date(ms).toISOString().replace("T", " ").slice(0, 19) + "Z";
}

function lasting(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return seconds + " s";
  if (seconds < 7200) return Math.round(seconds / 60) + " min";
  return seconds < 172800 ? Math.round(seconds / 3600) + " h" : Math.round(seconds / 86400) + " days";
}

function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes, unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return (unit === 0 ? value : value.toFixed(1)) + " " + units[unit];
}

function dollars(value) {
  if (value === 0) return "$0";
  if (value < 0.000001) return "< $0.000001";
  return "$" + (value >= 0.01 ? value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 }) : value.toFixed(Math.ceil(-Math.log10(value)) + 1));
}

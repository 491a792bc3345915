// The page: which sample is shown, the pages below it, and (live) following the log.
const PAGES = { timeline: "Timeline", topics: "Topics", transactions: "Transactions", groups: "Groups", files: "Files", requests: "Requests & cost" };
const STRIPS = 12, LANES = 24, ROWS = 100;
const byId = (id) => document.getElementById(id);
const live = document.body.dataset.live === "yes";
const every = Number(document.body.dataset.every || 1000);
const view = { doc: JSON.parse(byId("document").textContent), at: 0, page: "timeline", topic: "", picked: -1, key: null, first: 0, rows: ROWS, following: live, fault: "", search: "", find: "", width: 0 };

const samples = () => view.doc.samples;
const sample = () => samples()[view.at];

function outcomeAt(index) {
  const one = view.doc.transactions[index], shown = sample();
  if (!shown || one.begin_entry > shown.entry) return null;
  if (one.end_entry !== null && one.end_entry <= shown.entry) return one.outcome;
  // A part that was given up was open before, with its transaction.
  const open = shown.undecided.find(([number]) => number === index || (one.outcome === "given-up" && isOf(view.doc.transactions[number], one)));
  return open ? open[1] : "open";
}

function isOf(one, other) { return one.producer_id === other.producer_id && one.epoch === other.epoch; }

// What names a transaction in each document: its index changes, and appends without one share their producer.
function keyOf(doc, index) {
  const one = doc.transactions[index];
  if (!one) return null;
  if (one.outcome !== "plain") return `${one.producer_id} ${one.epoch} ${one.outcome === "given-up" ? one.end_entry : ""}`;
  const run = one.runs[0], place = run ? doc.partitions[run[0]] : null;
  return `plain ${one.begin_entry} ${one.producer_id} ${place ? `${place.topic} ${place.partition} ${run[1]}` : ""}`;
}

function pickButton(place, index, attributes) {
  return html("button", { class: "link", type: "button", "data-key": `${place} ${keyOf(view.doc, index)}`, onclick: () => pick(index), ...attributes }, nameOf(view.doc.transactions[index]));
}

function nameOf(one) {
  if (one.transactional_id) return one.transactional_id;
  return one.outcome === "plain" ? (one.producer_id < 0 ? "(no producer)" : `(producer ${one.producer_id})`) : `(hanging, producer ${one.producer_id})`;
}

function titleOf(one, outcome, extra) {
  const end = one.end_entry !== null && one.end_entry <= sample().entry && outcome !== "plain" ? `, ended in entry ${one.end_entry}${one.cause ? " by " + one.cause : ""}` : "";
  return `${nameOf(one)} (producer ${one.producer_id}, epoch ${one.epoch}): ${WORDS[outcome]}, began in entry ${one.begin_entry}${end}${extra || ""}`;
}

function badge(outcome) {
  return html("span", { class: "badge" }, swatch(outcome), " " + WORDS[outcome]);
}

function table(caption, heads, rows) {
  // A head that begins with # is of a column of numbers.
  const numeric = heads.map((head) => head.startsWith("#"));
  return html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    html("table", {}, html("caption", {}, caption),
      html("thead", {}, html("tr", {}, ...heads.map((head, i) => html("th", { scope: "col", class: numeric[i] ? "n" : null }, head.replace(/^#/, ""))))),
      html("tbody", {}, ...rows.map((row) => {
        const cells = row.cells || row;
        return html("tr", row.cells && row.picked ? { class: "picked" } : {}, ...cells.map((cell, i) => html("td", { class: numeric[i] ? "n" : "name" }, cell instanceof Node ? cell : String(cell))));
      }))));
}

function shownPartitions() {
  const found = [];
  view.doc.partitions.forEach((one, index) => { if (!view.topic || one.topic === view.topic) found.push(index); });
  return found;
}

// --- the pages --------------------------------------------------------------------------------------------------------

function drawTimeline(into) {
  const width = Math.max(240, view.width || 600);
  const outcomes = view.doc.transactions.map((_, index) => outcomeAt(index));
  into.append(html("ul", { class: "legend", "aria-label": "Legend" },
    ...["committed", "aborted", "open", "prepared", "late", "given-up", "plain"].map((one) => html("li", {}, swatch(one), `${WORDS[one]}${LETTERS[one] ? " (" + LETTERS[one] + ")" : ""}`))));
  into.append(html("h2", {}, "Transactions over offsets"),
    html("p", { class: "note" }, "Each partition has a scale of its own. The solid line is the last stable offset (LSO), where read_committed ends; the dashed line is the log end."));
  const every = shownPartitions();
  if (!every.length) into.append(html("p", {}, "There is no partition yet."));
  view.first = Math.min(view.first, Math.max(0, every.length - 1));
  const blocks = new Map();
  view.doc.transactions.forEach((one, index) => {
    if (!outcomes[index]) return;
    for (const [partition, start, end, entry] of one.runs) {
      if (entry > sample().entry) continue;
      if (!blocks.has(partition)) blocks.set(partition, []);
      blocks.get(partition).push({ start, end, outcome: outcomes[index], picked: view.picked === index, title: titleOf(one, outcomes[index], `; offsets ${start} to ${end - 1}`) });
    }
  });
  for (const index of every.slice(view.first, view.first + STRIPS)) into.append(drawStrip(index, width, blocks.get(index) || []));
  if (every.length > STRIPS) {
    into.append(html("p", {}, `Partitions ${view.first + 1} to ${Math.min(every.length, view.first + STRIPS)} of ${every.length}. `,
      html("button", { type: "button", onclick: () => { view.first = Math.max(0, view.first - STRIPS); draw(); } }, "Previous"), " ",
      html("button", { type: "button", onclick: () => { if (view.first + STRIPS < every.length) view.first += STRIPS; draw(); } }, "Next")));
  }
  drawLanes(into, width, outcomes);
  drawHeld(into);
}

function drawStrip(index, width, blocks) {
  const one = view.doc.partitions[index];
  const [start, stable, end, holder] = sample().places[index];
  const newest = samples()[samples().length - 1].places[index];
  let low = one.window_start, high = Math.max(newest[2], 1);
  for (const each of view.doc.transactions) for (const run of each.runs) if (run[0] === index) low = Math.min(low, run[1]);
  if (low >= high) low = Math.max(0, high - 1);
  const held = end - stable;
  const who = holder >= 0 ? nameOf(view.doc.transactions[holder]) : holder === -2 ? "a transaction that is not listed" : "";
  const label = `${one.topic}, partition ${one.partition}: log start ${start}, last stable offset ${stable}, log end ${end}` + (held ? `; ${held} offsets held back by ${who}` : "");
  return html("div", { class: "strip" },
    html("div", {}, html("b", {}, `${one.topic} ${one.partition}`), html("span", {}, `start ${number(start)}`), html("span", {}, `LSO ${number(stable)}`), html("span", {}, `end ${number(end)}`),
      held ? html("span", {}, `${number(held)} held back by `, holder >= 0 ? pickButton(`strip ${one.topic} ${one.partition}`, holder) : who) : null,
      low > start ? html("span", {}, `offsets below ${number(low)} are before the window`) : null),
    strip(width, [start, stable, end], blocks, { low, high, label }));
}

function drawLanes(into, width, outcomes) {
  into.append(html("h2", {}, "Transactions over time"));
  const found = new Map();
  const shown = sample();
  const first = samples()[0].timestamp_ms, last = samples()[samples().length - 1];
  const logEnd = view.doc.timestamp_ms;
  // What began before the window is drawn from its edge on.
  const begins = view.doc.transactions.filter((one) => !one.before_window).map((one) => one.begin_ms);
  const low = begins.reduce((least, ms) => Math.min(least, ms), begins.length ? Infinity : first);
  // An idle log would squeeze everything into a corner: its idle time is cut.
  const high = Math.min(last.timestamp_ms, logEnd + Math.max(1000, (logEnd - low) / 4));
  view.doc.transactions.forEach((one, index) => {
    if (!outcomes[index]) return;
    const name = nameOf(one);
    if (!found.has(name)) found.set(name, { name, bars: [], rank: 0 });
    const lane = found.get(name);
    const ended = one.end_entry !== null && one.end_entry <= shown.entry;
    const to = ended ? one.end_ms : shown.timestamp_ms;
    const undecided = !ended;
    lane.rank = Math.max(lane.rank, (undecided ? 1e15 : 0) + one.begin_ms);
    lane.bars.push({ from: one.begin_ms, to, outcome: outcomes[index], picked: view.picked === index, title: titleOf(one, outcomes[index], `; ${clock(one.begin_ms)}, ${lasting(to - one.begin_ms)}`) });
  });
  const ordered = [...found.values()].sort((a, b) => b.rank - a.rank);
  if (!ordered.length) { into.append(html("p", {}, "No transaction has begun by this entry.")); return; }
  into.append(html("p", { class: "note" }, "A lane for each transactional id: open ones first, then the newest." + (ordered.length > LANES ? ` ${ordered.length - LANES} more ids are not drawn.` : "")),
    lanes(width, ordered.slice(0, LANES), { low, high }, shown.timestamp_ms, `${ordered.length} lanes of transactions from ${clock(low)} to ${clock(high)}`));
}

function drawHeld(into) {
  into.append(html("h2", {}, "Open transactions: they hold readers back"));
  if (view.at !== samples().length - 1) {
    const open = sample().undecided;
    into.append(html("p", { class: "note" }, `${open.length} open at entry ${sample().entry}. The commands that end transactions are shown at the newest entry of this window.`),
      html("ul", {}, ...open.slice(0, ROWS).map(([index, status]) => html("li", {}, badge(status), " ", pickButton("held", index)))));
    return;
  }
  if (!view.doc.open.length) into.append(html("p", {}, "None is open: readers at read_committed reach the log end everywhere."));
  for (const one of view.doc.open) {
    const held = one.holds_back.reduce((sum, [, , count]) => sum + count, 0);
    const places = one.holds_back.slice(0, 8).map(([topic, partition, count]) => `${topic} ${partition}: ${number(count)}`).join(", ");
    into.append(html("div", { class: "held " + one.status }, badge(one.status), ": ", html("b", {}, one.transactional_id || "(no transactional id)"),
      ` producer ${one.producer_id}, epoch ${one.epoch}; open for ${lasting(one.age_ms + Math.max(0, (view.now || 0) - view.doc.now_ms))}`,
      one.expires_ms ? `; its timeout is over at ${clock(one.expires_ms)}` : "",
      html("br"), held ? `holds back ${number(held)} offsets (${places}${one.holds_back.length > 8 ? ", …" : ""})` : one.staged ? `${number(one.staged)} staged records without offsets: it holds nothing back` : "holds nothing back",
      html("br"), "This command " + one.effect + ":", html("code", { class: "command", tabindex: 0 }, one.command)));
  }
}

function isShown(topic) {
  return (!view.topic || topic === view.topic) && topic.toLowerCase().includes(view.find.toLowerCase());
}

// A box that filters by name what make() gives; it makes that again at each letter, and nothing else.
function filtered(into, make) {
  const place = html("div", {});
  const box = html("input", { type: "search", "data-key": "find-topic", "aria-label": "Filter topics by name", placeholder: "filter topics by name", value: view.find, oninput: (event) => { view.find = event.target.value; place.replaceChildren(...make()); } });
  into.append(html("p", {}, box), place);
  place.replaceChildren(...make());
}

// A table of the first rows only: of thousands, a browser is slow.
function capped(caption, heads, rows, what) {
  const shown = table(rows.length > ROWS ? `${caption}: ${ROWS} of ${number(rows.length)}` : caption, heads, rows.slice(0, ROWS));
  return rows.length > ROWS ? [shown, html("p", { class: "note", role: "status" }, `${number(rows.length - ROWS)} more ${what}, filter by name`)] : [shown];
}

function drawTopics(into) {
  filtered(into, () => {
    const rows = view.doc.topics.filter((one) => isShown(one.name)).map((one) => [one.name, one.partitions, number(one.records), size(one.bytes), number(one.aborted_records), number(one.lag), one.key_columns.join(", "), Object.entries(one.settings).map(([key, value]) => `${key}=${value}`).join(", ")]);
    const places = shownPartitions().filter((index) => isShown(view.doc.partitions[index].topic)).map((index) => {
      const one = view.doc.partitions[index], [start, stable, end, holder] = sample().places[index];
      return [one.topic, one.partition, number(start), number(stable), number(end), number(end - stable), holder >= 0 ? nameOf(view.doc.transactions[holder]) : ""];
    });
    return [...capped(`Topics at entry ${view.doc.entry}`, ["Topic", "#Partitions", "#Records below LSO", "#Bytes", "#Aborted records", "#Held back", "Key columns", "Settings"], rows, "topics"),
      html("h2", {}, "Partitions"),
      ...capped(`Partitions at entry ${sample().entry}`, ["Topic", "#Partition", "#Log start", "#LSO", "#Log end", "#Held back", "Held back by"], places, "partitions")];
  });
}

function drawTransactions(into) {
  const search = html("input", { type: "search", "data-key": "find-id", "aria-label": "Find a transactional id", placeholder: "transactional id", value: view.search, oninput: (event) => { view.search = event.target.value; rows(); } });
  const place = html("div", {});
  function rows() {
    const found = [];
    for (let index = view.doc.transactions.length - 1; index >= 0; index -= 1) {
      const outcome = outcomeAt(index), one = view.doc.transactions[index];
      if (outcome && nameOf(one).includes(view.search)) found.push([index, outcome, one]);
    }
    const late = (outcome) => ["late", "prepared", "open"].indexOf(outcome) + 1 || 9;
    found.sort((a, b) => late(a[1]) - late(b[1]) || b[2].begin_entry - a[2].begin_entry);
    const made = found.slice(0, view.rows).map(([index, outcome, one]) => ({
      picked: view.picked === index,
      cells: [pickButton("list", index, { "aria-pressed": view.picked === index ? "true" : "false" }), badge(outcome), `${one.producer_id} / ${one.epoch}`,
        `${one.begin_entry} (${clock(one.begin_ms)})`, one.end_entry !== null && one.end_entry <= sample().entry ? `${one.end_entry}${one.cause ? ", by " + one.cause : ""}` : "",
        number(one.records), one.staged && one.end_entry === null ? number(one.staged) : "", size(one.bytes)],
    }));
    place.replaceChildren(table(`Transactions at entry ${sample().entry}: ${made.length} of ${found.length}`, ["Transactional id", "Outcome", "Producer / epoch", "Began in entry", "Ended in entry", "#Records", "#Staged", "#Bytes"], made),
      found.length > view.rows ? html("button", { type: "button", onclick: () => { view.rows += 5 * ROWS; rows(); } }, "Show more") : "");
  }
  into.append(html("p", {}, search), place);
  rows();
}

function drawGroups(into) {
  const now = sample().groups.map(([group, lag, exact]) => [view.doc.group_names[group], (exact ? "" : "≤ ") + number(lag)]);
  into.append(table(`Lag of consumer groups at entry ${sample().entry}`, ["Group", "#Lag in records"], now));
  if (!now.length) into.append(html("p", {}, "There is no consumer group."));
  for (const one of view.doc.groups) {
    into.append(html("h2", {}, one.group), html("p", { class: "note" }, `${one.state}${one.member ? "; member " + one.member : ""}; last used ${lasting(one.idle_ms)} before; ${one.pending} positions pending in open transactions`),
      table(`Positions of ${one.group} at entry ${view.doc.entry}`, ["Topic", "#Partition", "#Position", "#Lag"], one.positions.filter(([topic]) => !view.topic || topic === view.topic).map(([topic, partition, offset, lag, exact]) => [topic, partition, number(offset), (exact ? "" : "≤ ") + number(lag)])));
  }
}

function drawFiles(into) {
  const one = view.doc.storage;
  filtered(into, () => capped(`Bytes of topics at entry ${view.doc.entry}, compressed`, ["Topic", "#Decided", "#Of these aborted", "#Unsealed extents", "#Unsealed offsets"], one.topics.filter(([topic]) => isShown(topic)).map(([topic, bytes, aborted, extents, offsets]) => [topic, size(bytes), size(aborted), number(extents), number(offsets)]), "topics"));
  into.append(html("h2", {}, "Objects that the state names"),
    table(`Objects at entry ${view.doc.entry}`, ["Objects", "#Count", "#Bytes"], [
      ["data files that unsealed records are in", number(one.files), size(one.files_bytes)],
      ["batch tables and spills", number(one.tables), size(one.tables_bytes)],
      [`sealed segments (${number(one.listed_segments)} of them in segment lists)`, number(one.segments), ""],
      ["segment lists", number(one.segment_lists.length), size(one.segment_lists.reduce((sum, [, bytes]) => sum + bytes, 0))],
      ...one.snapshots.map(([entry, , bytes]) => [`snapshot after entry ${entry}`, 1, size(bytes)])]),
    html("p", {}, `${number(one.tail_entries)} entries follow the newest snapshot: a client that opens the log reads them.`));
  into.append(html("h2", {}, "Unsealed at this entry"), html("p", {}, `${number(sample().extents)} extents; ${number(sample().segments)} segments were sealed by entry ${sample().entry}.`));
}

function drawRequests(into) {
  const entries = view.doc.entries.filter(([entry]) => entry <= sample().entry);
  if (entries.length > 1) {
    const from = entries[0][1], span = Math.max(1, entries[entries.length - 1][1] - from), buckets = Math.min(60, entries.length);
    const counts = new Array(buckets).fill(0), records = new Array(buckets).fill(0);
    for (const [, ms, added] of entries) { const at = Math.min(buckets - 1, Math.floor(((ms - from) / span) * buckets)); counts[at] += 1; records[at] += added; }
    const width = Math.max(240, view.width || 600), seconds = span / 1000;
    const sum = (index) => entries.reduce((total, one) => total + one[index], 0);
    into.append(html("p", {}, `${number(entries.length)} entries in ${lasting(span)}: ${(entries.length / seconds).toFixed(2)} entries, ${number(Math.round(sum(2) / seconds))} records and ${size(Math.round(sum(3) / seconds))} a second.`),
      html("h2", {}, "Entries over time"), bars(width, counts, `Entries over time, at most ${Math.max(...counts)} in one of ${buckets} parts`),
      html("h2", {}, "Records over time"), bars(width, records, `Records over time, at most ${Math.max(...records)} in one of ${buckets} parts`));
  }
  const { prices, objects } = view.doc;
  const all = view.doc.entries, span = all.length > 1 ? all[all.length - 1][1] - all[0][1] : 0;
  const puts = objects.reduce((sum, one) => sum + one.objects, 0);
  into.append(html("h2", {}, "Objects that writers made in this window"),
    table(`Entries ${view.doc.first} to ${view.doc.entry}`, ["Objects", "#Count", "#Bytes", "#Cost of their PUTs"], [...objects.map((one) => [one.kind, number(one.objects), size(one.bytes), dollars((one.objects * prices.write) / 1000)]), ["all", number(puts), "", dollars((puts * prices.write) / 1000)]]),
    html("p", { class: "note" }, "Each object has cost at least 1 PUT: this is a lower bound of what writers paid. The log does not show requests of readers. " +
      (span >= 60000 ? `At this rate ${dollars((puts * prices.write) / 1000 / span * 2592000000)} a month. ` : "") + `Prices: $${prices.read} for 1,000 GET, $${prices.write} for 1,000 PUT or LIST (S3 Standard, us-east-1, list price).`));
  const read = ["get", "get_range", "head"];
  const cost = (one) => one.operation === "delete" ? 0 : (one.count * prices[read.includes(one.operation) ? "read" : "write"]) / 1000;
  into.append(html("h2", {}, live ? "Requests of this page" : "Requests of the process that made this page"),
    table("Since it opened the log, without those for data files", ["Operation", "Object", "#Requests", "#Cost"], [...view.doc.requests.map((one) => [one.operation, one.object, number(one.count), dollars(cost(one))]), ["all", "", number(view.doc.requests.reduce((sum, one) => sum + one.count, 0)), dollars(view.doc.requests.reduce((sum, one) => sum + cost(one), 0))]]));
  if (live) into.append(html("p", {}, followCost()));
}

function followCost() {
  const minute = 90000 / every;  // every other look also asks whether the log is still there
  const price = (minute * view.doc.prices.read) / 1000;
  return `Following costs ${number(Math.round(minute))} GET a minute (${dollars(price)} a minute, ${dollars(price * 43200)} in a month without a pause) and 2 GET for each new entry, however many pages are open. It pauses while the page is hidden.`;
}

// --- controls ---------------------------------------------------------------------------------------------------------

const DRAW = { timeline: drawTimeline, topics: drawTopics, transactions: drawTransactions, groups: drawGroups, files: drawFiles, requests: drawRequests };

function pick(index) {
  view.picked = view.picked === index ? -1 : index;
  view.key = keyOf(view.doc, view.picked);
  draw();
}

function status() {
  const shown = sample(), doc = view.doc;
  if (!shown || shown.entry < 0) return "The log has no entry yet.";
  const last = view.at === samples().length - 1 && doc.entry === doc.newest;
  return `entry ${number(shown.entry)} of ${number(doc.newest)}, ${clock(shown.timestamp_ms)}${last ? " (newest)" : ""}; ${shown.undecided.length} open`;
}

function draw() {
  const active = document.activeElement && document.activeElement.closest(".body") ? document.activeElement : null;
  const reachable = () => [...byId("main").querySelectorAll("button, [tabindex], input")];
  const focused = active ? reachable().indexOf(active) : -1, caret = active && active.setSelectionRange ? [active.selectionStart, active.selectionEnd] : null;
  const slider = byId("slider");
  slider.min = live ? view.doc.earliest : 0;
  slider.max = live ? Math.max(view.doc.newest, 0) : Math.max(0, samples().length - 1);
  const wanted = live ? (view.wanted ?? (sample() ? sample().entry : 0)) : view.at;
  if (Number(slider.value) !== wanted) slider.value = wanted;
  byId("status").textContent = status() + (view.wanted !== undefined && view.wanted !== null && sample() && view.wanted !== sample().entry ? `; loading entry ${view.wanted}` : "");
  slider.setAttribute("aria-valuetext", status());
  byId("fault").textContent = view.fault;
  if (live) byId("follow").checked = view.following;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === view.page) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  for (const [name, title] of Object.entries(PAGES)) {
    const section = byId(name);
    section.hidden = name !== view.page;
    if (name !== view.page) continue;
    const body = section.querySelector(".body");
    section.setAttribute("aria-label", title);
    view.width = body.clientWidth;
    // Made aside: a page that is empty for a moment would lose its place.
    const made = html("div", {});
    if (samples().length) DRAW[name](made); else made.append(html("p", {}, "The log has no entry yet."));
    body.replaceChildren(...made.childNodes);
  }
  byId("foot").textContent = `Entries ${view.doc.first} to ${view.doc.entry} of ${view.doc.newest}; states from entry ${view.doc.earliest} on can be shown. Made by txnlog ${view.doc.version}.`;
  byId("notes").replaceChildren(...view.doc.notes.map((note) => html("p", { class: "note" }, note)));
  if (active) {
    const again = active.dataset.key ? reachable().find((one) => one.dataset.key === active.dataset.key) : reachable()[focused];
    (again || byId("main")).focus({ preventScroll: true });
    if (again && caret) again.setSelectionRange(...caret);
  }
}

function nearest(entry) {
  let found = 0;
  samples().forEach((one, index) => { if (one.entry <= entry) found = index; });
  return found;
}

function topics() {
  const names = [...new Set(view.doc.partitions.map((one) => one.topic))];
  const select = byId("topic");
  const wanted = ["", ...names];
  if (select.options.length === wanted.length && wanted.every((name, index) => select.options[index].value === name)) return;
  select.replaceChildren(...wanted.map((name) => html("option", { value: name }, name || "all topics")));
  select.value = names.includes(view.topic) ? view.topic : "";
  view.topic = select.value;
}

function take(doc) {
  view.doc = doc;
  view.picked = view.key === null ? -1 : doc.transactions.findIndex((_, index) => keyOf(doc, index) === view.key);
  view.at = Math.max(0, doc.samples.length - 1);
  topics();
}

let waiting = null;
function travel(value) {
  if (!live) { view.at = value; draw(); return; }
  view.following = false;
  view.wanted = value;
  view.at = nearest(value);
  draw();
  clearTimeout(waiting);
  if (sample() && sample().entry === value) { view.wanted = null; draw(); return; }
  waiting = setTimeout(() => ask(`api/document?entry=${value}`, (doc) => { if (view.wanted === value) { view.wanted = null; take(doc); } }), 150);
}

async function ask(path, then) {
  try {
    const answer = await fetch(path, { headers: { accept: "application/json" }, cache: "no-store" });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error || answer.statusText);
    view.fault = "";
    then(found);
  } catch (error) {
    view.fault = error instanceof TypeError ? "the page's server does not answer: is txnlog ui still running?" : String(error.message);
  }
  draw();
}

async function follow() {
  if (view.following && !document.hidden) {
    let overdue = false;
    await ask(`api/follow?entry=${view.doc.entry}`, (found) => {
      view.now = found.now_ms;
      if (found.samples) { take(found); return; }
      view.doc.requests = found.requests;
      // A transaction becomes late without an entry that says so.
      overdue = view.doc.open.some((one) => one.status === "open" && one.expires_ms !== null && one.expires_ms <= found.now_ms);
    });
    if (overdue) await ask(`api/document?entry=${view.doc.entry}`, take);
  }
  setTimeout(follow, every);
}

function start() {
  document.body.prepend(patterns());
  view.at = Math.max(0, samples().length - 1);
  for (const link of document.querySelectorAll("nav a")) {
    link.addEventListener("click", (event) => { event.preventDefault(); view.page = link.dataset.page; draw(); });
  }
  byId("slider").addEventListener("input", (event) => travel(Number(event.target.value)));
  byId("earlier").addEventListener("click", () => travel(Math.max(Number(byId("slider").min), Number(byId("slider").value) - 1)));
  byId("later").addEventListener("click", () => travel(Math.min(Number(byId("slider").max), Number(byId("slider").value) + 1)));
  byId("topic").addEventListener("change", (event) => { view.topic = event.target.value; view.first = 0; draw(); });
  if (live) byId("follow").addEventListener("change", (event) => {
    view.following = event.target.checked;
    view.wanted = null;
    if (view.following && view.doc.entry === view.doc.newest) view.at = Math.max(0, samples().length - 1);
    draw();
  });
  let width = 0;
  new ResizeObserver(() => { const now = byId("main").clientWidth; if (now !== width) { width = now; draw(); } }).observe(byId("main"));
  if (PAGES[location.hash.slice(1)]) view.page = location.hash.slice(1);
  topics();
  draw();
  if (live) setTimeout(follow, every);
}

start();

"use strict";
// Fetches a snapshot every second and shows it. Names are set as text content, never as HTML.

const EVERY_MS = 1000, KEPT = 300, KINDS = ["anonymous", "file_clean", "file_dirty", "shmem"];
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"], SVG = "http://www.w3.org/2000/svg";
const snapshots = [];
let before = new Map(), beforeTime = 0;

const at = (id) => document.getElementById(id);

function size(bytes) {
  if (bytes === null || bytes === undefined) return "?";
  let unit = 0, value = bytes;
  while (value >= 999.5 && unit < UNITS.length - 1) { value /= 1000; unit += 1; }
  const digits = unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

function cell(row, text, number) {
  const made = row.insertCell();
  made.textContent = text;
  if (number) made.className = "n";
  return made;
}

function showProcesses(snapshot) {
  const body = at("processes"), now = new Map(), passed = snapshot.time - beforeTime;
  body.replaceChildren();
  for (const one of snapshot.processes) {
    const row = body.insertRow(), last = before.get(one.pid);
    now.set(one.pid, one.minor_faults);
    cell(row, String(one.pid), true);
    cell(row, one.name, false);
    for (const kind of ["share", "anonymous", "file", "shmem", "rss"]) cell(row, size(one[kind]), true);
    const rate = last === undefined || passed <= 0 ? "" : Math.round(Math.max(one.minor_faults - last, 0) / passed);
    cell(row, String(rate), true);
  }
  before = now;
  beforeTime = snapshot.time;
  at("count").textContent = snapshot.count > snapshot.processes.length ? `the largest ${snapshot.processes.length} of ${snapshot.count}` : snapshot.count;
}

function showFiles(snapshot) {
  const body = at("files");
  body.replaceChildren();
  for (const one of snapshot.files) {
    const row = body.insertRow();
    cell(row, one.path, false);
    cell(row, size(one.size), true);
    const resident = cell(row, "", false);
    if (one.cached === null) {
      resident.textContent = `unknown: ${one.unknown}`;
    } else {
      const meter = document.createElement("meter");
      meter.value = Math.min(one.cached / Math.max(one.mapped, 1), 1);
      resident.append(meter, `${Math.floor(100 * meter.value)} %`);
    }
    cell(row, one.kind === "shmem" ? "memory" : size(one.dirty), true);
    cell(row, String(one.mappers), true);
    cell(row, one.saves > 0 ? size(one.saves) : "", true);
  }
}

function showCurve() {
  const curve = at("curve"), count = Math.max(snapshots.length - 1, 1);
  const top = Math.max(...snapshots.map((one) => one.total.real), 1);
  curve.replaceChildren();
  let below = snapshots.map(() => 0);
  for (const kind of KINDS) {
    const above = snapshots.map((one, i) => below[i] + one.total[kind]);
    const point = (value, i) => `${((600 * i) / count).toFixed(1)},${(158 - (150 * value) / top).toFixed(1)}`;
    const area = document.createElementNS(SVG, "polygon");
    area.setAttribute("class", kind.replace("_", "-"));
    area.setAttribute("points", [...above.map(point), ...below.map(point).reverse()].join(" "));
    curve.append(area);
    below = above;
  }
  at("oldest").textContent = `${Math.round(snapshots[snapshots.length - 1].time - snapshots[0].time)} s ago`;
  at("highest").textContent = `highest: ${size(top)}`;
}

function show(snapshot) {
  snapshots.push(snapshot);
  if (snapshots.length > KEPT) snapshots.shift();
  document.title = `${size(snapshot.total.real)} ${snapshot.group}`;
  at("group").textContent = snapshot.group;
  at("real").textContent = size(snapshot.total.real);
  at("rss").textContent = `sum of RSS: ${size(snapshot.total.sum_of_rss)}`;
  at("kinds").replaceChildren(...[...KINDS, "page_tables", "swap"].map((kind) => {
    const item = document.createElement("li");
    item.className = kind.replace("_", "-");
    item.textContent = `${kind.replace("_", " ")} ${size(snapshot.total[kind])}`;
    return item;
  }));
  at("notes").replaceChildren(...snapshot.total.notes.map((note) => {
    const item = document.createElement("li");
    item.textContent = note;
    return item;
  }));
  showCurve();
  showProcesses(snapshot);
  showFiles(snapshot);
  const cost = (100 * snapshot.cost.share).toFixed(2);
  at("state").textContent = `${new Date(1000 * snapshot.time).toLocaleTimeString()}, sampling uses ${cost} % of a CPU`;
  at("state").className = "";
}

async function run() {
  try {
    const answer = await fetch("snapshot", { cache: "no-store" });
    if (!answer.ok) throw new Error(`the server returned ${answer.status}`);
    const snapshot = await answer.json();
    if (snapshots.length === 0 || snapshot.time !== snapshots[snapshots.length - 1].time) show(snapshot);
  } catch (error) {
    at("state").textContent = `no answer: ${error.message}`;
    at("state").className = "late";
  }
  setTimeout(run, EVERY_MS);
}

run();

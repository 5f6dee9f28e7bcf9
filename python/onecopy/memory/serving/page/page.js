"use strict";
// Looks every second and shows what came. Names are only ever set as text: nothing of them is parsed.

const EVERY_MS = 1000, KEPT = 300, KINDS = ["anonymous", "file_clean", "file_dirty", "shmem"];
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"], SVG = "http://www.w3.org/2000/svg";
const looks = [];
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

function showProcesses(look) {
  const body = at("processes"), now = new Map(), passed = look.time - beforeTime;
  body.replaceChildren();
  for (const one of look.processes) {
    const row = body.insertRow(), last = before.get(one.pid);
    now.set(one.pid, one.minor_faults);
    cell(row, String(one.pid), true);
    cell(row, one.name, false);
    for (const kind of ["share", "anonymous", "file", "shmem", "rss"]) cell(row, size(one[kind]), true);
    const rate = last === undefined || passed <= 0 ? "" : Math.round(Math.max(one.minor_faults - last, 0) / passed);
    cell(row, String(rate), true);
  }
  before = now;
  beforeTime = look.time;
  at("count").textContent = look.count > look.processes.length ? `the largest ${look.processes.length} of ${look.count}` : look.count;
}

function showFiles(look) {
  const body = at("files");
  body.replaceChildren();
  for (const one of look.files) {
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
  const curve = at("curve"), count = Math.max(looks.length - 1, 1);
  const top = Math.max(...looks.map((one) => one.total.real), 1);
  curve.replaceChildren();
  let below = looks.map(() => 0);
  for (const kind of KINDS) {
    const above = looks.map((one, i) => below[i] + one.total[kind]);
    const point = (value, i) => `${((600 * i) / count).toFixed(1)},${(158 - (150 * value) / top).toFixed(1)}`;
    const area = document.createElementNS(SVG, "polygon");
    area.setAttribute("class", kind.replace("_", "-"));
    area.setAttribute("points", [...above.map(point), ...below.map(point).reverse()].join(" "));
    curve.append(area);
    below = above;
  }
  at("oldest").textContent = `${Math.round(looks[looks.length - 1].time - looks[0].time)} s ago`;
  at("highest").textContent = `highest: ${size(top)}`;
}

function show(look) {
  looks.push(look);
  if (looks.length > KEPT) looks.shift();
  document.title = `${size(look.total.real)} ${look.group}`;
  at("group").textContent = look.group;
  at("real").textContent = size(look.total.real);
  at("rss").textContent = `a sum of RSS says ${size(look.total.sum_of_rss)}`;
  at("kinds").replaceChildren(...[...KINDS, "page_tables", "swap"].map((kind) => {
    const item = document.createElement("li");
    item.className = kind.replace("_", "-");
    item.textContent = `${kind.replace("_", " ")} ${size(look.total[kind])}`;
    return item;
  }));
  at("notes").replaceChildren(...look.total.notes.map((note) => {
    const item = document.createElement("li");
    item.textContent = note;
    return item;
  }));
  showCurve();
  showProcesses(look);
  showFiles(look);
  const cost = (100 * look.cost.share).toFixed(2);
  at("state").textContent = `${new Date(1000 * look.time).toLocaleTimeString()}, looking costs ${cost} % of a processor`;
  at("state").className = "";
}

async function run() {
  try {
    const answer = await fetch("look", { cache: "no-store" });
    if (!answer.ok) throw new Error(`the server says ${answer.status}`);
    const look = await answer.json();
    if (looks.length === 0 || look.time !== looks[looks.length - 1].time) show(look);
  } catch (error) {
    at("state").textContent = `no answer: ${error.message}`;
    at("state").className = "late";
  }
  setTimeout(run, EVERY_MS);
}

run();

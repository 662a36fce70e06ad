// The review page: diffs are fetched as they come into view; lines are chosen by pointer or keys and commented on.
import { note, post } from "./act.js";
import { afterwards } from "./live.js";
import { parse } from "./morph.js";

const AHEAD = "800px"; // fetched before it is in view
const LINE = 19; // px of a line, to hold a diff's place until it is there
const narrow = matchMedia("(max-width: 900px)");
const OPENING = 5000; // ms in which an untouched page loads newer diffs by itself: it may have opened with an older one
let touched = false;
for (const kind of ["pointerdown", "pointermove", "keydown", "wheel", "touchmove"]) {
  addEventListener(kind, () => { touched = true; }, { once: true, passive: true });
}
let away = false; // when the page was fitted last
const preferred = () => sessionStorage.getItem("view") ?? (narrow.matches ? "unified" : "split");
let view = preferred();

const sections = () => [...document.querySelectorAll(".file")];
const bodyOf = (section) => section.querySelector(":scope > .body");

async function fetched(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(response.status === 503 ? "The daemon is away." : "The server refused it; load the page again.");
  return parse(await response.text());
}

/** Whether more rows here would push away the file that the address names, and that is in view. */
function pushes(element) {
  const target = document.getElementById(location.hash.slice(1));
  const top = target?.getBoundingClientRect().top ?? -1;
  return top >= 0 && top < innerHeight && Boolean(target.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_PRECEDING);
}

/** Fetch the diff of a file in place of what is shown; `whole` with all lines around the changes. */
async function load(section, { whole = section.dataset.shown === "whole" } = {}) {
  const body = bodyOf(section);
  body.dataset.loading = "";
  body.dataset.version = section.dataset.version;
  if (whole) section.dataset.shown = "whole";
  else delete section.dataset.shown;
  const query = new URLSearchParams({ view, v: section.dataset.version, ...(whole ? { whole: "1" } : {}) });
  try {
    const fresh = await fetched(`${section.dataset.url}&${query}`);
    body.replaceChildren(fresh);
    body.style.minHeight = "";
    watchMore(body);
  } catch (error) {
    body.innerHTML = '<p class="about" data-failed><span></span> <button type="button" class="small" data-again>Try again</button></p>';
    body.querySelector("span").textContent = error.message;
  } finally {
    delete body.dataset.loading;
    fit();
  }
}

const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    const section = target.closest(".file");
    if (isIntersecting && !target.hidden && !target.childElementCount && target.dataset.loading === undefined) load(section);
  }
}, { rootMargin: AHEAD });

const more = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) if (isIntersecting && !pushes(target)) follow(target);
}, { rootMargin: `0px 0px ${AHEAD}` }); // not above the view: a reader who jumps to a later file does not need the rest of this one

function watchMore(body) {
  const next = body.querySelector(".more");
  if (next !== null) more.observe(next);
}

async function follow(element, pressed = false) {
  more.unobserve(element);
  const section = element.closest(".file");
  const query = new URLSearchParams({ view, v: bodyOf(section).dataset.version, ...(section.dataset.shown === "whole" ? { whole: "1" } : {}) });
  try {
    const fresh = await fetched(`${element.dataset.more}&${query}`);
    if (pressed || !pushes(element)) element.replaceWith(fresh);
    watchMore(bodyOf(section));
  } catch (error) {
    note(error.message, { error: true });
  }
}

/** After each update: watch new files, fold viewed ones, and offer those that changed under the reader. */
function fit() {
  const gone = document.body.matches(".away, .lost");
  for (const section of sections()) {
    const body = bodyOf(section);
    const viewed = section.dataset.viewed !== undefined;
    if (body.dataset.seen === undefined) {
      body.dataset.seen = String(viewed);
      body.hidden = viewed;
      body.style.minHeight = `${Math.min(Number(section.dataset.lines), 400) * LINE}px`;
      near.observe(body);
    } else if (body.dataset.seen !== String(viewed)) {
      body.dataset.seen = String(viewed);
      body.hidden = viewed;
      if (!viewed) { near.unobserve(body); near.observe(body); }
    }
    if (away && !gone && body.querySelector(":scope > [data-failed]")) load(section);
    const [content, remarks] = section.dataset.version.split(".");
    const [shown, said] = (body.dataset.version ?? section.dataset.version).split(".");
    section.querySelector("[data-reload]").hidden = content === shown;
    const writing = body.querySelector("form.comment") !== null;
    const opening = !touched && performance.now() < OPENING;
    if ((opening ? content !== shown || remarks !== said : content === shown && remarks !== said) && !writing && body.dataset.loading === undefined) load(section);
  }
  away = gone;
}

function show(fresh) {
  view = fresh;
  for (const each of document.querySelectorAll("[data-view]")) each.setAttribute("aria-pressed", String(each.dataset.view === view));
  for (const section of sections()) if (bodyOf(section).childElementCount) load(section);
}

// Lines

let first = null; // the cell with the number of the first chosen line
let last = null;

const numbers = (row) => [...row.querySelectorAll(".n[data-n]")];
const lineOf = (cell) => Number(cell.dataset.n);

function mark(from, to) {
  for (const each of document.querySelectorAll(".marked")) each.classList.remove("marked");
  [first, last] = [from, to];
  if (from === null) return;
  const rows = [...from.closest(".body").querySelectorAll("table.diff > tbody > tr")];
  const ends = [rows.indexOf(from.parentElement), rows.indexOf(to.parentElement)].sort((a, b) => a - b);
  for (const row of rows.slice(ends[0], ends[1] + 1)) row.querySelector(`.n[data-side="${from.dataset.side}"]`)?.classList.add("marked");
}

function write(section, from, to) {
  const form = document.getElementById("comment-form").content.cloneNode(true).querySelector("form");
  form.elements.path.value = section.dataset.path;
  const query = new URLSearchParams(location.search);
  let where = section.dataset.path;
  if (from !== null) {
    const [low, high] = [lineOf(from), lineOf(to)].sort((a, b) => a - b);
    form.elements.line.value = low;
    form.elements.end_line.value = high;
    form.elements.at.value = from.dataset.side === "old" ? query.get("against") || "base" : query.get("until") ?? "";
    where = high > low ? `Lines ${low}–${high}` : `Line ${low}`;
    if (from.dataset.side === "old") where += " before the change";
    const range = form.querySelector("[data-range]");
    range.hidden = false; // a thumb has no shift key
    range.addEventListener("input", () => {
      const end = section.querySelector(`.n[data-side="${from.dataset.side}"][data-n="${CSS.escape(form.elements.end_line.value)}"]`);
      if (end !== null) mark(from, end);
    });
  }
  form.querySelector("[data-where]").textContent = where;
  const close = () => { (row ?? form).remove(); mark(null, null); fit(); };
  let row = null;
  if (to !== null) {
    row = document.createElement("tr");
    row.className = "commenting";
    const cell = row.insertCell();
    cell.colSpan = to.closest("table").classList.contains("split") ? 4 : 3;
    cell.append(form);
    to.parentElement.after(row);
  } else section.querySelector(":scope > header").after(form);
  form.querySelector("[data-cancel]").addEventListener("click", close);
  form.addEventListener("done", () => { close(); (from ?? section.querySelector("[data-row]")).parentElement.focus?.(); });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.stopPropagation(); close(); from?.parentElement.focus(); }
  });
  form.elements.text.focus();
}

/** The cell of a row that a comment is on: the new side where there is one. */
function chosen(row) {
  const cells = numbers(row);
  return cells.at(-1) ?? null;
}

document.addEventListener("click", (event) => {
  const target = event.target;
  const section = target.closest(".file");
  if (target.closest("[data-view]")) {
    sessionStorage.setItem("view", target.closest("[data-view]").dataset.view);
    return show(preferred());
  }
  if (section === null) return;
  const cell = target.closest(".n[data-n]");
  if (cell !== null && document.getElementById("finish") !== null) {
    if (event.shiftKey && first !== null && first.dataset.side === cell.dataset.side && first.closest(".file") === section) mark(first, cell);
    else mark(cell, cell);
    for (const old of section.querySelectorAll(".commenting")) old.remove();
    write(section, first, last);
  } else if (target.closest("[data-reload], [data-again]")) load(section);
  else if (target.closest("[data-whole]")) load(section, { whole: section.dataset.shown !== "whole" });
  else if (target.closest("[data-comment]")) {
    const rows = [...section.querySelectorAll("table.diff > tbody > tr")].filter(chosen);
    if (document.activeElement?.closest("tr") === null && event.detail === 0 && rows.length) {
      (rows.find((row) => row.querySelector(".add, .del")) ?? rows[0]).focus();
      note("j and k move, shift extends, Enter comments on the line; c again comments on the file");
    } else write(section, null, null);
  } else if (target.closest("[data-view-file]")) viewed(section, target.closest("[data-view-file]"));
  else if (target.closest(".more button")) follow(target.closest(".more"), true);
  else if (target.closest("h2 a")) {
    event.preventDefault();
    history.replaceState(null, "", target.closest("a").hash);
    const body = bodyOf(section);
    body.hidden = !body.hidden;
    if (!body.hidden && !body.childElementCount) load(section);
  }
});

async function viewed(section, button) {
  const off = button.getAttribute("aria-pressed") === "true";
  const answer = await post(location.pathname + "/viewed", { path: section.dataset.path, content: off ? "" : button.dataset.viewFile });
  if (answer === null || off) return;
  const next = section.nextElementSibling?.querySelector("[data-row]");
  if (next && section.contains(document.activeElement)) next.focus();
}

document.addEventListener("keydown", (event) => {
  const row = event.target.closest?.("table.diff > tbody > tr");
  if (!row || event.target !== row || event.ctrlKey || event.metaKey || event.altKey) return;
  const section = row.closest(".file");
  const step = { j: 1, ArrowDown: 1, J: 1, k: -1, ArrowUp: -1, K: -1 }[event.key];
  if (step !== undefined) {
    const rows = [...section.querySelectorAll("table.diff > tbody > tr")].filter(chosen);
    const next = rows[rows.indexOf(row) + step];
    if (next !== undefined) {
      const from = event.shiftKey ? first ?? chosen(row) : null;
      const to = from && numbers(next).find((each) => each.dataset.side === from.dataset.side);
      mark(from && to ? from : null, from && to ? to : null);
      next.focus();
      next.scrollIntoView({ block: "nearest" });
    }
  } else if (event.key === "Enter") {
    const from = first ?? chosen(row);
    write(section, from, last ?? from);
  } else if (event.key === "c") {
    write(section, null, null);
  } else if (event.key === "Escape") {
    mark(null, null);
    section.querySelector("[data-row]").focus();
  } else return;
  event.preventDefault();
  event.stopImmediatePropagation();
}, { capture: true });

// A file that is no picture is shown as a binary file.
document.addEventListener("error", (event) => {
  if (!event.target.matches?.(".pictures img")) return;
  event.target.hidden = true;
  event.target.nextElementSibling.hidden = false;
}, { capture: true });

function fold() {
  for (const id of ["range-fold", "tree-fold"]) document.getElementById(id).open = !narrow.matches;
}
narrow.addEventListener("change", () => { fold(); show(preferred()); });
fold();
afterwards.push(fit);
show(view);
fit();
const linked = location.hash && document.getElementById(location.hash.slice(1));
if (linked) linked.scrollIntoView();

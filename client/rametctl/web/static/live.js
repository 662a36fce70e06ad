// The page's one stream: fragments that have changed, and what every page says.
import { morph, morphChildren, parse } from "./morph.js";
import { tell } from "./notify.js";

const SHUT = 2; // EventSource.CLOSED
let source = null;
let cursor = document.body.dataset.cursor;
let lost = 0;
let heard = 0;
const SILENCE = 40000; // ms without a word, not even a beat, after which a connection is dead: the machine slept, or the network changed

/** Called after each change of the page. */
export const afterwards = [];

export function connect() {
  disconnect();
  const query = new URLSearchParams({ at: document.body.dataset.at, cursor });
  source = new EventSource(`/live?${query}`);
  source.onopen = () => {
    clearTimeout(lost);
    lost = 0;
    document.body.classList.remove("lost");
    banner();
  };
  heard = Date.now();
  source.addEventListener("beat", () => { heard = Date.now(); });
  source.onmessage = (message) => {
    heard = Date.now();
    cursor = message.lastEventId;
    apply(JSON.parse(message.data));
  };
  source.onerror = () => {
    if (source.readyState === SHUT) {
      // Refused: the session has ended, or the server is about to. A page that loads again says which.
      source = null;
      setTimeout(ask, 1000);
    }
    if (!lost) lost = setTimeout(() => { document.body.classList.add("lost"); banner(); }, 700);
  };
}

export function disconnect() {
  source?.close();
  source = null;
}

function revive() {
  if (source !== null && Date.now() - heard > SILENCE) connect();
}
setInterval(revive, 5000);
window.addEventListener("online", connect);

async function ask() {
  try {
    const answer = await fetch("/favicon.svg", { cache: "no-store" });
    const here = await fetch(location.href, { cache: "no-store" });
    if (answer.ok && here.status === 401) location.reload();
    else connect();
  } catch {
    setTimeout(ask, 1000);
  }
}

/** Show another page in the place of this one, without its frame: what a filter finds. */
export async function goTo(path) {
  let text;
  try {
    const answer = await fetch(path);
    if (!answer.ok) return;
    text = await answer.text();
  } catch {
    return;
  }
  const page = new DOMParser().parseFromString(text, "text/html");
  disconnect();
  morphChildren(document.getElementById("main"), page.getElementById("main"));
  history.replaceState(null, "", path);
  document.body.dataset.at = page.body.dataset.at;
  cursor = page.body.dataset.cursor;
  for (const each of afterwards) each();
  connect();
}

function apply(news) {
  const bottom = document.documentElement;
  const follows = bottom.scrollHeight - bottom.clientHeight - bottom.scrollTop < 40;
  for (const [id, html] of Object.entries(news.html ?? {})) {
    const element = document.getElementById(id);
    if (element !== null) morphChildren(element, parse(html));
  }
  for (const [id, list] of Object.entries(news.lists ?? {})) {
    const element = document.getElementById(id);
    if (element !== null) arrange(element, list);
  }
  if (news.state) show(news.state);
  if (follows && document.querySelector("[data-follows]")) bottom.scrollTop = bottom.scrollHeight;
  for (const each of afterwards) each();
}

const STEADY = 1500; // ms that a list keeps its order below a moving pointer, so that no click meets another row
let moved = -STEADY;
const waiting = new Map();
document.addEventListener("pointermove", () => { moved = performance.now(); }, { passive: true });
document.addEventListener("pointerdown", () => { moved = performance.now(); }, { passive: true });

function arrange(element, { order, changed }) {
  for (const id of order) {
    const child = document.getElementById(id);
    if (changed[id] === undefined) continue;
    const fresh = parse(changed[id]).firstElementChild;
    if (child === null) (waiting.get(element) ?? waiting.set(element, { made: {} }).get(element)).made[id] = fresh;
    else morph(child, fresh);
  }
  const later = waiting.get(element) ?? { made: {} };
  later.order = order;
  waiting.set(element, later);
  settle(element);
}

function settle(element) {
  const later = waiting.get(element);
  if (later === undefined) return;
  clearTimeout(later.timer);
  if (element.dataset.steady !== undefined && element.matches(":hover") && performance.now() - moved < STEADY) {
    later.timer = setTimeout(() => settle(element), STEADY);
    return;
  }
  waiting.delete(element);
  const wanted = new Set(later.order);
  const focused = [...element.children].find((child) => !wanted.has(child.id) && child.contains(document.activeElement));
  const next = focused?.nextElementSibling ?? focused?.previousElementSibling;
  for (const child of [...element.children]) if (!wanted.has(child.id)) child.remove();
  next?.querySelector("[data-row]")?.focus({ preventScroll: true });
  let at = element.firstElementChild;
  for (const id of later.order) {
    const child = document.getElementById(id) ?? later.made[id];
    if (child === undefined) continue;
    if (child === at) at = at.nextElementSibling;
    else element.insertBefore(child, at);
  }
}

let state = { away: document.body.classList.contains("away") };

function show(fresh) {
  state = { ...state, ...fresh }; // a server that does not know the daemon yet says only that
  document.body.classList.toggle("away", Boolean(state.away));
  banner();
  if (fresh.title !== undefined) tell(fresh);
}

function banner() {
  const element = document.getElementById("banner");
  const gone = document.body.classList.contains("lost");
  const words = gone
    ? "The web server does not answer. This page continues by itself when it runs again: rametctl web"
    : state.away ? `The daemon does not answer: ${state.away}. This page continues by itself.` : "";
  if (words || !element.hidden) element.textContent = words;
  element.hidden = !words;
  for (const each of document.querySelectorAll("[data-acts] button:not([data-closes], [data-cancel])")) {
    each.disabled = Boolean(words);
  }
}

afterwards.push(() => {
  if (document.body.classList.contains("away") || document.body.classList.contains("lost")) banner();
});

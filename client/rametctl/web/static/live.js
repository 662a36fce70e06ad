// The page's one stream: fragments that have changed, and what every page says.
import { morph, morphChildren, parse } from "./morph.js";
import { tell } from "./notify.js";

const SHUT = 2; // EventSource.CLOSED
let source = null;
let cursor = document.body.dataset.cursor;
let lost = 0;

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
  source.onmessage = (message) => {
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

function arrange(element, { order, changed }) {
  const wanted = new Set(order);
  for (const child of [...element.children]) if (!wanted.has(child.id)) child.remove();
  let at = element.firstElementChild;
  for (const id of order) {
    let child = document.getElementById(id);
    if (changed[id] !== undefined) {
      const fresh = parse(changed[id]).firstElementChild;
      if (child === null) child = fresh;
      else morph(child, fresh);
    }
    if (child === null) continue;
    if (child === at) at = at.nextElementSibling;
    else element.insertBefore(child, at);
  }
}

let state = { away: document.body.classList.contains("away") };

function show(fresh) {
  const before = state;
  state = fresh;
  document.body.classList.toggle("away", Boolean(fresh.away));
  banner();
  tell(fresh, before);
}

function banner() {
  const element = document.getElementById("banner");
  const gone = document.body.classList.contains("lost");
  const words = gone
    ? "The web server does not answer. This page goes on by itself when it is back (rametctl web)."
    : state.away ? `The daemon is away (${state.away}). This page goes on by itself when it is back.` : "";
  if (words || !element.hidden) element.textContent = words;
  element.hidden = !words;
  for (const each of document.querySelectorAll("[data-acts] button, button[data-acts]")) {
    each.disabled = Boolean(words);
  }
}

afterwards.push(() => {
  if (document.body.classList.contains("away") || document.body.classList.contains("lost")) banner();
});

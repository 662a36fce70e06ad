// The keyboard: the dashboard's keys. An element with data-key is pressed by it; data-row elements are moved among.
import { note } from "./act.js";

const GRACE = 700; // ms after a request appeared in which no key answers it: it was meant for what was there before
const born = new WeakMap();

/** Whether a key can press it: it is on the page, or in a menu that is closed. */
function shown(element) {
  return !element.disabled && !element.closest(".answered") && (element.getClientRects().length > 0 || element.closest("details[data-closing]") !== null);
}

function rows() {
  return [...document.querySelectorAll("[data-row]")].filter(shown);
}

function move(step, edge = false) {
  const all = rows();
  if (!all.length) return window.scrollBy({ top: step * 60 });
  const at = all.findIndex((each) => each.contains(document.activeElement));
  const next = edge ? (step < 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1);
  all[at < 0 && !edge ? 0 : next].focus();
}

/** The element that a key presses: in the scope, row or request that has the focus first, else the first on the page. */
function target(key) {
  const name = CSS.escape(key);
  const focused = document.activeElement;
  const inside = focused?.closest("[data-scope], .request") ?? focused?.closest("[data-row]")?.parentElement;
  const own = [...(inside?.querySelectorAll(`[data-key="${name}"]`) ?? [])];
  if (own.length && inside.closest(".answered")) return undefined; // pressed twice: the second press is for no other request
  return [...own, ...document.querySelectorAll(`[data-key="${name}"]`)].find(shown);
}

/** Whether an element is in a request that has just appeared; if so, the note says it. */
function early(element) {
  const request = element.closest(".request");
  const is = request !== null && performance.now() - (born.get(request) ?? 0) < GRACE;
  if (is) note("This has just appeared: answer it again.");
  return is;
}

function press(element) {
  if (early(element)) return;
  if (element.matches("input:not([type=radio], [type=checkbox]), textarea, select, summary[data-focus]")) element.focus();
  else if (element.matches("summary")) {
    element.parentElement.open = true;
    (element.parentElement.querySelector("textarea, input, select") ?? element).focus();
  } else {
    element.click();
    if (element.matches("[type=radio]")) element.form.requestSubmit(element.form.querySelector("button[name]"));
  }
}

const MOVES = {
  j: () => move(1), ArrowDown: () => move(1), k: () => move(-1), ArrowUp: () => move(-1),
  g: () => move(-1, true), Home: () => move(-1, true), G: () => move(1, true), End: () => move(1, true),
  J: () => window.scrollBy({ top: innerHeight / 2 }), K: () => window.scrollBy({ top: -innerHeight / 2 }),
};

document.addEventListener("keydown", (event) => {
  if (!(event.target instanceof Element)) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("form[data-action] textarea")) {
    event.preventDefault();
    const form = event.target.form; // in a menu of a request, its own button sends
    form.requestSubmit(event.target.closest("details")?.querySelector("button") ?? form.querySelector("button.main"));
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.isComposing || event.keyCode === 229) return; // an input method takes the key
  const typing = event.target.matches("input:not([type=radio], [type=checkbox]), textarea, select");
  if (event.key === "Escape") {
    if (document.querySelector("dialog[open]")) return;
    const menu = document.querySelector("details[data-closing][open]");
    const back = target("Escape");
    if (typing) event.target.blur();
    else if (menu !== null) menu.open = false;
    else if (back && !back.matches("[aria-current=page]")) back.click();
    return;
  }
  if (typing) {
    // On a phone Enter begins a line: the button that sends is below the thumb.
    const sends = event.target.matches("textarea[data-sends]") && !matchMedia("(pointer: coarse)").matches;
    if (event.key === "Enter" && !event.shiftKey && sends) {
      event.preventDefault();
      event.target.form.requestSubmit();
    }
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && event.target.matches("a, button, summary, .button")) return;
  const element = target(event.key);
  if (element !== undefined) {
    event.preventDefault();
    press(element);
  } else if (event.key in MOVES) {
    event.preventDefault();
    MOVES[event.key]();
  }
});

// The second click of a double click was not meant for the request that took the place of the first.
document.addEventListener("click", (event) => {
  if (event.detail > 1 && event.target.closest("button") && early(event.target)) {
    event.preventDefault();
    event.stopPropagation();
  }
}, true);

/** Note when requests appeared. */
export function notice() {
  for (const each of document.querySelectorAll(".request")) {
    if (!born.has(each)) born.set(each, performance.now());
  }
}

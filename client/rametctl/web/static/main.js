// Every page: its stream, its forms, its keys, and the ages that it shows.
import "./act.js";
import { notice } from "./keys.js";
import { afterwards, connect, disconnect } from "./live.js";
import { offer, SEEN } from "./notify.js";
import "./write.js";

function age(seconds) {
  for (const [length, unit] of [[86400, "d"], [3600, "h"], [60, "m"]]) {
    if (seconds >= length) return `${Math.floor(seconds / length)}${unit}`;
  }
  return `${Math.floor(Math.max(seconds, 0))}s`;
}

function tick() {
  const now = Date.now() / 1000;
  for (const each of document.querySelectorAll("time[data-since]")) {
    const words = age(now - Number(each.dataset.since));
    if (each.textContent !== words) each.textContent = words;
  }
}

afterwards.push(tick, notice, offer);
setInterval(tick, 1000);
tick();
notice();
offer();

// A browser opens six connections to one server: a tab in the background gives its own back, unless it is the one that notifies.
let notifies = false;
navigator.locks?.request("ramet-notifies", () => {
  notifies = true;
  if (document.hidden) connect(); // the tab that notified was closed, and this one has given its connection back
  return new Promise(() => {});
});
let unseen = () => {};
function see() {
  unseen();
  if (!document.hidden) navigator.locks?.request(SEEN, { mode: "shared" }, () => document.hidden || new Promise((end) => { unseen = end; }));
}
see();
let resting = 0;
document.addEventListener("visibilitychange", () => {
  see();
  clearTimeout(resting);
  if (document.hidden) resting = setTimeout(() => { if (!notifies) disconnect(); }, 500);
  else if (!notifies) connect();
});
window.addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
window.addEventListener("pagehide", disconnect);
// On a narrow screen the list of pages scrolls: the open page is in view.
document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
// A conversation opens at its end, unless a person has scrolled already, or the browser goes back to where they were.
const type = performance.getEntriesByType("navigation")[0]?.type ?? "navigate";
if (document.querySelector("[data-follows]") && !location.hash && type === "navigate" && !document.documentElement.scrollTop) {
  document.documentElement.scrollTop = document.documentElement.scrollHeight;
}
connect();
performance.mark("interactive"); // keys and forms work

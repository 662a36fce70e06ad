// Sessions that need you: in the title, in the icon, and as notifications of the browser where you allow them.

let known = new Set(document.body.dataset.asks?.split(" "));
const shown = new Map(); // request → its notification
export const SEEN = "ramet-seen"; // the lock that each visible tab holds

export function tell(state) {
  const asks = state.asks ?? [];
  const count = asks.length;
  document.title = `${count ? `(${count}) ` : ""}${state.title} · Ramet`;
  const icon = document.getElementById("icon");
  const href = `/favicon.svg?n=${count}`;
  if (icon.getAttribute("href") !== href) icon.setAttribute("href", href);
  const badge = document.getElementById("needs");
  if (badge !== null) {
    badge.textContent = count;
    badge.hidden = !count;
  }
  const before = known;
  known = new Set(asks.map((each) => each.id));
  for (const [id, note] of shown) {
    if (known.has(id)) continue;
    note.close(); // answered
    shown.delete(id);
  }
  notify(asks.filter((each) => !before.has(each.id)));
}

async function notify(asks) {
  if (!asks.length || !document.hidden || window.Notification?.permission !== "granted") return;
  const { held = [] } = (await navigator.locks?.query()) ?? {};
  if (held.some((each) => each.name === SEEN)) return; // another tab shows the count
  for (const ask of asks.filter((each) => known.has(each.id))) {
    const note = new Notification(`${ask.name} needs you`, { body: ask.kind, tag: ask.id });
    shown.set(ask.id, note);
    note.onclick = () => {
      window.focus();
      location.href = `/sessions/${ask.session}`;
    };
  }
}

/** Buttons that ask the browser to allow notifications; hidden where there is nothing to ask. */
export function offer() {
  for (const button of document.querySelectorAll("[data-notify]")) {
    button.hidden = window.Notification?.permission !== "default";
    button.onclick = async () => {
      await Notification.requestPermission();
      offer();
    };
  }
}

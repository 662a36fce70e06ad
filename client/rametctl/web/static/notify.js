// Who needs the person: in the title, in the icon, and as the browser's own notifications where they are allowed.

let known = new Set(document.body.dataset.asks?.split(" "));

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
  if (!document.hidden || window.Notification?.permission !== "granted") return;
  for (const ask of asks.filter((each) => !before.has(each.id))) {
    const note = new Notification(`${ask.name} needs you`, { body: ask.kind, tag: ask.id });
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

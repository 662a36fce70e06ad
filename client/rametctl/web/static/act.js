// Forms with data-action: sent as JSON; what the daemon says is shown, and where it refuses, nothing typed is lost.

const REQUESTS = new WeakMap();

/** An id that stays the same until the form was taken: a second attempt after a lost answer does nothing twice. */
function requestId(form) {
  if (!REQUESTS.has(form)) {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    REQUESTS.set(form, [...bytes].map((each) => each.toString(16).padStart(2, "0")).join(""));
  }
  return REQUESTS.get(form);
}

let fading = 0;

export function note(words, { error = false } = {}) {
  const element = document.getElementById("note");
  element.textContent = words;
  element.classList.toggle("error", error);
  element.hidden = !words;
  clearTimeout(fading);
  fading = setTimeout(() => { element.hidden = true; }, error ? 12000 : 5000);
}

/** Post values to an action; the answer, or null where it failed, which the note says. */
export async function post(path, values) {
  let answer;
  try {
    const response = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(values),
    });
    if (response.status === 401) return location.reload(), null;
    answer = response.headers.get("content-type")?.startsWith("application/json")
      ? await response.json()
      : { error: await response.text() };
  } catch {
    answer = { error: "The web server does not answer; nothing you typed is lost. Try again." };
  }
  if (answer.error) {
    note(answer.error + (answer.hint ? ` (${answer.hint})` : ""), { error: true });
    return null;
  }
  return answer;
}

function values(form, submitter) {
  const found = {};
  for (const [name, value] of new FormData(form, submitter)) {
    if (typeof value !== "string") continue;
    found[name] = name in found ? [].concat(found[name], value) : value;
  }
  return found;
}

export async function submit(form, submitter) {
  const question = submitter?.dataset.confirm;
  if (question && !window.confirm(question)) return;
  if (form.dataset.busy !== undefined) return;
  form.dataset.busy = "";
  form.setAttribute("aria-busy", "true");
  try {
    const files = form.querySelector("input[type=file]");
    const attached = files?.files.length ? await upload(form.dataset.files, files.files) : [];
    if (attached === null) return;
    const path = submitter?.dataset.action ?? form.dataset.action;
    const answer = await post(path, { ...values(form, submitter), files: attached, request_id: requestId(form) });
    if (answer === null) return;
    REQUESTS.delete(form);
    form.reset();
    form.dispatchEvent(new Event("done"));
    form.closest("dialog")?.close();
    if (answer.note) note(answer.note);
    if (answer.go) location.href = answer.go;
  } finally {
    delete form.dataset.busy;
    form.removeAttribute("aria-busy");
  }
}

/** Send files one by one; their names in the worktree, or null where one failed. */
async function upload(path, files) {
  const names = [];
  for (const file of files) {
    note(`sending ${file.name} …`);
    let response;
    try {
      response = await fetch(`${path}?${new URLSearchParams({ name: file.name })}`, { method: "POST", body: file });
    } catch {
      note("The web server does not answer; nothing was sent. Try again.", { error: true });
      return null;
    }
    const answer = response.headers.get("content-type")?.startsWith("application/json") ? await response.json() : {};
    if (!response.ok) {
      note(answer.error ?? `${file.name} was refused`, { error: true });
      return null;
    }
    names.push(answer.note);
  }
  return names;
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.action === undefined) return;
  event.preventDefault();
  submit(form, event.submitter);
});

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  if (opener !== null) document.getElementById(opener.dataset.opens).showModal();
  event.target.closest("[data-closes]")?.closest("dialog").close();
  for (const menu of document.querySelectorAll("details[data-closing][open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

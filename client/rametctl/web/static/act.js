// Forms with data-action are sent as JSON. The answer is shown; after an error the form keeps what was typed.

const attempts = new WeakMap(); // form → the last attempt: what was sent, under which id
const running = new WeakMap(); // form → what is sent just now, and its end

/** An id that stays the same for each attempt to send the same: after a lost answer nothing is done twice. */
function requestId(form, sent) {
  if (attempts.get(form)?.sent !== sent) {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    attempts.set(form, { sent, id: [...bytes].map((each) => each.toString(16).padStart(2, "0")).join("") });
  }
  return attempts.get(form).id;
}

const element = document.getElementById("note");
let fading = 0;

export function note(words, { error = false } = {}) {
  // Ignore events outside an open dialog.
  (document.querySelector("dialog[open]") ?? document.body).append(element);
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
  // An update of the page may have made another control of the button that was pressed.
  const button = submitter?.form === form && submitter.type === "submit" ? submitter : null;
  for (const [name, value] of new FormData(form, button)) {
    if (typeof value !== "string") continue;
    found[name] = name in found ? [].concat(found[name], value) : value;
  }
  return found;
}

export async function submit(form, submitter) {
  const question = submitter?.dataset.confirm;
  if (question && !window.confirm(question)) return;
  const path = submitter?.dataset.action ?? form.dataset.action;
  const given = values(form, submitter);
  const sent = JSON.stringify([path, given]);
  const before = running.get(form);
  if (before?.sent === sent) return; // pressed twice
  const work = (before?.end ?? Promise.resolve()).then(() => send(form, submitter, path, given, sent));
  running.set(form, { sent, end: work });
  form.setAttribute("aria-busy", "true");
  await work;
  if (running.get(form)?.end !== work) return;
  running.delete(form);
  form.removeAttribute("aria-busy");
}

async function send(form, submitter, path, given, sent) {
  const files = form.querySelector("input[type=file]");
  const attached = files?.files.length ? await upload(form.dataset.files, files.files) : [];
  if (attached === null) return;
  const answer = await post(path, { ...given, files: attached, request_id: requestId(form, sent) });
  if (answer === null) return;
  attempts.delete(form);
  // What was typed meanwhile is not sent yet.
  if (JSON.stringify([path, values(form, submitter)]) === sent) {
    form.reset();
    form.dispatchEvent(new Event("done"));
  }
  form.closest("dialog")?.close();
  form.closest(".request")?.classList.add("answered"); // it stays where it is below a pointer, and takes no second answer
  if (answer.note) note(answer.note);
  if (answer.go) {
    sessionStorage.setItem("note", answer.note);
    location.href = answer.go;
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

const last = sessionStorage.getItem("note"); // of the page that led here
sessionStorage.removeItem("note");
if (last) note(last);

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  // A button with `command` opens its dialog also before this has loaded; older browsers do not know it.
  if (opener !== null && opener.command !== "show-modal") document.getElementById(opener.dataset.opens).showModal();
  event.target.closest("[data-closes]")?.closest("dialog").close();
  for (const menu of document.querySelectorAll("details[data-closing][open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

// What a person writes: the prompt box grows, takes files by button, drop or paste; the filter works while it is typed.
import { goTo } from "./live.js";

function grow() {
  for (const each of document.querySelectorAll("textarea[data-grows]")) {
    each.dataset.least ??= each.rows;
    each.rows = Math.min(Math.max(each.value.split("\n").length, each.dataset.least), 10);
  }
}

function list(input) {
  const output = document.getElementById(input.dataset.lists);
  output.textContent = [...input.files].map((each) => each.name).join(", ");
}

function add(form, files) {
  const input = form.querySelector("input[type=file]");
  const all = new DataTransfer();
  for (const each of [...input.files, ...files]) all.items.add(each);
  input.files = all.files;
  list(input);
}

const draft = document.querySelector("textarea[data-sends]");
const place = `draft ${location.pathname}`;
if (draft !== null && !draft.value) draft.value = sessionStorage.getItem(place) ?? "";
grow();

let typing = 0;

document.addEventListener("input", (event) => {
  grow();
  if (event.target === draft) sessionStorage.setItem(place, draft.value);
  if (!event.target.matches("[data-filters]")) return;
  clearTimeout(typing);
  typing = setTimeout(() => goTo(`/?${new URLSearchParams({ q: event.target.value })}`), 200);
});
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-lists]")) list(event.target);
});
document.addEventListener("done", (event) => {
  grow();
  if (draft !== null && event.target.contains(draft)) sessionStorage.removeItem(place);
  for (const each of event.target.querySelectorAll("[data-lists]")) list(each);
}, true);
document.addEventListener("paste", (event) => {
  const form = event.target.closest?.("[data-drops]");
  if (form && event.clipboardData.files.length) {
    event.preventDefault();
    add(form, event.clipboardData.files);
  }
});
document.addEventListener("dragover", (event) => {
  if (document.querySelector("[data-drops]") !== null) event.preventDefault();
});
document.addEventListener("drop", (event) => {
  const form = document.querySelector("[data-drops]");
  if (form === null || !event.dataTransfer.files.length) return;
  event.preventDefault();
  add(form, event.dataTransfer.files);
});

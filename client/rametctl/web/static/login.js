// Open a session with the token of a link; or continue if the browser has a session that its first request did not show.
const words = document.getElementById("login");
const token = location.hash.slice(1);

if (location.pathname === "/login" && token) {
  history.replaceState(null, "", "/login");
  const response = await fetch("/login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  const answer = await response.json().catch(() => ({ error: "the server refused the link" }));
  if (response.ok) location.replace(answer.go);
  else words.textContent = `${answer.error}. ${answer.hint ?? ""}`;
} else if (location.pathname !== "/login") {
  const response = await fetch(location.href, { cache: "no-store" });
  if (response.status !== 401) location.reload();
}

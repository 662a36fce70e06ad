// Make an element look like another one and keep what a person has in it: focus, selection, typed text, open details.

export function parse(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

/** Give `old` the children of `fresh`. */
export function morphChildren(old, fresh) {
  const wanted = [...fresh.childNodes];
  let at = old.firstChild;
  for (const node of wanted) {
    const known = match(at, node, old);
    if (known === null) {
      old.insertBefore(node, at);
      continue;
    }
    if (known !== at) old.insertBefore(known, at);
    else at = at.nextSibling;
    morph(known, node);
  }
  while (at !== null) {
    const next = at.nextSibling;
    if (at.id !== "note") at.remove(); // it is wherever it can be seen
    at = next;
  }
}

function match(at, node, parent) {
  if (node.id) {
    const known = document.getElementById(node.id);
    return known !== null && known.parentNode === parent ? known : null;
  }
  return at !== null && at.nodeName === node.nodeName && !at.id ? at : null;
}

export function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.isEqualNode(fresh) || old.dataset.own !== undefined) return;
  for (const { name, value } of [...fresh.attributes]) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  morphChildren(old, fresh);
}

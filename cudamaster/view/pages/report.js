"use strict";
// Sorting, filtering, and opening what a link points to. Without it the page says the same, in one order.

function key(unit, column) {
  const cell = (unit.rows ? unit.rows[0] : unit).cells[column];
  const text = !cell ? "" : cell.dataset.k ?? cell.textContent.trim();
  const number = parseFloat(text.replaceAll(",", ""));
  return Number.isNaN(number) ? text.toLowerCase() : number;
}

function compare(one, other) {
  if (typeof one === typeof other) return typeof one === "number" ? one - other : one.localeCompare(other);
  return typeof one === "number" ? -1 : 1;
}

function sort(table, head, column) {
  const whole = table.classList.contains("tasks");
  const units = whole ? [...table.tBodies] : [...table.tBodies[0].rows];
  const keyed = units.map(unit => [key(unit, column), unit]);
  const nothing = value => value === "" || value === "-" || value === "–";
  const known = keyed.filter(([value]) => !nothing(value));
  const numbers = known.length > 0 && typeof known[0][0] === "number";
  const before = head.getAttribute("aria-sort");
  const up = before === null ? !numbers : before === "descending";
  known.sort(([one], [other]) => up ? compare(one, other) : compare(other, one));
  // What has no value comes last, whichever way round.
  const ordered = [...known, ...keyed.filter(([value]) => nothing(value))];
  (whole ? table : table.tBodies[0]).append(...ordered.map(([, unit]) => unit));
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
}

for (const table of document.querySelectorAll("table.sorts")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (head.classList.contains("plain")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(table, head, column));
    head.append(button);
  });
}

for (const form of document.querySelectorAll("form.filter")) {
  const bodies = [...document.getElementById(form.dataset.of).tBodies];
  const words = new Map(bodies.map(body => [body, (body.rows[0].textContent + " " +
    (body.querySelector("summary")?.textContent ?? "")).toLowerCase()]));
  const filter = () => {
    const wanted = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = [...form.querySelectorAll("select")].filter(select => select.value !== "");
    let shown = 0;
    for (const body of bodies) {
      const fits = wanted.every(word => words.get(body).includes(word)) &&
        chosen.every(select => body.dataset[select.name] === select.value);
      body.hidden = !fits;
      shown += fits;
    }
    form.querySelector("output").textContent = `${shown} of ${bodies.length}`;
  };
  form.addEventListener("input", filter);
  form.addEventListener("submit", event => event.preventDefault());
  form.hidden = false;
  filter();
}

function open() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.tagName !== "TBODY") return;
  target.hidden = false;
  for (const details of target.querySelectorAll("td.more > details")) details.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", open);
open();

document.documentElement.classList.add("js");
// A number that is not known sorts last, whichever way.
const order = (a, b) => {
  const [x, y] = [a, b].map(parseFloat);
  return isNaN(x) || isNaN(y) ? a.localeCompare(b, undefined, { numeric: true }) : x - y;
};
for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "descending" ||
        (!head.hasAttribute("aria-sort") && !head.classList.contains("num"));
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (body) => body.rows[0].cells[column].dataset.v ?? body.rows[0].cells[column].textContent.trim();
      const known = (body) => key(body) !== "–";
      const bodies = [...table.tBodies].sort((a, b) =>
        known(a) !== known(b) ? known(b) - known(a) : (up ? 1 : -1) * order(key(a), key(b)));
      table.append(...bodies);
    });
  });
}
for (const box of document.querySelectorAll(".filter")) {
  const input = box.querySelector("input");
  const said = box.querySelector("output");
  const bodies = [...document.getElementById(box.dataset.table).tBodies];
  box.hidden = false;
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const body of bodies) {
      const name = body.rows[0].cells[0].textContent.toLowerCase();
      body.hidden = !words.every((word) => name.includes(word));
      shown += !body.hidden;
    }
    said.textContent = input.value ? `${shown} of ${bodies.length}` : "";
  };
  input.addEventListener("input", apply);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { input.value = ""; apply(); }
  });
}

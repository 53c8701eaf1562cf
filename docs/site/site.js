// What the theme leaves out for those who use a keyboard or a screen reader.
(() => {
  const names = new Set();
  const mend = () => {
    // Wide tables scroll: let the arrow keys do it.
    for (const table of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) table.tabIndex = 0;
    // Landmarks need names of their own; lists within the navigation, and buttons beside code, share theirs.
    for (const part of document.querySelectorAll("nav:not([data-named])")) {
      const label = document.getElementById(part.getAttribute("aria-labelledby"));
      const name = (part.getAttribute("aria-label") || label?.textContent || "Buttons of the code").replace(/\s+/g, " ").trim();
      let own = name;
      for (let number = 2; names.has(own); number++) own = `${name}, ${number}`;
      names.add(own);
      part.dataset.named = "";
      part.removeAttribute("aria-labelledby");
      part.setAttribute("aria-label", own);
    }
  };
  new MutationObserver(mend).observe(document.documentElement, { childList: true, subtree: true });
  document.addEventListener("DOMContentLoaded", mend);
})();

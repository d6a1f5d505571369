// What scrolls sideways can be reached with the keyboard. The theme does so for code and tables, and not for formulas.
(() => {
  const fits = (box) => box.scrollWidth <= box.clientWidth + 1 || getComputedStyle(box).overflowX === "visible";
  function reach() {
    // A formula within the text that is wider than its column scrolls in a box of its own.
    for (const formula of document.querySelectorAll(".bd-article math:not([display])")) {
      const room = formula.closest("p, li, dd, td, th, figcaption, .sd-card-body, .bd-article");
      if (formula.closest(".dp-wide") || formula.getBoundingClientRect().width <= room.clientWidth) continue;
      const box = document.createElement("span");
      box.className = "dp-wide";
      formula.replaceWith(box);
      box.append(formula);
    }
    for (const box of document.querySelectorAll(".bd-article :is(div.math, .dp-wide, .output, pre)")) {
      if (!fits(box)) box.tabIndex = 0;
      else if (box.matches("div.math, .dp-wide")) box.removeAttribute("tabindex");
    }
  }
  window.addEventListener("load", () => document.fonts.ready.then(reach));
  let waiting;
  window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(reach, 200); });
})();

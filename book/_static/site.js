// What scrolls sideways can be reached with the keyboard. The theme does so for code and tables, and not for formulas.
(() => {
  const reach = () => document.querySelectorAll(".bd-article div.math, .bd-article .output, .bd-article pre").forEach((box) => {
    const wide = box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX !== "visible";
    if (wide) box.tabIndex = 0;
    else if (box.matches("div.math")) box.removeAttribute("tabindex");
  });
  window.addEventListener("load", () => Promise.resolve(window.MathJax?.startup?.promise).then(reach));
  let waiting;
  window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(reach, 200); });
})();

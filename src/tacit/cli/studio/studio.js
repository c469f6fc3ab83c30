"use strict";
// The page works without this; with it, what runs is followed without reloading.
(() => {
  const live = document.getElementById("live");
  if (live) follow(live);
  const reload = document.querySelector("[data-reload]");
  if (reload) setTimeout(() => location.reload(), 1500);
  document.querySelectorAll("table.runs").forEach((table) => {
    const button = table.closest("form").querySelector("button");
    const count = () => table.querySelectorAll("input:checked").length;
    const update = () => { button.disabled = count() < 2; };
    table.addEventListener("change", update);
    update();
  });

  function follow(box) {
    const address = box.dataset.follow;
    let wait = 1000;
    const next = async () => {
      if (box.querySelector("[data-over=true]")) return;
      try {
        const answer = await fetch(address, { credentials: "same-origin" });
        if (answer.ok) { replace(box, await answer.text()); wait = 1000; }
      } catch { wait = Math.min(wait * 2, 15000); } // the page's server is away; the run is not
      setTimeout(next, wait);
    };
    setTimeout(next, 500);
  }

  function replace(box, text) {
    const open = new Set([...box.querySelectorAll("details[open]")].map((one) => one.id));
    const focus = document.activeElement && box.contains(document.activeElement)
      ? [document.activeElement.name, document.activeElement.value] : null;
    const parsed = new DOMParser().parseFromString(text, "text/html"); // scripts in it do not run
    const fresh = parsed.body.firstElementChild, old = box.firstElementChild;
    if (old && old.children.length === fresh.children.length) { // what stays is not read out again
      old.dataset.over = fresh.dataset.over;
      [...fresh.children].forEach((one, at) => {
        if (!old.children[at].isEqualNode(one)) old.children[at].replaceWith(one);
      });
    } else box.replaceChildren(fresh);
    open.forEach((id) => { const one = id && document.getElementById(id); if (one) one.open = true; });
    if (focus && focus[0]) {
      [...box.querySelectorAll("button")]
        .filter((one) => one.name === focus[0] && one.value === focus[1])
        .forEach((one) => one.focus());
    }
  }
})();

// Fetch the page again every two seconds and replace the sections that have changed.
"use strict";

const SECONDS = 2;

async function refresh() {
  const lost = document.getElementById("lost");
  try {
    const reply = await fetch(".", { cache: "no-store" });
    if (!reply.ok) throw new Error(String(reply.status));
    const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
    for (const section of fresh.querySelectorAll("section[id]")) {
      const shown = document.getElementById(section.id);
      if (shown.innerHTML !== section.innerHTML) shown.innerHTML = section.innerHTML;
    }
    document.title = fresh.title;
    lost.hidden = true;
  } catch {
    lost.hidden = false;
  }
  setTimeout(refresh, 1000 * SECONDS);
}

setTimeout(refresh, 1000 * SECONDS);

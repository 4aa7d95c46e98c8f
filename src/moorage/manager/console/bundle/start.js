// Runs before the first paint, while the console itself is still loading. Inline scripts are barred by the security policy.
(() => {
  // Sets the stored colour scheme.
  let stored = null;
  try {
    stored = window.localStorage.getItem("mantine-color-scheme-value");
  } catch {}
  const dark =
    stored === "dark" || (stored !== "light" && window.matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");

  // Asks who is signed in. The console uses this answer, or asks again if there is none.
  const session = new URL("../v1/session", document.currentScript.src);
  window.moorageSession = fetch(session, { cache: "no-store" }).catch(() => null);
})();

// Sets the stored colour scheme before the first paint. Inline scripts are barred by the security policy.
(() => {
  let stored = null;
  try {
    stored = window.localStorage.getItem("mantine-color-scheme-value");
  } catch {}
  const dark =
    stored === "dark" || (stored !== "light" && window.matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
})();

import { BACKGROUND } from "./auth";
import { CONSOLE } from "./place";

/** A file of the console that could not be loaded although the manager answers. */
export class MissingPart extends Error {}

const ENTRY = /assets\/index-[\w-]+\.js/;
const RELOADED = "moorage-reloaded-for";

/** The build of this page, named by the file that starts it; empty in development. */
const OWN =
  ENTRY.exec(document.querySelector<HTMLScriptElement>("script[type=module]")?.src ?? "")?.[0] ?? "";

/** The build that the manager serves now; null if the manager does not answer. */
async function servedBuild(): Promise<string | null> {
  try {
    const response = await fetch(`${CONSOLE}/`, { cache: "no-store", headers: BACKGROUND });
    return response.ok ? (ENTRY.exec(await response.text())?.[0] ?? "") : null;
  } catch {
    return null;
  }
}

/**
 * What became of a file that could not be loaded. "away": the manager does not answer, and a reload would end at the
 * browser's own error page. "reloading": the page is loaded again, at most once for each build, because the manager
 * serves another build, or because a file is still missing after an outage. "missing": neither.
 */
export async function afterFailure(afterOutage: boolean): Promise<"away" | "reloading" | "missing"> {
  const served = await servedBuild();
  if (served === null) {
    return "away";
  }
  const changed = served !== "" && served !== OWN;
  if (!(changed || afterOutage) || window.sessionStorage.getItem(RELOADED) === served) {
    return "missing";
  }
  window.sessionStorage.setItem(RELOADED, served);
  window.location.reload();
  return "reloading";
}
